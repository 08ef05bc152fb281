//! Sessions for people: a page of them, and one with its media and results.

use api::tokens::Tenants;
use event::id::{BarnId, BatchId, DeviceId, FarmId, SessionId, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{COLUMNS, Fault, Session, Status};
use crate::http::cursor::{Cursor, Page};
use crate::inference::ResultRow;
use crate::sync::admin::scope;

/// The most images, and the most results, that are shown with a session.
const MOST: i64 = 200;

/// Which sessions to list. Everything that is given must hold.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) tenant_id: Option<TenantId>,
    pub(super) farm_id: Option<FarmId>,
    pub(super) barn_id: Option<BarnId>,
    pub(super) device_id: Option<DeviceId>,
    pub(super) batch_id: Option<BatchId>,
    pub(super) status: Option<Status>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) after: Option<Cursor>,
    pub(super) limit: u32,
}

/// A page of sessions, the newest first.
pub(super) async fn list(
    pool: &pg::Pool,
    tenants: &Tenants,
    filter: &Filter,
) -> Result<Page<Session>, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM weight_sessions
         WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
           AND ($2::uuid IS NULL OR tenant_id = $2)
           AND ($3::uuid IS NULL OR farm_id = $3)
           AND ($4::uuid IS NULL OR barn_id = $4)
           AND ($5::uuid IS NULL OR device_id = $5)
           AND ($6::uuid IS NULL OR batch_id = $6)
           AND ($7::text IS NULL OR status = $7)
           AND ($8::timestamptz IS NULL OR start_at >= $8)
           AND ($9::timestamptz IS NULL OR start_at < $9)
           AND ($10::timestamptz IS NULL OR (start_at, id) < ($10, $11::uuid))
         ORDER BY start_at DESC, id DESC LIMIT $12"
    );
    let client = pool.get().await?;
    let rows = client
        .query(
            &query,
            &[
                &scope(tenants),
                &filter.tenant_id.map(TenantId::uuid),
                &filter.farm_id.map(FarmId::uuid),
                &filter.barn_id.map(BarnId::uuid),
                &filter.device_id.map(DeviceId::uuid),
                &filter.batch_id.map(BatchId::uuid),
                &filter.status.map(Status::as_str),
                &filter.since,
                &filter.until,
                &filter.after.map(|place| place.at),
                &filter.after.map(|place| place.id),
                &(i64::from(filter.limit) + 1),
            ],
        )
        .await?;
    let rows = rows.iter().map(Session::read).collect::<Result<Vec<Session>, _>>()?;
    let place = |row: &Session| Cursor { at: row.start_at, id: row.id };
    Ok(Page::new(rows, filter.limit, place))
}

/// An image of a session.
#[derive(Debug, Serialize)]
struct Image {
    media_id: Uuid,
    device_id: Uuid,
    bucket: String,
    object_key: String,
    mime_type: String,
    size_bytes: i64,
    captured_at: Timestamp,
    stored_at: Option<Timestamp>,
}

/// A session with what belongs to it.
#[derive(Debug, Serialize)]
pub(super) struct Detail {
    #[serde(flatten)]
    session: Session,
    media: Vec<Image>,
    results: Vec<ResultRow>,
}

/// One session.
pub(super) async fn show(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: SessionId,
) -> Result<Detail, Fault> {
    let client = pool.get().await?;
    let query = format!(
        "SELECT {COLUMNS} FROM weight_sessions
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))"
    );
    let row = client.query_opt(&query, &[&id.uuid(), &scope(tenants)]).await?;
    let session = Session::read(&row.ok_or(Fault::Missing)?)?;
    let media = client
        .query(
            "SELECT id, device_id, bucket, object_key, mime_type, size_bytes, captured_at, stored_at
             FROM media_objects WHERE tenant_id = $1 AND session_id = $2 AND status = 'stored'
             ORDER BY captured_at, id LIMIT $3",
            &[&session.tenant_id, &session.id, &MOST],
        )
        .await?;
    let media = media.iter().map(|row| {
        Ok(Image {
            media_id: row.try_get(0)?,
            device_id: row.try_get(1)?,
            bucket: row.try_get(2)?,
            object_key: row.try_get(3)?,
            mime_type: row.try_get(4)?,
            size_bytes: row.try_get(5)?,
            captured_at: row.try_get(6)?,
            stored_at: row.try_get(7)?,
        })
    });
    let media = media.collect::<Result<Vec<Image>, tokio_postgres::Error>>()?;
    let results = ResultRow::of_session(&client, session.tenant_id, session.id, MOST).await?;
    Ok(Detail { session, media, results })
}
