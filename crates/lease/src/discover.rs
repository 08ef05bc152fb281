//! Finding the lanes that have work.
//!
//! Two looks. The *fresh* look, at every nudge and poll, reads rows that became due since the last one:
//! as many as there are, whatever the backlog. The *sweep*, at the start and then now and then, goes
//! from lane to lane through the lane index and finds what no fresh look can: the backlog of before,
//! rows of a worker that died, rows that were given back, rows of a very long transaction.
//!
//! While an old snapshot is held open, index entries of finished rows cannot go away and a sweep
//! walks over all of them. Both looks therefore rest a multiple of the time they took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::error::Error;
use crate::lanes::Lane;
use crate::queue::Handler;
use crate::worker::{Shared, lock, said};

/// Nudges within this time are one look.
const COALESCE: Duration = Duration::from_millis(5);
/// A fresh look takes at most a fifth of the time, a sweep a twentieth.
const FRESH_REST: u32 = 4;
const SWEEP_REST: u32 = 19;
/// Lanes of one page of a sweep.
const PAGE: i32 = 2000;
/// Lanes of one tenant and rank in the first page, so that it shows something of everybody.
const FIRST_LOOK: i32 = 64;
/// How often lanes are removed that nobody needs any more.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
const ERROR_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_ERROR_PAUSE: Duration = Duration::from_secs(5);

struct Discovery {
    since: Option<Timestamp>,
    cursor: Option<Lane>,
    sweep_at: Instant,
    prune_at: Instant,
}

pub(crate) async fn run<T, H>(shared: Arc<Shared<T, H>>, mut stop: watch::Receiver<bool>)
where
    T: Send + 'static,
    H: Handler<T>,
{
    let now = Instant::now();
    let mut discovery = Discovery { since: None, cursor: None, sweep_at: now, prune_at: now };
    let mut error_pause = ERROR_PAUSE;
    while !*stop.borrow() {
        let began = Instant::now();
        let rest = match discovery.look(&shared).await {
            Ok(()) => {
                error_pause = ERROR_PAUSE;
                COALESCE.max(began.elapsed() * FRESH_REST)
            }
            Err(error) => {
                shared.meter.database_errors.increment(1);
                let queue = shared.queue.name;
                if error.is_passing() {
                    tracing::warn!(queue, %error, "cannot look for work");
                } else {
                    tracing::error!(queue, %error, "cannot look for work");
                }
                error_pause = (error_pause * 2).min(LONGEST_ERROR_PAUSE);
                error_pause
            }
        };
        shared.desk.work.notify_waiters();
        let until_sweep = discovery.sweep_at.saturating_duration_since(Instant::now());
        tokio::select! {
            () = said(&mut stop) => {}
            () = async {
                tokio::time::sleep(rest).await;
                // A nudge that came during the look or the rest was kept: it is heard here.
                let nudged = shared.desk.look.notified();
                let _ = tokio::time::timeout(shared.options.poll.min(until_sweep), nudged).await;
            } => {}
        }
    }
}

impl Discovery {
    async fn look<T, H>(&mut self, shared: &Shared<T, H>) -> Result<(), Error> {
        let fresh = shared.queue.fresh(&shared.pool, self.since).await?;
        self.since = Some(fresh.since);
        for (lane, rows, from) in fresh.lanes {
            let destination = (shared.queue.destination)(&lane).into();
            lock(&shared.desk.lanes).learn(&destination, lane, Some(rows), Some(from));
        }
        // Few lanes and more to sweep: the slots would idle for want of knowledge.
        let few = lock(&shared.desk.lanes).len() < self.enough(shared);
        if Instant::now() >= self.sweep_at || (few && self.cursor.is_some()) {
            self.sweep(shared).await?;
        }
        let lanes = lock(&shared.desk.lanes).len();
        shared.meter.lanes.set(crate::meter::number(lanes as u64));
        Ok(())
    }

    fn enough<T, H>(&self, shared: &Shared<T, H>) -> usize {
        let batch = usize::try_from(shared.options.batch).unwrap_or(usize::MAX);
        batch.saturating_mul(shared.options.slots).saturating_mul(2).min(shared.options.max_lanes)
    }

    async fn sweep<T, H>(&mut self, shared: &Shared<T, H>) -> Result<(), Error> {
        let began = Instant::now();
        if self.cursor.is_none() {
            let first = shared.queue.sweep(&shared.pool, None, PAGE, FIRST_LOOK).await?;
            note(shared, &first);
            shared.desk.work.notify_waiters();
        }
        let page = shared.queue.sweep(&shared.pool, self.cursor.as_ref(), PAGE, i32::MAX).await?;
        let noted = note(shared, &page);
        let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        let took = began.elapsed();
        if noted < page.len() {
            // No room: go on from here when there is.
            self.cursor = noted
                .checked_sub(1)
                .and_then(|last| page.get(last).cloned())
                .or(self.cursor.take());
            self.sweep_at = Instant::now() + shared.options.poll.max(took * SWEEP_REST);
        } else if full {
            self.cursor = page.last().cloned();
            self.sweep_at = Instant::now() + took * SWEEP_REST;
        } else {
            self.cursor = None;
            self.sweep_at = Instant::now() + shared.options.sweep.max(took * SWEEP_REST);
            if Instant::now() >= self.prune_at {
                self.prune_at = Instant::now() + PRUNE_EVERY;
                shared.queue.prune(&shared.pool).await?;
            }
        }
        Ok(())
    }
}

/// Notes lanes until there is no room, and returns how many.
fn note<T, H>(shared: &Shared<T, H>, lanes: &[Lane]) -> usize {
    let known = |lane: &&Lane| {
        let destination = (shared.queue.destination)(lane).into();
        lock(&shared.desk.lanes).learn(&destination, (*lane).clone(), None, None)
    };
    lanes.iter().take_while(known).count()
}
