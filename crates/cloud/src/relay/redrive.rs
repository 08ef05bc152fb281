//! Dead letters of the relay, put back by an operator.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::RELAY_CHANNEL;
use crate::dead_letters::audit::{self, Actor, Counted, Deed};

/// The most rows of one redrive.
pub const MAX_REDRIVE: u32 = 10_000;

/// Which dead letters are meant: what is there must all hold.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Selection {
    /// These events.
    pub event_ids: Option<Vec<Uuid>>,
    /// Buried for this reason.
    pub reason: Option<String>,
    /// Of this tenant.
    pub tenant: Option<Uuid>,
    /// Buried at this time or later.
    pub since: Option<Timestamp>,
    /// Buried before this time.
    pub until: Option<Timestamp>,
}

/// An event that the relay gave up. Its envelope is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The event.
    pub event_id: Uuid,
    /// Its type.
    pub event_type: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// When it was given up.
    pub failed_at: Timestamp,
    /// Why.
    pub reason: String,
    /// What the bus said last.
    pub error: Option<String>,
    /// How often it was tried.
    pub attempts: i32,
}

const MEANT: &str = "finished AND status = 'dlq'
    AND ($1::uuid[] IS NULL OR event_id = ANY ($1))
    AND ($2::text IS NULL OR dlq_reason = $2)
    AND ($3::uuid IS NULL OR tenant_id = $3)
    AND ($4::timestamptz IS NULL OR failed_at >= $4)
    AND ($5::timestamptz IS NULL OR failed_at < $5)";

/// The dead letters that are meant, the newest first.
pub async fn dead_letters(
    client: &Client,
    selection: &Selection,
    limit: u32,
) -> Result<Vec<DeadLetter>, pg::Error> {
    let Selection { event_ids, reason, tenant, since, until } = selection;
    let list = format!(
        "SELECT event_id, event_type, tenant_id, failed_at, dlq_reason, last_error_message, attempt_count
         FROM relay_outbox WHERE {MEANT} ORDER BY failed_at DESC, id DESC LIMIT $6"
    );
    let limit = i64::from(limit);
    let rows = client.query(&list, &[event_ids, reason, tenant, since, until, &limit]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(DeadLetter {
            event_id: row.try_get(0)?,
            event_type: row.try_get(1)?,
            tenant_id: row.try_get(2)?,
            failed_at: row.try_get(3)?,
            reason: row.try_get(4)?,
            error: row.try_get(5)?,
            attempts: row.try_get(6)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Puts dead letters back to be published, the oldest first, with no attempts; at most `limit`, and
/// never more than [`MAX_REDRIVE`]. A dry run counts alone. Either is recorded in `operator_audit`.
pub async fn redrive(
    client: &Client,
    actor: &Actor,
    selection: &Selection,
    limit: u32,
    dry_run: bool,
) -> Result<Counted, pg::Error> {
    let limit = limit.min(MAX_REDRIVE);
    let parameters = json!({"selection": selection, "limit": limit});
    let deed = Deed { actor, action: "relay.redrive", parameters, dry_run };
    let doing = |_| attempt(client, selection, limit, dry_run);
    Ok(audit::recorded(client, &deed, doing).await?.1)
}

async fn attempt(
    client: &Client,
    selection: &Selection,
    limit: u32,
    dry_run: bool,
) -> Result<Counted, pg::Error> {
    let Selection { event_ids, reason, tenant, since, until } = selection;
    let count = format!("SELECT count(*) FROM relay_outbox WHERE {MEANT}");
    let row = client.query_one(&count, &[event_ids, reason, tenant, since, until]).await?;
    let matched = row.get::<_, i64>(0).unsigned_abs();
    if dry_run || matched == 0 {
        return Ok(Counted { matched, changed: 0 });
    }
    let put_back = format!(
        "WITH back AS (
             UPDATE relay_outbox SET status = 'pending', attempt_count = 0, next_attempt_at = now(),
                 dlq_reason = NULL, failed_at = NULL, updated_at = now()
             WHERE id = ANY (ARRAY(
                 SELECT id FROM relay_outbox WHERE {MEANT} ORDER BY id LIMIT $6 FOR UPDATE SKIP LOCKED))
             RETURNING id)
         SELECT count(*), pg_notify($7, '')::text FROM back"
    );
    let row = client
        .query_one(
            &put_back,
            &[event_ids, reason, tenant, since, until, &i64::from(limit), &RELAY_CHANNEL],
        )
        .await?;
    Ok(Counted { matched, changed: row.get::<_, i64>(0).unsigned_abs() })
}
