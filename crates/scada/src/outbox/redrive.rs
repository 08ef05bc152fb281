//! Giving events that were given up another chance, when what was wrong with them has been mended.

use uuid::Uuid;

/// The most rows of one call.
pub const MAX_REDRIVEN: i64 = 10_000;

/// The oldest first, so that the order among them stays. Those that came after them were sent long ago.
const REDRIVE: &str = "UPDATE outbox_events SET status = 'PENDING', retry_count = 0, available_at = now(),
    failed_at = NULL, failed_reason = NULL
WHERE id = ANY(ARRAY(
    SELECT id FROM outbox_events WHERE failed_at IS NOT NULL AND status = 'FAILED' AND (cardinality($1::uuid[]) = 0 OR id = ANY($1))
    ORDER BY created_at, id LIMIT $2 FOR UPDATE)) AND status = 'FAILED'
RETURNING id";

/// Sends `FAILED` events again: these, or all when none are named, at most [`MAX_REDRIVEN`]. Returns which they were.
pub async fn redrive(
    client: &tokio_postgres::Client,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, pg::Error> {
    let rows = client.query(REDRIVE, &[&ids, &MAX_REDRIVEN]).await?;
    let redriven: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    if !redriven.is_empty() {
        // Dispatchers look by themselves at their next sweep; a nudge makes it at once.
        client.batch_execute("NOTIFY outbox_events").await?;
    }
    Ok(redriven)
}
