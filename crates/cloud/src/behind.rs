//! How far the consumers are behind: what waits for each of them on the bus, who is there to take it, and since when it has not gone down.
//!
//! Promises: the bus is asked in the background and at most every few seconds, never while somebody waits for an answer. What is not known is said to be so, with
//! the reason. It takes nothing from the bus and joins no group.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Depth;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use lease::breaker;
use metrics::{Gauge, describe_gauge, gauge};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// How often the bus is asked.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// One that takes longer to answer is not known.
const LOOK_WITHIN: Duration = Duration::from_secs(30);
/// Something that waits for so long without going down is said at `/readyz`.
const STILL_AFTER_S: f64 = 60.0;
/// The part of [`Readiness`] that it speaks for.
const PART: &str = "consumers";

/// Asks the bus what waits.
pub(crate) type Ask =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Vec<Depth>, String>> + Send + Sync>;

/// One consumer queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// Messages that no consumer has settled; none is said to a token that does not see every tenant.
    pub(crate) waiting: Option<u64>,
    /// `None`: the bus does not say.
    pub(crate) consumers: Option<u64>,
    /// Since when something waits and it has not become less.
    pub(crate) still_since: Option<Timestamp>,
}

/// Whether the relay leaves the bus alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Breaker {
    Closed,
    HalfOpen,
    Open,
}

impl From<breaker::State> for Breaker {
    fn from(state: breaker::State) -> Breaker {
        match state {
            breaker::State::Closed => Breaker::Closed,
            breaker::State::HalfOpen => Breaker::HalfOpen,
            breaker::State::Open { .. } => Breaker::Open,
        }
    }
}

/// What is known now.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Known {
    /// By the name of each queue.
    pub(crate) queues: Vec<Queue>,
    /// When the bus was last asked and answered.
    pub(crate) at: Option<Timestamp>,
    /// Why what waits is not known.
    pub(crate) unknown: Option<String>,
    /// The relay's breaker; `None` where this process has no relay.
    pub(crate) breaker: Option<Breaker>,
}

/// What is known, for all who want to know it. Cloning it shares it.
#[derive(Debug, Clone)]
pub(crate) struct Behind(Arc<Mutex<Known>>);

impl Default for Behind {
    fn default() -> Behind {
        let unknown = Some("the bus has not been asked yet".to_owned());
        Behind(Arc::new(Mutex::new(Known { queues: Vec::new(), at: None, unknown, breaker: None })))
    }
}

impl Behind {
    /// What is known, for a token of all tenants or of some: counts are those of all tenants together.
    pub(crate) fn known(&self, all_tenants: bool) -> Known {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !all_tenants {
            known.queues.iter_mut().for_each(|queue| queue.waiting = None);
        }
        known
    }

    /// Says why nothing can be known here.
    pub(crate) fn cannot_know(&self, why: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unknown = Some(why.to_owned());
    }

    /// Asks the bus and the relay from time to time, for ever.
    pub(crate) async fn watch(
        &self,
        mut ask: Ask,
        breaker: impl Fn() -> Option<Breaker>,
        metrics: &Metrics,
        readiness: &Readiness,
    ) {
        let mut gauges = Gauges::default();
        let mut turn = tokio::time::interval(LOOK_EVERY);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let answer = tokio::time::timeout(LOOK_WITHIN, ask()).await;
            let answer = answer.unwrap_or_else(|_| Err("the bus does not answer".to_owned()));
            let now = Timestamp::now();
            let known = {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                known.breaker = breaker();
                known.take(answer, now);
                known.clone()
            };
            metrics.counting(|| gauges.show(&known, now));
            readiness.note(PART, known.note(now));
        }
    }
}

impl Known {
    /// Takes an answer of the bus. Pure.
    fn take(&mut self, answer: Result<Vec<Depth>, String>, now: Timestamp) {
        let depths = match answer {
            Ok(depths) => depths,
            // What was known before may be long untrue.
            Err(why) => {
                (self.queues, self.unknown) = (Vec::new(), Some(why));
                return;
            }
        };
        let before = std::mem::take(&mut self.queues);
        let queue = |Depth { name, waiting, consumers }| {
            let last = before.iter().find(|queue: &&Queue| queue.name == name);
            let less = last.and_then(|last| last.waiting).is_none_or(|before| waiting < before);
            let still_since = match (waiting, last.and_then(|last| last.still_since)) {
                (0, _) => None,
                (_, Some(since)) if !less => Some(since),
                _ => Some(now),
            };
            Queue { name, waiting: Some(waiting), consumers, still_since }
        };
        self.queues = depths.into_iter().map(queue).collect();
        (self.at, self.unknown) = (Some(now), None);
    }

    /// What an operator should see at `/readyz`.
    fn note(&self, now: Timestamp) -> Option<String> {
        let still = |queue: &&Queue| queue.still_s(now) >= STILL_AFTER_S;
        let queue = self.queues.iter().find(still)?;
        let waiting = queue.waiting.unwrap_or(0);
        Some(match queue.consumers {
            Some(0) => format!("{waiting} wait in {} and nobody consumes them", queue.name),
            _ => format!("{waiting} wait in {} and it does not go down", queue.name),
        })
    }
}

impl Queue {
    fn still_s(&self, now: Timestamp) -> f64 {
        self.still_since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
    }
}

/// What Prometheus is shown.
#[derive(Default)]
struct Gauges(Vec<(String, [Gauge; 3])>);

impl Gauges {
    /// What is not known is not a number, which no rule takes for one.
    fn show(&mut self, known: &Known, now: Timestamp) {
        for (name, gauges) in &self.0 {
            if !known.queues.iter().any(|queue| queue.name == *name) {
                gauges.iter().for_each(|gauge| gauge.set(f64::NAN));
            }
        }
        for queue in &known.queues {
            let [waiting, consumers, still] = self.of(&queue.name);
            waiting.set(queue.waiting.map_or(f64::NAN, number));
            consumers.set(queue.consumers.map_or(f64::NAN, number));
            still.set(queue.still_s(now));
        }
    }

    fn of(&mut self, name: &str) -> &[Gauge; 3] {
        let at = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            let names = [
                ("holdfast_bus_queue_waiting", "Messages of a queue that no consumer has settled."),
                ("holdfast_bus_queue_consumers", "Consumers of a queue."),
                (
                    "holdfast_bus_queue_still_seconds",
                    "For how long something waits in a queue and has not become less.",
                ),
            ];
            let made = names.map(|(metric, help)| {
                describe_gauge!(metric, help);
                gauge!(metric, "queue" => name.to_owned())
            });
            self.0.push((name.to_owned(), made));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

#[expect(clippy::cast_precision_loss, reason = "no queue holds 2^53 messages")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn look(behind: &Behind, second: i64, waiting: u64, consumers: u64) -> Known {
        let depth = Depth { name: "store".to_owned(), waiting, consumers: Some(consumers) };
        behind.0.lock().unwrap().take(Ok(vec![depth]), at(second));
        behind.known(true)
    }

    #[test]
    fn what_waits_is_still_until_it_becomes_less() {
        let behind = Behind::default();
        assert!(behind.known(true).unknown.is_some(), "nobody has asked yet");
        assert_eq!(look(&behind, 0, 0, 1).queues[0].still_since, None);
        assert_eq!(look(&behind, 3, 5, 1).queues[0].still_since, Some(at(3)));
        assert_eq!(look(&behind, 6, 5, 0).queues[0].still_since, Some(at(3)));
        let known = look(&behind, 63, 90, 0);
        assert_eq!(known.queues[0].still_since, Some(at(3)), "it grows");
        assert!(known.note(at(62)).is_none());
        assert!(known.note(at(63)).unwrap().contains("nobody consumes"), "{known:?}");
        let known = look(&behind, 66, 89, 1);
        assert_eq!(known.queues[0].still_since, Some(at(66)), "it goes down");
        assert!(known.note(at(66)).is_none());
        assert_eq!(behind.known(false).queues[0].waiting, None, "it is of all tenants");
        behind.0.lock().unwrap().take(Err("away".to_owned()), at(69));
        let known = behind.known(true);
        assert_eq!((known.queues.len(), known.unknown.as_deref()), (0, Some("away")));
        assert_eq!(known.at, Some(at(66)), "when it was last known");
        assert_eq!(look(&behind, 72, 89, 1).queues[0].still_since, Some(at(72)), "known anew");
    }
}
