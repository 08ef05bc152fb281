//! Writing outcomes: again and again until the database has taken them, and counted.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::Error;
use crate::id::RowId;
use crate::queue::Outcome;
use crate::settle::Settle;
use crate::store::Hold;
use crate::worker::Shared;

const ERROR_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_ERROR_PAUSE: Duration = Duration::from_secs(2);
/// A stop does not wait longer than this for the database to take the outcomes.
const SETTLE_AFTER_STOP: Duration = Duration::from_secs(5);

impl<T, H> Shared<T, H> {
    /// Writes outcomes and counts them; tries until the database takes them. `kept` are rows of the
    /// same claim that stay held. True when all of them
    /// changed their rows.
    pub(crate) async fn write(
        &self,
        hold: &Hold,
        settles: &[Settle],
        kept: &[(usize, RowId)],
        stop: &watch::Receiver<bool>,
    ) -> bool {
        let queue = self.queue.name;
        let settle = || self.queue.settle(&self.pool, hold, settles, kept);
        let written = self.until_done(stop, settle).await;
        let (ours, first_try) = match written {
            Ok(written) => written,
            Err(error) => {
                let rows = settles.len();
                tracing::error!(queue, rows, %error, "outcomes were not written; the leases expire");
                return false;
            }
        };
        let all = ours == settles.len() as u64;
        let mut fenced = (settles.len() as u64).saturating_sub(ours);
        if fenced > 0 && !first_try {
            // The try before may have gone through and its answer been lost.
            tracing::info!(queue, rows = fenced, "outcomes were written before or not at all");
            fenced = 0;
        }
        if fenced > 0 {
            tracing::warn!(queue, fenced, "outcomes changed nothing: the rows were taken over");
            self.meter.fenced.increment(fenced);
            self.desk.tally.fenced.fetch_add(fenced, Ordering::Relaxed);
        }
        if fenced == settles.len() as u64 {
            return all;
        }
        let (meter, tally) = (&self.meter, &self.desk.tally);
        for settle in settles {
            let (counter, count) = match settle.outcome {
                Outcome::Done => (&meter.done, &tally.done),
                Outcome::Retry { .. } => (&meter.retried, &tally.retried),
                Outcome::Bury { .. } => (&meter.buried, &tally.buried),
                Outcome::NotTried => (&meter.released, &tally.released),
            };
            counter.increment(1);
            count.fetch_add(1, Ordering::Relaxed);
        }
        all
    }

    /// Repeats a write until it goes through, fails for good, or a stop has waited long enough. The
    /// write must be safe to repeat: the fence makes it so. Returns its rows, and whether the first
    /// try went through.
    pub(crate) async fn until_done<F>(
        &self,
        stop: &watch::Receiver<bool>,
        mut write: impl FnMut() -> F,
    ) -> Result<(u64, bool), Error>
    where
        F: Future<Output = Result<u64, Error>>,
    {
        let mut first_try = true;
        let mut pause = ERROR_PAUSE;
        let mut stopped_at: Option<Instant> = None;
        loop {
            let error = match write().await {
                Ok(rows) => return Ok((rows, first_try)),
                Err(error) => error,
            };
            first_try = false;
            self.meter.database_errors.increment(1);
            if *stop.borrow() {
                stopped_at.get_or_insert_with(Instant::now);
            }
            let given_up = stopped_at.is_some_and(|at| at.elapsed() >= SETTLE_AFTER_STOP);
            if !error.is_passing() || given_up {
                return Err(error);
            }
            tracing::warn!(queue = self.queue.name, %error, "a write failed and is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_ERROR_PAUSE);
        }
    }
}
