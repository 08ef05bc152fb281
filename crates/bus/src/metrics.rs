//! What the bus counts, under names that stay.
//!
//! Handles come from the recorder of the role that uses the bus, so that two roles in one process count
//! apart. Labels come from closed sets.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};

use crate::{Committed, PublishError};

const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

const PUBLISHED: (&str, &str) = ("holdfast_bus_published_total", "Messages published, by outcome.");
const SETTLED: (&str, &str) = ("holdfast_bus_settled_total", "Messages settled, by outcome.");

/// The bus's counters. Clones count together.
#[derive(Clone)]
pub struct Metrics {
    confirmed: Counter,
    unroutable: Counter,
    refused: Counter,
    unconfirmed: Counter,
    not_sent: Counter,
    publish: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) blocked: Gauge,
    pub(crate) connects: Counter,
    pub(crate) consumed: Counter,
    pub(crate) redelivered: Counter,
    done: Counter,
    retried: Counter,
    deferred: Counter,
    dead_lettered: Counter,
    returned: Counter,
}

impl Metrics {
    /// Registers with a recorder.
    pub fn new(recorder: &dyn Recorder) -> Metrics {
        let counter = |(name, help): (&'static str, &'static str),
                       outcome: Option<&'static str>| {
            recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
            let labels: Vec<Label> =
                outcome.into_iter().map(|value| Label::new("outcome", value)).collect();
            recorder.register_counter(&Key::from_parts(name, labels), &META)
        };
        let gauge = |name: &'static str, help: &'static str| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
            recorder.register_gauge(&Key::from_static_name(name), &META)
        };
        let seconds = "holdfast_bus_publish_seconds";
        recorder.describe_histogram(
            KeyName::from_const_str(seconds),
            None,
            "Time from a batch's publish to its last confirm.".into(),
        );
        Metrics {
            confirmed: counter(PUBLISHED, Some("confirmed")),
            unroutable: counter(PUBLISHED, Some("unroutable")),
            refused: counter(PUBLISHED, Some("refused")),
            unconfirmed: counter(PUBLISHED, Some("unconfirmed")),
            not_sent: counter(PUBLISHED, Some("not_sent")),
            publish: recorder.register_histogram(&Key::from_static_name(seconds), &META),
            in_flight: gauge("holdfast_bus_in_flight", "Messages sent and not yet confirmed."),
            blocked: gauge("holdfast_bus_blocked", "1 while the broker blocks publishing."),
            connects: counter(("holdfast_bus_connects_total", "Connections made."), None),
            consumed: counter(("holdfast_bus_consumed_total", "Messages delivered."), None),
            redelivered: counter(
                ("holdfast_bus_redelivered_total", "Messages delivered again without a verdict."),
                None,
            ),
            done: counter(SETTLED, Some("done")),
            retried: counter(SETTLED, Some("retried")),
            deferred: counter(SETTLED, Some("deferred")),
            dead_lettered: counter(SETTLED, Some("dead_lettered")),
            returned: counter(SETTLED, Some("returned")),
        }
    }

    /// Counts nothing.
    pub fn none() -> Metrics {
        Metrics::new(&metrics::NoopRecorder)
    }

    pub(crate) fn published(&self, results: &[Result<(), PublishError>], took: Duration) {
        for result in results {
            let counter = match result {
                Ok(()) => &self.confirmed,
                Err(PublishError::Unroutable { .. }) => &self.unroutable,
                Err(PublishError::Refused | PublishError::Rejected { .. }) => &self.refused,
                Err(PublishError::Unconfirmed(_)) => &self.unconfirmed,
                Err(_) => &self.not_sent,
            };
            counter.increment(1);
        }
        self.publish.record(took.as_secs_f64());
    }

    pub(crate) fn settled(&self, committed: &Committed) {
        self.done.increment(committed.done);
        self.retried.increment(committed.retried);
        self.deferred.increment(committed.deferred);
        self.dead_lettered.increment(committed.dead_lettered);
        self.returned.increment(committed.returned);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
