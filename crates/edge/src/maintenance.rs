//! What the edge does on the side: partitions made ahead, expired event ids removed.
//!
//! Promises: small steps that never hold up ingress for long; one replica at a time removes event
//! ids; a failure is logged and tried again at the next turn. Neither task is needed for a message
//! to be stored.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{MissedTickBehavior, interval};

use crate::metrics::Metrics;
use crate::signal::Signal;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Backfills reach this far back before they meet the default partition.
pub(crate) const DAYS_BACK: i32 = 13 * 31;
/// An edge that nobody restarts for three months still has its partitions ready.
const DAYS_AHEAD: i32 = 3 * 31;
const PARTITIONS_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Rows removed by one statement: enough to be quick, few enough not to hold up a checkpoint.
const SWEEP_ROWS: i64 = 5_000;
/// One sweep at a time, whoever of the replicas runs it.
pub(crate) const SWEEP_LOCK: i64 = 0x7377_6570;
/// A turn that failed is tried again after this long.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How often the metrics' histograms are drained.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Makes the monthly partitions around `now` where they are missing.
pub(crate) async fn ensure_partitions(
    client: &mut tokio_postgres::Client,
    now: Timestamp,
) -> Result<usize, pg::Error> {
    let shift = |days: i32| now.checked_add(DAY * days).unwrap_or(now);
    let (from, to) = (shift(-DAYS_BACK), shift(DAYS_AHEAD));
    let raw =
        pg::partitions::ensure_months(client, "telemetry_raw", "occurred_at", from, to).await?;
    let of_aggregates =
        pg::partitions::ensure_months(client, "telemetry_agg", "bucket_start_at", from, to).await?;
    Ok(raw + of_aggregates)
}

/// Removes event ids that were first seen before `ttl` ago. Returns how many, or `None` when
/// another replica is at it.
pub async fn sweep_dedupe(options: &pg::Options, ttl: Duration) -> Result<Option<u64>, pg::Error> {
    let client = pg::connect(options).await?;
    // The lock belongs to the connection, so that it goes with a replica that is killed.
    let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&SWEEP_LOCK]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(None);
    }
    let mut removed = 0;
    loop {
        let rows = sweep_some(&client, ttl).await?;
        removed += rows;
        if rows < SWEEP_ROWS.unsigned_abs() {
            return Ok(Some(removed));
        }
    }
}

/// One batch of it; the caller holds [`SWEEP_LOCK`]. Returns how many went.
pub(crate) async fn sweep_some(
    client: &tokio_postgres::Client,
    ttl: Duration,
) -> Result<u64, pg::Error> {
    let rows = client
        .execute(
            "DELETE FROM ingress_dedupe WHERE ctid = ANY(ARRAY(
                 SELECT ctid FROM ingress_dedupe
                 WHERE first_seen_at < now() - make_interval(secs => $1)
                 ORDER BY first_seen_at LIMIT $2))",
            &[&ttl.as_secs_f64(), &SWEEP_ROWS],
        )
        .await?;
    Ok(rows)
}

/// Runs until told to stop.
pub(crate) async fn run(
    options: pg::Options,
    ttl: Duration,
    sweep_every: Duration,
    metrics: Arc<Metrics>,
    mut stop: Signal,
) {
    let mut partitions = interval(PARTITIONS_EVERY);
    let mut sweep = interval(sweep_every);
    for timer in [&mut partitions, &mut sweep] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            () = stop.heard() => return,
            _ = partitions.tick() => {
                let made = async {
                    ensure_partitions(&mut pg::connect(&options).await?, Timestamp::now()).await
                };
                match made.await {
                    Ok(0) => {}
                    Ok(made) => tracing::info!(made, "telemetry partitions made"),
                    Err(error) => {
                        tracing::warn!(%error, "telemetry partitions could not be made");
                        partitions.reset_after(RETRY_AFTER);
                    }
                }
            }
            _ = sweep.tick() => match sweep_dedupe(&options, ttl).await {
                Ok(Some(rows)) => metrics.dedupe_swept(rows),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the dedupe cache could not be swept"),
            },
        }
    }
}

/// Drains the metrics' histograms until told to stop.
pub(crate) async fn upkeep(metrics: Arc<Metrics>, mut stop: Signal) {
    let mut upkeep = interval(UPKEEP_EVERY);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.heard() => return,
            _ = upkeep.tick() => metrics.upkeep(),
        }
    }
}
