//! Exchanges, queues and bindings, as data. Pure.
//!
//! The tables of `docs/spec/bus.md` are written once, here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};

use crate::{Binding, Retry};

/// Deliveries that come back without a verdict before the broker gives a message up.
const WORK_DELIVERY_LIMIT: i32 = 20;
/// Looking at a dead letter is a delivery; it must never be what discards it.
const DEAD_LETTER_DELIVERY_LIMIT: i32 = 1_000_000_000;
const QUEUE_SUFFIX: &str = ".queue";

/// A work queue with its retry queues and its dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQueue {
    /// `farmiq.{service}.{purpose}.queue`.
    pub name: String,
    /// `farmiq.{service}.dlq.queue`; work queues of one service share it.
    pub dead_letter_queue: String,
    /// What it wants.
    pub bindings: Vec<Binding>,
    /// When a failed message comes again; one retry queue for each delay.
    pub retry: Retry,
}

/// Everything the broker must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Exchanges that are published to; those of the bindings are included by themselves.
    pub exchanges: Vec<String>,
    /// The work queues.
    pub queues: Vec<WorkQueue>,
}

/// The retry queue of a work queue for a delay: `farmiq.{service}.{purpose}-retry-{delay}.queue`.
pub fn retry_queue(work_queue: &str, delay: Duration) -> String {
    let stem = work_queue.strip_suffix(QUEUE_SUFFIX).unwrap_or(work_queue);
    let ms = delay.as_millis();
    if ms.is_multiple_of(1000) {
        format!("{stem}-retry-{}s{QUEUE_SUFFIX}", ms / 1000)
    } else {
        format!("{stem}-retry-{ms}ms{QUEUE_SUFFIX}")
    }
}

/// True when `queue` is one of the retry queues of `work_queue`, of today's delays or earlier ones.
pub(crate) fn is_retry_queue(queue: &str, work_queue: &str) -> bool {
    let stem = work_queue.strip_suffix(QUEUE_SUFFIX).unwrap_or(work_queue);
    queue.strip_prefix(stem).is_some_and(|rest| rest.starts_with("-retry-"))
}

impl Topology {
    /// Everything that [`declare`](super::declare()) makes: what it is, and its name.
    pub fn names(&self) -> Vec<(&'static str, String)> {
        let exchanges = self.exchange_names().into_iter().map(|name| ("exchange", name.to_owned()));
        exchanges.chain(self.queues().into_iter().map(|(name, _)| ("queue", name))).collect()
    }

    pub(crate) fn exchange_names(&self) -> BTreeSet<&str> {
        let bound = self.queues.iter().flat_map(|queue| &queue.bindings);
        bound.map(|binding| &binding.exchange).chain(&self.exchanges).map(String::as_str).collect()
    }

    /// Every queue with its arguments. Dead-letter queues come first and work queues last, so that a queue is
    /// declared after those it dead-letters to and before anything can reach it.
    pub(crate) fn queues(&self) -> Vec<(String, FieldTable)> {
        let mut all = BTreeMap::new();
        for queue in &self.queues {
            all.insert((0, queue.dead_letter_queue.clone()), dead_letter_arguments());
            for delay in queue.retry.delays() {
                let name = retry_queue(&queue.name, *delay);
                all.insert((1, name), retry_arguments(&queue.name, *delay));
            }
            all.insert((2, queue.name.clone()), work_arguments(&queue.dead_letter_queue));
        }
        all.into_iter().map(|((_, name), arguments)| (name, arguments)).collect()
    }
}

fn table<const N: usize>(arguments: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert(name.into(), value);
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn dead_letter_arguments() -> FieldTable {
    table([
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongInt(DEAD_LETTER_DELIVERY_LIMIT)),
    ])
}

fn work_arguments(dead_letter_queue: &str) -> FieldTable {
    table([
        ("x-queue-type", text("quorum")),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(dead_letter_queue)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-delivery-limit", AMQPValue::LongInt(WORK_DELIVERY_LIMIT)),
    ])
}

fn retry_arguments(work_queue: &str, delay: Duration) -> FieldTable {
    // `Retry` keeps delays below a day, which fits.
    let ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
    table([
        ("x-queue-type", text("quorum")),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(work_queue)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-message-ttl", AMQPValue::LongLongInt(ms)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_queues_keep_to_the_naming_of_queues() {
        let work = "farmiq.cloud-telemetry-service.ingest.queue";
        let name = retry_queue(work, Duration::from_secs(10));
        assert_eq!(name, "farmiq.cloud-telemetry-service.ingest-retry-10s.queue");
        let short = retry_queue(work, Duration::from_millis(1500));
        assert_eq!(short, "farmiq.cloud-telemetry-service.ingest-retry-1500ms.queue");
        assert!(is_retry_queue(&name, work) && is_retry_queue(&short, work));
        assert!(!is_retry_queue(work, work));
        assert!(!is_retry_queue(&name, "farmiq.cloud-telemetry-service.agg.queue"));
    }

    #[test]
    fn a_queue_is_declared_after_what_it_dead_letters_to() {
        let queue = |purpose: &str| WorkQueue {
            name: format!("farmiq.s.{purpose}.queue"),
            dead_letter_queue: "farmiq.s.dlq.queue".to_owned(),
            bindings: vec![Binding::new("farmiq.telemetry.exchange", "#")],
            retry: Retry::broker(),
        };
        let topology =
            Topology { exchanges: vec!["x".to_owned()], queues: vec![queue("a"), queue("b")] };
        let names: Vec<String> = topology.queues().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 1 + 2 * 3 + 2);
        assert_eq!(names[0], "farmiq.s.dlq.queue");
        assert_eq!(names[7..], ["farmiq.s.a.queue", "farmiq.s.b.queue"]);
        assert_eq!(topology.exchange_names(), ["farmiq.telemetry.exchange", "x"].into());
    }
}
