//! What the forwarder counts. docs/spec/sync-forwarder.md names and explains each.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use crate::metrics::{META, counter};

const EVENTS: [&str; 4] = ["accepted", "duplicate", "rejected", "unsendable"];
const ANSWERS: [&str; 8] = [
    "ok",
    "malformed",
    "too_large",
    "unauthorized",
    "rate_limited",
    "unavailable",
    "unreachable",
    "unreadable",
];
const TOMBSTONES: [&str; 2] = ["accepted", "rejected"];
const WORK: [&str; 7] = ["claimed", "reclaimed", "done", "retried", "buried", "released", "fenced"];

type Labelled = BTreeMap<&'static str, Counter>;

/// The forwarder's metrics.
pub(crate) struct Meter {
    events: Labelled,
    requests: Labelled,
    tombstones: Labelled,
    work: Labelled,
    pub(super) batch: Histogram,
    pub(super) live_rows: Gauge,
    pub(super) bulk_rows: Gauge,
    pub(super) oldest: Gauge,
    pub(super) up: Gauge,
    pub(super) drain: Gauge,
    pub(super) not_shrinking: Gauge,
    pub(super) not_draining: Gauge,
}

impl Meter {
    pub(crate) fn new(recorder: &PrometheusRecorder) -> Meter {
        let labelled = |name, help, label: &'static str, values: &[&'static str]| {
            let each = values.iter().map(|value| {
                let labels = vec![Label::new(label, *value)];
                (*value, counter(recorder, name, help, labels))
            });
            each.collect::<Labelled>()
        };
        let gauge = |name: &'static str, help: &'static str, labels: Vec<Label>| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
            recorder.register_gauge(&Key::from_parts(name, labels), &META)
        };
        let rows = |part| {
            let help = "Rows of the outbox that wait or are held, by part.";
            gauge("holdfast_sync_rows", help, vec![Label::new("part", part)])
        };
        let batch = "holdfast_sync_batch_seconds";
        let help = "Time of one request to the cloud.";
        recorder.describe_histogram(KeyName::from_const_str(batch), None, help.into());
        Meter {
            events: labelled(
                "holdfast_sync_events_total",
                "Events by what became of them.",
                "outcome",
                &EVENTS,
            ),
            requests: labelled(
                "holdfast_sync_requests_total",
                "Requests to the cloud, by answer.",
                "answer",
                &ANSWERS,
            ),
            tombstones: labelled(
                "holdfast_sync_tombstones_total",
                "Tombstones by what became of them.",
                "outcome",
                &TOMBSTONES,
            ),
            work: labelled(
                "holdfast_sync_work_total",
                "Rows by what the forwarder did with them.",
                "what",
                &WORK,
            ),
            batch: recorder.register_histogram(&Key::from_static_name(batch), &META),
            live_rows: rows("live"),
            bulk_rows: rows("bulk"),
            oldest: gauge(
                "holdfast_sync_oldest_seconds",
                "How long the oldest row has been due.",
                vec![],
            ),
            up: gauge("holdfast_sync_up", "Whether the link to the cloud is up.", vec![]),
            drain: gauge(
                "holdfast_sync_drain_seconds",
                "How long the backlog lasts at the present pace.",
                vec![],
            ),
            not_shrinking: gauge(
                "holdfast_sync_not_shrinking",
                "1 when the link is up and the backlog does not shrink.",
                vec![],
            ),
            not_draining: gauge(
                "holdfast_sync_not_draining",
                "1 when the link is up, rows are due, and none is acked.",
                vec![],
            ),
        }
    }

    pub(super) fn event(&self, outcome: &str, events: u64) {
        add(&self.events, outcome, events);
    }

    pub(super) fn answer(&self, answer: &str, took: Duration) {
        add(&self.requests, answer, 1);
        self.batch.record(took.as_secs_f64());
    }

    pub(super) fn tombstone(&self, outcome: &str, tombstones: u64) {
        add(&self.tombstones, outcome, tombstones);
    }

    pub(super) fn work(&self, counts: &lease::Counts) {
        let lease::Counts { claimed, reclaimed, done, retried, buried, released, fenced } = *counts;
        let now = [claimed, reclaimed, done, retried, buried, released, fenced];
        for (what, count) in WORK.iter().zip(now) {
            if let Some(counter) = self.work.get(what) {
                counter.absolute(count);
            }
        }
    }
}

fn add(counters: &Labelled, label: &str, count: u64) {
    if let Some(counter) = counters.get(label) {
        counter.increment(count);
    }
}
