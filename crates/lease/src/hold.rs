//! Holding a batch while its handler works: the heartbeat, the stop, the panic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::queue::{Batch, Handler, Outcome, Verdict};
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
        ids: &[Arc<str>],
        token: Uuid,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Verdict> {
        let (handler, rows) = (self.handler.clone(), batch.items.len());
        let began = Instant::now();
        self.meter.held.increment(crate::meter::number(ids.len() as u64));
        // In a set, because a set that is dropped ends its tasks.
        let mut task = JoinSet::new();
        task.spawn(async move { handler.handle(batch).await });
        let verdict = self.wait_for(task, rows, ids, token, stop).await;
        self.meter.held.decrement(crate::meter::number(ids.len() as u64));
        self.meter.handle_took(began.elapsed());
        verdict
    }

    async fn wait_for(
        &self,
        mut task: JoinSet<Verdict>,
        rows: usize,
        ids: &[Arc<str>],
        token: Uuid,
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
                    tracing::error!(queue = self.queue.name, rows, %error, "a handler panicked");
                    let (code, message) = (crate::HANDLER_PANIC, "the handler panicked");
                    let retry = Outcome::Retry { code: code.to_owned(), message: message.to_owned() };
                    return Some(Verdict::each(vec![retry; rows]));
                }
                () = tokio::time::sleep(next_beat) => {
                    next_beat = self.beat(ids, token, beat).await;
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
    async fn beat(&self, ids: &[Arc<str>], token: Uuid, beat: Duration) -> Duration {
        let queue = self.queue.name;
        self.meter.renewals.increment(1);
        match self.queue.renew(&self.pool, ids, token, self.options.lease).await {
            Ok(renewed) if renewed == ids.len() as u64 => beat,
            Ok(renewed) => {
                tracing::warn!(queue, held = ids.len(), renewed, "others took held rows over");
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
