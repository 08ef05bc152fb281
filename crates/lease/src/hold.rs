//! Holding a batch while its handler works: the heartbeat, the stop, the panic.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::id::RowId;
use crate::queue::{Batch, Handler, Outcome, Verdict};
use crate::store::Hold;
use crate::worker::{Shared, said};

impl<T, H> Shared<T, H>
where
    T: Send + 'static,
    H: Handler<T>,
{
    /// Runs the handler and renews the lease at 60 % of it. `None` when a stop came first.
    pub(crate) async fn hold(
        &self,
        batch: Batch<T>,
        hold: &Hold,
        rows: &[(usize, RowId)],
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Verdict> {
        let (handler, items) = (self.handler.clone(), batch.items.len());
        let began = Instant::now();
        self.meter.held.increment(crate::meter::number(rows.len() as u64));
        // In a set, because a set that is dropped ends its tasks.
        let mut task = JoinSet::new();
        task.spawn(async move { handler.handle(batch).await });
        let verdict = self.wait_for(task, items, hold, rows, stop).await;
        self.meter.held.decrement(crate::meter::number(rows.len() as u64));
        self.meter.handle_took(began.elapsed());
        verdict
    }

    async fn wait_for(
        &self,
        mut task: JoinSet<Verdict>,
        items: usize,
        hold: &Hold,
        rows: &[(usize, RowId)],
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Verdict> {
        let beat = self.options.lease * 3 / 5;
        let mut next_beat = beat;
        let mut grace: Option<tokio::time::Instant> = None;
        loop {
            let overdue = async {
                match grace {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = task.join_next() => {
                    let error = match ended {
                        Ok(verdict) => return Some(verdict),
                        Err(error) => error,
                    };
                    tracing::error!(queue = self.queue.name, rows = items, %error, "a handler panicked");
                    let (code, message) = (crate::HANDLER_PANIC, "the handler panicked");
                    let retry = Outcome::Retry { code: code.to_owned(), message: message.to_owned() };
                    return Some(Verdict::each(vec![retry; items]));
                }
                () = tokio::time::sleep(next_beat) => {
                    next_beat = self.beat(hold, rows, beat).await;
                }
                () = said(stop), if grace.is_none() => {
                    grace = Some(tokio::time::Instant::now() + self.options.stop_grace);
                }
                () = overdue => {
                    // Rows may go back only when nobody works on them any more.
                    task.shutdown().await;
                    return None;
                }
            }
        }
    }

    /// Renews the lease; returns when to do so again.
    async fn beat(&self, hold: &Hold, rows: &[(usize, RowId)], beat: Duration) -> Duration {
        let queue = self.queue.name;
        self.meter.renewals.increment(1);
        match self.queue.renew(&self.pool, hold, rows, self.options.lease).await {
            Ok(true) => beat,
            Ok(false) => {
                tracing::warn!(queue, held = rows.len(), "others took held rows over");
                beat
            }
            Err(error) => {
                self.meter.database_errors.increment(1);
                tracing::warn!(queue, %error, "a lease was not renewed");
                beat / 10
            }
        }
    }
}
