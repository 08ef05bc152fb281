//! Which sessions are complete: those to which nothing has come for a while.

use std::time::Duration;

/// The most sessions of one statement.
const STEP: i64 = 500;

/// One that is being claimed, or is getting an image, is left for the next time.
const FINALIZE: &str = "UPDATE schedule_ingest.capture_session SET finalized_at = now(), available_at = now()
WHERE id = ANY (ARRAY(
    SELECT id FROM schedule_ingest.capture_session
    WHERE finalized_at IS NULL AND state = 'pending' AND active_at <= now() - make_interval(secs => $1)
    ORDER BY active_at LIMIT $2 FOR UPDATE SKIP LOCKED))
  AND finalized_at IS NULL AND state = 'pending'";

/// Marks sessions that were idle for so long as complete, and returns how many.
pub async fn finalize(client: &tokio_postgres::Client, idle: Duration) -> Result<u64, pg::Error> {
    let mut finalized = 0;
    loop {
        let rows = client.execute(FINALIZE, &[&idle.as_secs_f64(), &STEP]).await?;
        finalized += rows;
        if rows < STEP.unsigned_abs() {
            return Ok(finalized);
        }
    }
}
