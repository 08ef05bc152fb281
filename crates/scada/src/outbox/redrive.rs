//! Giving events that were given up another chance, when what was wrong with them has been mended.

use serde_json::json;
use uuid::Uuid;

use crate::audit::{self, Actor};

/// The most rows of one call.
pub const MAX_REDRIVEN: i64 = 10_000;

/// The oldest first, so that the order among them stays. Those that came after them were sent long ago.
const REDRIVE: &str = "UPDATE outbox_events SET status = 'PENDING', retry_count = 0, available_at = now(),
    failed_at = NULL, failed_reason = NULL
WHERE id = ANY(ARRAY(
    SELECT id FROM outbox_events WHERE failed_at IS NOT NULL AND status = 'FAILED' AND (cardinality($1::uuid[]) = 0 OR id = ANY($1))
    ORDER BY created_at, id LIMIT $2 FOR UPDATE)) AND status = 'FAILED'
RETURNING id";

/// Sends `FAILED` events again: these, or all when none are named, at most [`MAX_REDRIVEN`]. Returns which they were. The row of
/// `operator_audit` is in the same transaction, also when there were none.
pub async fn redrive(
    client: &mut tokio_postgres::Client,
    actor: &Actor,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, pg::Error> {
    let transaction = client.transaction().await?;
    let rows = transaction.query(REDRIVE, &[&ids, &MAX_REDRIVEN]).await?;
    let redriven: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let parameters = json!({"all": ids.is_empty(), "ids": ids});
    let changed = i64::try_from(redriven.len()).unwrap_or(i64::MAX);
    audit::record(&transaction, actor, "producer.redrive", parameters, changed).await?;
    if !redriven.is_empty() {
        // Dispatchers look by themselves at their next sweep; a nudge makes it at once. It is given at the commit.
        transaction.batch_execute("NOTIFY outbox_events").await?;
    }
    transaction.commit().await?;
    Ok(redriven)
}
