//! What the relay counts. docs/spec/relay.md names and explains each.

use metrics::{Counter, Gauge, Key, KeyName, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use crate::metrics::{META, counter};

const WHAT: [&str; 7] = ["claimed", "reclaimed", "done", "retried", "buried", "released", "fenced"];

/// The relay's metrics.
pub(crate) struct Meter {
    rows: [Counter; 7],
    pub(super) backlog: Gauge,
    pub(super) oldest: Gauge,
    pub(super) dead: Gauge,
    pub(super) stalled: Gauge,
}

impl Meter {
    pub(crate) fn new(recorder: &PrometheusRecorder) -> Meter {
        let rows = |what| {
            let help = "Rows by what the relay did with them.";
            let labels = vec![Label::new("what", what)];
            counter(recorder, "holdfast_relay_rows_total", help, labels)
        };
        let gauge = |name: &'static str, help: &'static str| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
            recorder.register_gauge(&Key::from_static_name(name), &META)
        };
        Meter {
            rows: WHAT.map(rows),
            backlog: gauge(
                "holdfast_relay_backlog_rows",
                "Events that wait or are held, counted up to 100,000.",
            ),
            oldest: gauge(
                "holdfast_relay_oldest_due_seconds",
                "How long the oldest due event has been due.",
            ),
            dead: gauge("holdfast_relay_dead_letters", "Dead letters, counted up to 100,000."),
            stalled: gauge("holdfast_relay_stalled", "1 when events are due and none moves."),
        }
    }

    pub(super) fn work(&self, counts: &lease::Counts) {
        let lease::Counts { claimed, reclaimed, done, retried, buried, released, fenced } = *counts;
        let now = [claimed, reclaimed, done, retried, buried, released, fenced];
        for (counter, count) in self.rows.iter().zip(now) {
            counter.absolute(count);
        }
    }
}
