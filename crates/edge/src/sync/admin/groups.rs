//! Dead letters by reason, for people.

use api::tokens::Tenants;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::scope;

/// The most groups that are shown, the largest first.
const MOST: i64 = 500;

/// Dead letters of one tenant, reason and type.
#[derive(Debug, Clone, Serialize)]
pub struct DeadGroup {
    /// Whose.
    pub tenant_id: Uuid,
    /// Why.
    pub reason: Option<String>,
    /// The events' type.
    pub event_type: String,
    /// How many.
    pub count: i64,
    /// When the first of them died.
    pub first_at: Option<Timestamp>,
    /// When the last of them died.
    pub last_at: Option<Timestamp>,
    /// One of them.
    pub sample_id: Option<Uuid>,
    /// What the cloud said of it.
    pub sample_message: Option<String>,
}

const GROUPS: &str = "SELECT tenant_id, dlq_reason, event_type, count(*), min(failed_at), max(failed_at),
    (array_agg(id ORDER BY failed_at DESC))[1], (array_agg(last_error_message ORDER BY failed_at DESC))[1]
FROM sync_outbox
WHERE status = 'dlq' AND failed_at IS NOT NULL AND ($1::uuid[] IS NULL OR tenant_id = ANY($1))
GROUP BY tenant_id, dlq_reason, event_type ORDER BY 4 DESC, 1, 2, 3 LIMIT $2";

/// The groups of these tenants.
pub async fn dead_groups(pool: &pg::Pool, tenants: &Tenants) -> Result<Vec<DeadGroup>, pg::Error> {
    let client = pool.get().await?;
    let rows = client.query(GROUPS, &[&scope(tenants), &MOST]).await?;
    let group = |row: &tokio_postgres::Row| {
        Ok(DeadGroup {
            tenant_id: row.try_get(0)?,
            reason: row.try_get(1)?,
            event_type: row.try_get(2)?,
            count: row.try_get(3)?,
            first_at: row.try_get(4)?,
            last_at: row.try_get(5)?,
            sample_id: row.try_get(6)?,
            sample_message: row.try_get(7)?,
        })
    };
    rows.iter().map(group).collect()
}
