//! The worker's iterations: each looks for sessions that are complete, and lasts until the next one looks. Each says in the log when it starts and when it
//! ends; where nothing was done, only to whoever wants to know all (`debug`).
//!
//! Promises: what was done is in the end line of one iteration, of the one in which it was done, also where the worker is stopped. A database that is away
//! is said each time. It must not know how sessions are processed: it is told what became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinHandle;

use super::Settings;
use super::finalize::finalize;
use super::heartbeat::beat;
use super::record::Recorded;

/// What the iteration under way has done so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The number of the iteration under way, from 1.
    iteration: AtomicU64,
    complete: AtomicU64,
    done: AtomicU64,
    versions: AtomicU64,
    events: AtomicU64,
    notifications: AtomicU64,
    failed: AtomicU64,
    put_back: AtomicU64,
}

impl Tally {
    /// A session was processed. Whether it is done then is the fence's to say.
    pub(super) fn recorded(&self, recorded: &Recorded) {
        match recorded {
            Recorded::Fenced => return add(&self.0.put_back, 1),
            Recorded::Created { events, notifications, .. } => {
                add(&self.0.versions, 1);
                add(&self.0.events, *events as u64);
                add(&self.0.notifications, *notifications as u64);
            }
            Recorded::Unchanged | Recorded::Existing | Recorded::Superseded => {}
        }
        add(&self.0.done, 1);
    }

    /// A session was failed for good.
    pub(super) fn failed(&self) {
        add(&self.0.failed, 1);
    }

    /// A session was left for later, or for whoever has taken it over.
    pub(super) fn put_back(&self) {
        add(&self.0.put_back, 1);
    }

    fn start(&self, complete: u64) {
        let iteration = self.0.iteration.fetch_add(1, Ordering::Relaxed) + 1;
        add(&self.0.complete, complete);
        if complete > 0 {
            tracing::info!(iteration, complete, "iteration started");
        } else {
            tracing::debug!(iteration, complete, "iteration started");
        }
    }

    /// Says what the iteration under way has done, and forgets it. To be called when another starts, or none will.
    pub(super) fn end(&self) {
        let counts = &self.0;
        let iteration = counts.iteration.load(Ordering::Relaxed);
        if iteration == 0 {
            return;
        }
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let (complete, done, failed) =
            (take(&counts.complete), take(&counts.done), take(&counts.failed));
        let (versions, events) = (take(&counts.versions), take(&counts.events));
        let (notifications, put_back) = (take(&counts.notifications), take(&counts.put_back));
        if complete + done + failed + put_back > 0 {
            tracing::info!(
                iteration,
                complete,
                done,
                failed,
                put_back,
                versions,
                events,
                notifications,
                "iteration ended"
            );
        } else {
            tracing::debug!(iteration, "iteration ended");
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Iterates until it is dropped.
#[derive(Debug)]
pub(super) struct Iterations(JoinHandle<()>);

impl Iterations {
    /// To be called where metrics are counted: see [`crate::metrics::Metrics::counting`].
    pub(super) fn start(pool: pg::Pool, settings: &Settings, tally: Tally) -> Iterations {
        let Settings { name, poll, idle_timeout, heartbeat: file, .. } = settings.clone();
        let complete = ::metrics::counter!("holdfast_schedule_complete_total");
        Iterations(tokio::spawn(async move {
            loop {
                let finalized = async { finalize(&*pool.get().await?, idle_timeout).await };
                let finalized = finalized.await;
                tally.end();
                tally.start(*finalized.as_ref().unwrap_or(&0));
                match finalized {
                    Ok(sessions) => complete.increment(sessions),
                    Err(error) => {
                        tracing::warn!(%error, "iteration failed: cannot look for complete sessions");
                    }
                }
                if let Some(file) = &file {
                    beat(file, &name).await;
                }
                tokio::time::sleep(poll).await;
            }
        }))
    }
}

impl Drop for Iterations {
    fn drop(&mut self) {
        self.0.abort();
    }
}
