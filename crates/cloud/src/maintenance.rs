//! What the cloud does on the side: expired event ids removed, frontiers that are behind brought
//! forward.
//!
//! Promises: small steps that never hold up ingestion for long; one replica at a time removes event
//! ids; a failure is logged and tried again at the next turn. Neither is needed for a batch to be
//! answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::ingest::{self, rows};
use crate::metrics::Metrics;

/// Rows removed by one statement: enough to be quick, few enough not to hold up a checkpoint.
const SWEEP_ROWS: i64 = 5_000;
/// One sweep at a time, whoever of the replicas runs it.
const SWEEP_LOCK: i64 = 0x636c_6477;
/// How often the metrics' histograms are drained.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Removes event ids that were first seen before `ttl` ago, and what is kept beside them for as long. Returns how many, or `None` when
/// another replica is at it.
pub async fn sweep_dedupe(options: &pg::Options, ttl: Duration) -> Result<Option<u64>, pg::Error> {
    let client = pg::connect(options).await?;
    // The lock belongs to the connection, so that it goes with a replica that is killed.
    let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&SWEEP_LOCK]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(None);
    }
    let removed = sweep(&client, ("ingest_dedupe", "first_seen_at"), ttl).await?;
    // After the ids: what is stored is not asked for any more once its id is forgotten.
    sweep(&client, ("stored_event", "stored_at"), ttl).await?;
    sweep(&client, ("ingest_again", "asked_at"), ttl).await?;
    Ok(Some(removed))
}

/// Removes the rows of a table that are older than `ttl`, a few at a time.
async fn sweep(
    client: &tokio_postgres::Client,
    (table, at): (&'static str, &'static str),
    ttl: Duration,
) -> Result<u64, pg::Error> {
    let text = format!(
        "DELETE FROM {table} WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM {table} WHERE {at} < now() - make_interval(secs => $1)
             ORDER BY {at} LIMIT $2))"
    );
    let mut removed = 0;
    loop {
        let rows = client.execute(&text, &[&ttl.as_secs_f64(), &SWEEP_ROWS]).await?;
        removed += rows;
        if rows < SWEEP_ROWS.unsigned_abs() {
            return Ok(removed);
        }
    }
}

/// Gives every frontier that is behind what its pages have, each in a transaction of its own, for
/// streams that send nothing any more. Returns how many are not behind any longer.
pub async fn absorb_behind(pool: &pg::Pool) -> Result<u64, ingest::Error> {
    let mut client = pool.get().await?;
    let (mut after, mut caught_up) = (0, 0);
    loop {
        let transaction = client.transaction().await?;
        let Some((stream, mut account)) = rows::lock_behind(&transaction, after).await? else {
            return Ok(caught_up);
        };
        after = account.id;
        rows::catch_up(&transaction, &mut account).await?;
        caught_up += u64::from(!account.behind);
        rows::write_frontiers(&transaction, &BTreeMap::from([(stream, account)])).await?;
        transaction.commit().await?;
    }
}

/// Runs until told to stop.
pub(crate) async fn run(
    options: pg::Options,
    pool: pg::Pool,
    (ttl, sweep_every): (Duration, Duration),
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut sweep = interval(sweep_every);
    let mut upkeep = interval(UPKEEP_EVERY);
    for timer in [&mut sweep, &mut upkeep] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = upkeep.tick() => metrics.upkeep(),
            _ = sweep.tick() => {
                match sweep_dedupe(&options, ttl).await {
                    Ok(Some(rows)) => metrics.dedupe_swept(rows),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, "the dedupe cache could not be swept"),
                }
                match absorb_behind(&pool).await {
                    Ok(0) => {}
                    Ok(caught_up) => tracing::info!(caught_up, "frontiers have caught up"),
                    Err(error) => tracing::warn!(%error, "frontiers could not catch up"),
                }
            }
        }
    }
}
