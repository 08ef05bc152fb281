//! Copies that were given up, put back by an operator.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::dead_letters::audit::{self, Actor, Counted, Deed};

/// The most images of one retry.
pub const MAX_RETRIED: u32 = 10_000;

/// Which failed copies are meant: what is there must all hold.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Selection {
    /// These images.
    pub media_ids: Option<Vec<Uuid>>,
    /// Failed for this reason.
    pub code: Option<String>,
    /// Of one of these tenants.
    pub tenants: Option<Vec<Uuid>>,
    /// Given up at this time or later.
    pub since: Option<Timestamp>,
    /// Given up before this time.
    pub until: Option<Timestamp>,
}

/// An image whose copy was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedCopy {
    /// The image.
    pub media_id: Uuid,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// Where the site said that its object is.
    pub path: String,
    /// Its size.
    pub size_bytes: i64,
    /// When it was captured.
    pub occurred_at: Timestamp,
    /// When its copy was given up.
    pub failed_at: Timestamp,
    /// Why, in a word.
    pub code: Option<String>,
    /// Why.
    pub error: Option<String>,
    /// How often it was tried.
    pub attempts: i32,
}

// A binary of the version before leaves the time of a failure out.
const FAILED_AT: &str = "coalesce(copy_failed_at, copy_next_at)";
const MEANT: &str = "copy_status = 'failed'
    AND ($1::uuid[] IS NULL OR media_id = ANY ($1))
    AND ($2::text IS NULL OR copy_error_code = $2)
    AND ($3::uuid[] IS NULL OR tenant_id = ANY ($3))
    AND ($4::timestamptz IS NULL OR coalesce(copy_failed_at, copy_next_at) >= $4)
    AND ($5::timestamptz IS NULL OR coalesce(copy_failed_at, copy_next_at) < $5)";

/// The failed copies that are meant, the newest failure first.
pub async fn failed(
    client: &Client,
    selection: &Selection,
    limit: u32,
) -> Result<Vec<FailedCopy>, pg::Error> {
    let Selection { media_ids, code, tenants, since, until } = selection;
    let list = format!(
        "SELECT media_id, tenant_id, path, size_bytes, occurred_at, {FAILED_AT}, copy_error_code,
             copy_error_message, copy_attempts
         FROM media_object WHERE {MEANT} ORDER BY {FAILED_AT} DESC, media_id DESC LIMIT $6"
    );
    let limit = i64::from(limit);
    let rows = client.query(&list, &[media_ids, code, tenants, since, until, &limit]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(FailedCopy {
            media_id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            path: row.try_get(2)?,
            size_bytes: row.try_get(3)?,
            occurred_at: row.try_get(4)?,
            failed_at: row.try_get(5)?,
            code: row.try_get(6)?,
            error: row.try_get(7)?,
            attempts: row.try_get(8)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Tries failed copies again, those given up first before the others, with no attempts; at most `limit`, and never more than
/// [`MAX_RETRIED`]. A dry run counts alone. Either is recorded in `operator_audit`.
pub async fn retry(
    client: &Client,
    actor: &Actor,
    selection: &Selection,
    limit: u32,
    dry_run: bool,
) -> Result<Counted, pg::Error> {
    let limit = limit.min(MAX_RETRIED);
    let parameters = json!({"selection": selection, "limit": limit});
    let deed = Deed { actor, action: "media.retry", parameters, dry_run };
    let doing = |_| attempt(client, selection, limit, dry_run);
    Ok(audit::recorded(client, &deed, doing).await?.1)
}

async fn attempt(
    client: &Client,
    selection: &Selection,
    limit: u32,
    dry_run: bool,
) -> Result<Counted, pg::Error> {
    let Selection { media_ids, code, tenants, since, until } = selection;
    let count = format!("SELECT count(*) FROM media_object WHERE {MEANT}");
    let row = client.query_one(&count, &[media_ids, code, tenants, since, until]).await?;
    let matched = row.try_get::<_, i64>(0)?.unsigned_abs();
    if dry_run || matched == 0 {
        return Ok(Counted { matched, changed: 0 });
    }
    let put_back = format!(
        "UPDATE media_object t SET copy_status = 'pending', copy_attempts = 0, copy_next_at = now(),
             copy_failed_at = NULL, copy_error_code = NULL, copy_error_message = NULL
         FROM (SELECT tenant_id, media_id FROM media_object WHERE {MEANT}
               ORDER BY {FAILED_AT}, media_id LIMIT $6 FOR UPDATE SKIP LOCKED) k
         WHERE t.tenant_id = k.tenant_id AND t.media_id = k.media_id"
    );
    let limit = i64::from(limit);
    let changed =
        client.execute(&put_back, &[media_ids, code, tenants, since, until, &limit]).await?;
    Ok(Counted { matched, changed })
}
