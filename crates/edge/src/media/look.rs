//! Images for people and programs: one, and a page of them.

use api::tokens::Tenants;
use event::id::{DeviceId, MediaId, SessionId, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{COLUMNS, Fault, Row};
use crate::http::cursor::Page;
use crate::sync::admin::scope;

/// Which images to list. Everything that is given must hold.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) tenant: Option<TenantId>,
    pub(super) device: Option<DeviceId>,
    pub(super) session: Option<SessionId>,
    pub(super) status: Option<&'static str>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) after: Option<MediaId>,
    pub(super) limit: u32,
}

/// One image. One of other tenants is not there.
pub(super) async fn find(pool: &pg::Pool, tenants: &Tenants, id: MediaId) -> Result<Row, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM media_objects
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))"
    );
    let found = pool.get().await?.query_opt(&query, &[&id.uuid(), &scope(tenants)]).await?;
    Ok(Row::read(&found.ok_or(Fault::Missing)?)?)
}

/// A page of images, the newest id first.
pub(super) async fn list(
    pool: &pg::Pool,
    tenants: &Tenants,
    filter: &Filter,
) -> Result<Page<Row, Uuid>, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM media_objects
         WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
           AND ($2::uuid IS NULL OR tenant_id = $2)
           AND ($3::uuid IS NULL OR device_id = $3)
           AND ($4::uuid IS NULL OR session_id = $4)
           AND ($5::text IS NULL OR status = $5)
           AND ($6::timestamptz IS NULL OR captured_at >= $6)
           AND ($7::timestamptz IS NULL OR captured_at < $7)
           AND ($8::uuid IS NULL OR id < $8)
         ORDER BY id DESC LIMIT $9"
    );
    let rows = pool
        .get()
        .await?
        .query(
            &query,
            &[
                &scope(tenants),
                &filter.tenant.map(TenantId::uuid),
                &filter.device.map(DeviceId::uuid),
                &filter.session.map(SessionId::uuid),
                &filter.status,
                &filter.since,
                &filter.until,
                &filter.after.map(MediaId::uuid),
                &(i64::from(filter.limit) + 1),
            ],
        )
        .await?;
    let rows = rows.iter().map(Row::read).collect::<Result<Vec<Row>, _>>()?;
    Ok(Page::new(rows, filter.limit, |row| row.id))
}
