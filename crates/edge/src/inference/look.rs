//! Results for people.

use api::tokens::Tenants;
use event::id::{DeviceId, InferenceResultId, MediaId, SessionId, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::Fault;
use crate::http::cursor::{Cursor, Page};
use crate::sync::admin::scope;

/// A result, as its row says it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ResultRow {
    id: Uuid,
    tenant_id: Uuid,
    farm_id: Uuid,
    barn_id: Uuid,
    device_id: Uuid,
    session_id: Option<Uuid>,
    media_id: Option<Uuid>,
    predicted_weight_kg: f64,
    predicted_size: Option<String>,
    confidence: f64,
    model_version: String,
    occurred_at: Timestamp,
    created_at: Timestamp,
}

/// The columns of [`ResultRow::read`].
pub(super) const COLUMNS: &str = "id, tenant_id, farm_id, barn_id, device_id, session_id, media_id,
    predicted_weight_kg, predicted_size, confidence, model_version, occurred_at, created_at";

impl ResultRow {
    pub(super) fn read(row: &tokio_postgres::Row) -> Result<ResultRow, tokio_postgres::Error> {
        Ok(ResultRow {
            id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            farm_id: row.try_get(2)?,
            barn_id: row.try_get(3)?,
            device_id: row.try_get(4)?,
            session_id: row.try_get(5)?,
            media_id: row.try_get(6)?,
            predicted_weight_kg: row.try_get(7)?,
            predicted_size: row.try_get(8)?,
            confidence: row.try_get(9)?,
            model_version: row.try_get(10)?,
            occurred_at: row.try_get(11)?,
            created_at: row.try_get(12)?,
        })
    }

    /// The results of a session, the earliest first.
    pub(crate) async fn of_session(
        client: &pg::Client,
        tenant: Uuid,
        session: Uuid,
        most: i64,
    ) -> Result<Vec<ResultRow>, tokio_postgres::Error> {
        let query = format!(
            "SELECT {COLUMNS} FROM inference_results WHERE tenant_id = $1 AND session_id = $2
             ORDER BY occurred_at, id LIMIT $3"
        );
        let rows = client.query(&query, &[&tenant, &session, &most]).await?;
        rows.iter().map(ResultRow::read).collect()
    }
}

/// Which results to list. Everything that is given must hold.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) tenant_id: Option<TenantId>,
    pub(super) session_id: Option<SessionId>,
    pub(super) media_id: Option<MediaId>,
    pub(super) device_id: Option<DeviceId>,
    pub(super) model_version: Option<String>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) after: Option<Cursor>,
    pub(super) limit: u32,
}

/// A page of results, the newest first.
pub(super) async fn list(
    pool: &pg::Pool,
    tenants: &Tenants,
    filter: &Filter,
) -> Result<Page<ResultRow>, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM inference_results
         WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
           AND ($2::uuid IS NULL OR tenant_id = $2)
           AND ($3::uuid IS NULL OR session_id = $3)
           AND ($4::uuid IS NULL OR media_id = $4)
           AND ($5::uuid IS NULL OR device_id = $5)
           AND ($6::text IS NULL OR model_version = $6)
           AND ($7::timestamptz IS NULL OR occurred_at >= $7)
           AND ($8::timestamptz IS NULL OR occurred_at < $8)
           AND ($9::timestamptz IS NULL OR (occurred_at, id) < ($9, $10::uuid))
         ORDER BY occurred_at DESC, id DESC LIMIT $11"
    );
    let client = pool.get().await?;
    let rows = client
        .query(
            &query,
            &[
                &scope(tenants),
                &filter.tenant_id.map(TenantId::uuid),
                &filter.session_id.map(SessionId::uuid),
                &filter.media_id.map(MediaId::uuid),
                &filter.device_id.map(DeviceId::uuid),
                &filter.model_version,
                &filter.since,
                &filter.until,
                &filter.after.map(|place| place.at),
                &filter.after.map(|place| place.id),
                &(i64::from(filter.limit) + 1),
            ],
        )
        .await?;
    let rows = rows.iter().map(ResultRow::read).collect::<Result<Vec<ResultRow>, _>>()?;
    let place = |row: &ResultRow| Cursor { at: row.occurred_at, id: row.id };
    Ok(Page::new(rows, filter.limit, place))
}

/// One result.
pub(super) async fn show(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: InferenceResultId,
) -> Result<ResultRow, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM inference_results
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))"
    );
    let client = pool.get().await?;
    let row = client.query_opt(&query, &[&id.uuid(), &scope(tenants)]).await?;
    Ok(ResultRow::read(&row.ok_or(Fault::Missing)?)?)
}
