//! Works off the marks: one window after the other, a bounded number of buckets a transaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event::Window;
use jiff::Timestamp;
use pg::Transaction;

use super::dirty::{self, Bucket};
use super::{compute, emit, kept, store};
use crate::config::Telemetry;
use crate::metrics::Metrics;
use crate::signal::Signal;

/// Buckets computed in one transaction: enough to be quick, few enough that a reading which wants to mark one of them does not wait long.
const BUCKETS: i64 = 500;
/// How often marks are looked for when there was none.
const POLL: Duration = Duration::from_millis(500);
/// The longest pause after a failure.
const PAUSE_CAP: Duration = Duration::from_secs(10);
/// How often the cloud is told which sequences stay at the site.
pub const KEPT_EVERY: Duration = Duration::from_secs(30);
/// How a transaction begins. A replica that is halted in the middle holds marks that ingress may wait for; the server ends it. And a bucket's rows are
/// looked up by their index, one bucket after the other: after a backfill the statistics say too little of a device that has much, and a plan that
/// joins all readings with all buckets takes minutes where this takes milliseconds.
const BEGIN: &str = "SET LOCAL idle_in_transaction_session_timeout = '5s';
     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off;
     SET LOCAL jit = off";

/// Keeps the aggregates right. Cloning shares the pool; any number may work at once.
#[derive(Debug, Clone)]
pub struct Aggregator {
    pool: pg::Pool,
    options: Telemetry,
    metrics: Arc<Metrics>,
}

impl Aggregator {
    /// An aggregator on a pool.
    pub fn new(pool: pg::Pool, options: Telemetry, metrics: Arc<Metrics>) -> Aggregator {
        Aggregator { pool, options, metrics }
    }

    /// Computes some buckets of every window. Returns how many there were.
    pub async fn turn(&self) -> Result<usize, pg::Error> {
        let mut client = self.pool.get().await?;
        let mut done = 0;
        for window in Window::ALL {
            let transaction = client.transaction().await?;
            transaction.batch_execute(BEGIN).await?;
            done += self.compute(&transaction, window).await?;
            transaction.commit().await?;
        }
        Ok(done)
    }

    /// Takes turns until nothing is due. Returns how many buckets were computed.
    pub async fn work_off(&self) -> Result<usize, pg::Error> {
        let mut all = 0;
        loop {
            match self.turn().await? {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    /// Turns the sequences that stay at the site into tombstones for the cloud. Returns how many streams had some.
    pub async fn tell_kept(&self) -> Result<u64, pg::Error> {
        kept::tell(&self.pool.get().await?).await
    }

    async fn compute(
        &self,
        transaction: &Transaction<'_>,
        window: Window,
    ) -> Result<usize, pg::Error> {
        if !dirty::is_due(transaction, window, self.options.settle).await? {
            return Ok(0);
        }
        // Before any mark is locked: whoever makes a month waits for ingress, and ingress may wait for our marks.
        for table in ["telemetry_raw", "telemetry_agg"] {
            pg::partitions::hold(transaction, table).await?;
        }
        let claimed = dirty::claim(transaction, window, self.options.settle, BUCKETS).await?;
        if claimed.is_empty() {
            return Ok(0);
        }
        let held = compute::compute(transaction, window, &claimed).await?;
        let changed = store::store(transaction, window, &held).await?;
        // The database's clock: marks, buckets' ends and ids are all by it.
        let now: Timestamp = transaction.query_one("SELECT clock_timestamp()", &[]).await?.get(0);
        if window == Window::Minute {
            store::note_series(transaction, &held, now).await?;
        }
        if let Some(next) = window.next() {
            let above = |bucket: &Bucket| Bucket { start: next.start_of(bucket.start), ..*bucket };
            let above: BTreeSet<Bucket> = changed.iter().map(above).collect();
            dirty::mark(transaction, next, &above).await?;
        }
        let mut emitted = 0;
        if self.options.emits(window) {
            let ended = |bucket: &Bucket| window.end_of(bucket.start) <= now;
            let (ended, open): (Vec<Bucket>, Vec<Bucket>) = claimed.iter().partition(|b| ended(b));
            emitted = emit::emit(transaction, window, &ended).await?;
            dirty::clear(transaction, window, &ended).await?;
            dirty::postpone(transaction, window, &open).await?;
        } else {
            dirty::clear(transaction, window, &claimed).await?;
        }
        self.metrics.telemetry.computed(window, claimed.len(), changed.len(), emitted);
        Ok(claimed.len())
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, mut stop: Signal) {
        let mut pause = POLL;
        let mut kept_at = Instant::now();
        while !stop.is_said() {
            let worked = async {
                if kept_at.elapsed() >= KEPT_EVERY {
                    self.look_after().await?;
                    kept_at = Instant::now();
                }
                self.turn().await
            };
            let worked = tokio::select! {
                () = stop.heard() => return,
                worked = worked => worked,
            };
            match worked {
                Ok(0) => pause = POLL,
                Ok(_) => {
                    pause = POLL;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "aggregates wait");
                    pause = (pause * 2).min(PAUSE_CAP);
                }
            }
            tokio::select! {
                () = stop.heard() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look_after(&self) -> Result<(), pg::Error> {
        let client = self.pool.get().await?;
        kept::tell(&client).await?;
        let oldest = dirty::oldest(&client).await?.unwrap_or_default();
        self.metrics.telemetry.oldest.set(oldest.max(0.0));
        Ok(())
    }
}
