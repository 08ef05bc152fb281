//! The pruner: what was sent long ago goes, in small steps; nothing else does.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Rows removed by one statement: enough to be quick, few enough not to hold up a checkpoint.
const STEP_ROWS: i64 = 5_000;
/// The first run waits for the start to be over.
const FIRST_AFTER: Duration = Duration::from_secs(5);

const SENT: &str = "DELETE FROM outbox_events WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM outbox_events
    WHERE status = 'SENT' AND sent_at < now() - make_interval(secs => $1)
    ORDER BY sent_at LIMIT $2)) AND status = 'SENT'";

const CACHED: &str = "DELETE FROM local_telemetry WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM local_telemetry
    WHERE timestamp < now() - make_interval(secs => $1)
    ORDER BY timestamp LIMIT $2))";

/// What one run removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Rows of `outbox_events`, all of them `SENT`.
    pub events: u64,
    /// Rows of `local_telemetry`.
    pub telemetry: u64,
}

/// Removes what was sent, and what was measured, longer than `keep` ago.
pub async fn prune(client: &pg::Client, keep: Duration) -> Result<Pruned, pg::Error> {
    let mut pruned = Pruned::default();
    for (statement, removed) in [(SENT, &mut pruned.events), (CACHED, &mut pruned.telemetry)] {
        loop {
            let rows = client.execute(statement, &[&keep.as_secs_f64(), &STEP_ROWS]).await?;
            *removed += rows;
            if rows < STEP_ROWS.unsigned_abs() {
                break;
            }
        }
    }
    Ok(pruned)
}

/// A pruner that runs from time to time until it is dropped.
#[derive(Debug)]
pub struct Pruner(JoinHandle<()>);

impl Pruner {
    /// `keep` is `STORAGE_RETENTION_DAYS`, `every` is `PRUNE_INTERVAL_MS`. The first run is five seconds after the start.
    pub fn start(pool: pg::Pool, keep: Duration, every: Duration) -> Pruner {
        Pruner(tokio::spawn(async move {
            let mut turn =
                tokio::time::interval_at(tokio::time::Instant::now() + FIRST_AFTER, every);
            turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                turn.tick().await;
                let pruned = async { prune(&pool.get().await?, keep).await };
                match pruned.await {
                    Ok(Pruned { events: 0, telemetry: 0 }) => {
                        tracing::debug!("nothing to prune");
                    }
                    Ok(Pruned { events, telemetry }) => {
                        tracing::info!(events, telemetry, "old rows pruned");
                    }
                    Err(error) => tracing::warn!(%error, "the outbox could not be pruned"),
                }
            }
        }))
    }
}

impl Drop for Pruner {
    fn drop(&mut self) {
        self.0.abort();
    }
}
