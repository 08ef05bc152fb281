//! What the aggregator counts.

use std::collections::BTreeMap;

use event::Window;
use metrics::{Counter, Gauge, Key, KeyName, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use crate::metrics::{META, counter};

/// The aggregator's metrics.
pub(crate) struct Meter {
    buckets: BTreeMap<Window, Counter>,
    changed: BTreeMap<Window, Counter>,
    emitted: Counter,
    pub(super) oldest: Gauge,
}

impl Meter {
    pub(crate) fn new(recorder: &PrometheusRecorder) -> Meter {
        let by_window = |name, help| {
            let each = Window::ALL.into_iter().map(|window| {
                let labels = vec![Label::new("window", window.as_str())];
                (window, counter(recorder, name, help, labels))
            });
            each.collect::<BTreeMap<_, _>>()
        };
        let oldest = "holdfast_telemetry_oldest_mark_seconds";
        recorder.describe_gauge(
            KeyName::from_const_str(oldest),
            None,
            "For how long the oldest mark has been due; 0 when none is.".into(),
        );
        Meter {
            buckets: by_window("holdfast_telemetry_buckets_total", "Buckets computed, by window."),
            changed: by_window(
                "holdfast_telemetry_changed_total",
                "Buckets in which an aggregate changed, by window.",
            ),
            emitted: counter(
                recorder,
                "holdfast_telemetry_emitted_total",
                "Aggregates handed over for the cloud.",
                vec![],
            ),
            oldest: recorder.register_gauge(&Key::from_static_name(oldest), &META),
        }
    }

    pub(super) fn computed(&self, window: Window, buckets: usize, changed: usize, emitted: usize) {
        if let (Some(all), Some(some)) = (self.buckets.get(&window), self.changed.get(&window)) {
            all.increment(buckets as u64);
            some.increment(changed as u64);
        }
        self.emitted.increment(emitted as u64);
    }
}
