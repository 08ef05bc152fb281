//! The one way to the cloud that all workers of a process share: a request goes out if the link
//! lets it, and what it meets is noted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::trace::Traceparent;
use jiff::Timestamp;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::cloud::{Answer, Body, Cloud};
use super::link::{Leave, Link};
use super::store::Store;
use crate::metrics::Metrics;

/// What the workers share.
pub(super) struct Line {
    pub(super) cloud: Cloud,
    pub(super) store: Store,
    pub(super) metrics: Arc<Metrics>,
    pub(super) cluster_id: String,
    link: Mutex<Link>,
    started: Instant,
    resumed: OnceCell<()>,
}

/// What became of a request.
pub(super) enum Met {
    /// The cloud spoke about the events. With the trace, and the time of the answer.
    Answer(Answer, Traceparent, Timestamp),
    /// The link is down; nothing is known of the events.
    Down(Down),
}

/// Why the link is down, and for how long it is left alone.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) why: String,
    pub(super) pause: Duration,
}

impl Line {
    pub(super) fn new(
        cloud: Cloud,
        store: Store,
        metrics: Arc<Metrics>,
        cluster_id: String,
        link: Link,
    ) -> Line {
        metrics.sync.up.set(1.0);
        let (link, started, resumed) = (Mutex::new(link), Instant::now(), OnceCell::new());
        Line { cloud, store, metrics, cluster_id, link, started, resumed }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Since when the link has been up; `None` while it is down.
    pub(super) fn up_since(&self) -> Option<Duration> {
        self.link().up_since()
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first request: a restart must not hammer a cloud that asked to be left alone.
    async fn resume(&self) {
        match self.store.pause().await {
            Ok((0, _)) => {}
            Ok((failures, left)) => {
                tracing::info!(failures, ?left, "the pause of the last run is kept");
                self.metrics.sync.up.set(0.0);
                let now = self.now();
                self.link().resume(now, failures, left);
            }
            Err(error) => tracing::warn!(%error, "sync_state could not be read"),
        }
    }

    /// Sends a request for these tenants, unless the link is down.
    pub(super) async fn request(&self, body: &Body<'_>, tenants: &[Uuid]) -> Met {
        self.resumed.get_or_init(|| self.resume()).await;
        let leave = self.link().ask(self.now());
        if let Leave::Wait(pause) = leave {
            return Met::Down(Down { why: "the link is paused".to_owned(), pause });
        }
        let (trace, began) = (Traceparent::mint(), Instant::now());
        let answer = self.cloud.post(body, trace).await;
        let answered_at = Timestamp::now();
        self.metrics.sync.answer(answer.label(), began.elapsed());
        match answer {
            Answer::Down { why, retry_after, .. } => {
                Met::Down(self.failed(leave, why, retry_after, tenants).await)
            }
            // A proxy may have a smaller limit than the cloud, but only the cloud can say that one
            // event is too large for it.
            Answer::TooLarge(None) if body.is_single() => {
                let why = "something between here and the cloud refuses a single event".to_owned();
                Met::Down(self.failed(leave, why, None, tenants).await)
            }
            answer => {
                let reply = matches!(answer, Answer::Reply(_));
                let recovered = self.link().answered(self.now(), leave, reply);
                if recovered {
                    tracing::info!("the cloud is back");
                    self.metrics.sync.up.set(1.0);
                    if let Err(error) = self.store.recovered().await {
                        tracing::warn!(%error, "sync_state could not be written");
                    }
                }
                let trace_id = trace.trace_id();
                tracing::debug!(
                    trace_id,
                    batch_id = body.batch_id,
                    answer = answer.label(),
                    "sent"
                );
                Met::Answer(answer, trace, answered_at)
            }
        }
    }

    /// The cloud answers, but so that no event can be held to blame.
    pub(super) async fn distrust(&self, why: &str, tenants: &[Uuid]) -> Down {
        self.failed(Leave::Go, why.to_owned(), None, tenants).await
    }

    async fn failed(
        &self,
        leave: Leave,
        why: String,
        asked: Option<Duration>,
        tenants: &[Uuid],
    ) -> Down {
        let (pause, counted) = self.link().failed(self.now(), leave, asked, rand::random::<f64>());
        if counted {
            tracing::warn!(why, ?pause, "the cloud is not reached; rows wait untouched");
            self.metrics.sync.up.set(0.0);
            if let Err(error) = self.store.failed(tenants, pause, &why).await {
                tracing::warn!(%error, "sync_state could not be written");
            }
        }
        Down { why, pause }
    }
}
