//! How many copies wait, and how many were given up, by looking at the table from time to time.

use std::time::Duration;

use metrics::{Gauge, describe_gauge, gauge};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Counting stops here: a gauge that says "this many or more" costs little at any backlog.
const COUNT_LIMIT: i64 = 100_000;
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Each part has an index of its own.
const COUNT: &str = "SELECT
    (SELECT count(*) FROM (SELECT FROM media_object WHERE copy_status = 'pending' LIMIT $1) AS few)
    + (SELECT count(*) FROM (SELECT FROM media_object WHERE copy_status = 'copying' LIMIT $1) AS few),
    (SELECT count(*) FROM (SELECT FROM media_object WHERE copy_status = 'failed' LIMIT $1) AS few)";

/// What is shown. Only a process that copies has it: for another, every image waits for ever.
pub(crate) struct Gauges {
    waiting: Gauge,
    failed: Gauge,
}

impl Gauges {
    pub(crate) fn new() -> Gauges {
        let name = "holdfast_cloud_media_copies";
        describe_gauge!(name, "Copies of images by state, counted up to 100,000.");
        Gauges {
            waiting: gauge!(name, "state" => "waiting"),
            failed: gauge!(name, "state" => "failed"),
        }
    }
}

/// Looks until told to stop. A look that fails changes nothing: those who need the database say that it is away.
pub(crate) async fn watch(pool: pg::Pool, gauges: Gauges, stop: CancellationToken) {
    let mut turn = interval(LOOK_EVERY);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(turn.tick()).await.is_some() {
        match count(&pool).await {
            Ok([waiting, failed]) => {
                gauges.waiting.set(number(waiting));
                gauges.failed.set(number(failed));
            }
            Err(error) => tracing::debug!(%error, "copies could not be counted"),
        }
    }
}

async fn count(pool: &pg::Pool) -> Result<[i64; 2], pg::Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(COUNT).await?;
    let row = client.query_one(&statement, &[&COUNT_LIMIT]).await?;
    Ok([row.try_get(0)?, row.try_get(1)?])
}

#[expect(clippy::cast_precision_loss, reason = "counts end at 200,000")]
fn number(count: i64) -> f64 {
    count as f64
}
