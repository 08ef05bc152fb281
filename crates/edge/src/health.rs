//! Whether the edge is alive, ready, and moving data.
//!
//! Promise: not ready when the database or the broker is away, and also when both are there but
//! messages have been waiting for their commit longer than the threshold: connected and not
//! draining is an alarm.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

/// What receive, commit and the health endpoints share.
#[derive(Debug)]
pub(crate) struct Health {
    metrics: Arc<Metrics>,
    waiting: Mutex<Waiting>,
    connected: [AtomicBool; 2],
    not_draining: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: usize,
    /// Since when nothing has been committed although something was waiting.
    since: Option<Instant>,
}

/// The edge's two connections to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Batches and status, and the acks that go out.
    Batches = 0,
    /// Bare events.
    Events = 1,
}

impl Health {
    /// A process without ingress has no broker to be away from.
    pub(crate) fn new(metrics: Arc<Metrics>, has_ingress: bool) -> Health {
        Health {
            metrics,
            waiting: Mutex::default(),
            connected: [AtomicBool::new(!has_ingress), AtomicBool::new(!has_ingress)],
            not_draining: Mutex::default(),
        }
    }

    pub(crate) fn received(&self, now: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.messages += 1;
        waiting.since.get_or_insert(now);
        self.metrics.waiting.increment(1.0);
    }

    pub(crate) fn committed(&self, messages: usize, now: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.messages = waiting.messages.saturating_sub(messages);
        waiting.since = (waiting.messages > 0).then_some(now);
        #[expect(clippy::cast_precision_loss, reason = "a gauge of some thousands")]
        self.metrics.waiting.decrement(messages as f64);
    }

    /// How long messages have waited without any commit.
    pub(crate) fn stalled(&self, now: Instant) -> Option<Duration> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.since.map(|since| now.saturating_duration_since(since))
    }

    pub(crate) fn set_connected(&self, line: Line, connected: bool) {
        if connected {
            self.metrics.broker_connected();
        }
        self.connected[line as usize].store(connected, Ordering::Relaxed);
    }

    /// The forwarder says, in a few words for anyone, why nothing leaves for the cloud; or that it does.
    pub(crate) fn set_not_draining(&self, problem: Option<String>) {
        *self.not_draining.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(crate) fn not_draining(&self) -> Option<String> {
        self.not_draining.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn connected(&self) -> bool {
        self.connected.iter().all(|line| line.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_without_a_commit_is_a_stall_and_any_commit_ends_it() {
        let health = Health::new(Arc::new(Metrics::new()), true);
        let start = Instant::now();
        assert_eq!(health.stalled(start), None);
        health.received(start);
        health.received(start + Duration::from_secs(5));
        let later = start + Duration::from_secs(9);
        assert_eq!(health.stalled(later), Some(Duration::from_secs(9)));
        health.committed(1, later);
        assert_eq!(health.stalled(later), Some(Duration::ZERO), "one is still waiting");
        health.committed(1, later);
        assert_eq!(health.stalled(later), None);
    }
}
