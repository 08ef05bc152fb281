//! What the edge counts, under names that stay.
//!
//! The recorder belongs to one edge, not to the process: two edges in one process, as in tests,
//! count apart. Labels come from closed sets only; an id from outside never becomes a label.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::ingress::{Reason, Tally};

pub(crate) const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Seconds, from a commit on a fast disk to one that met a checkpoint.
const LATENCY_BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The edge's counters. Reading one never blocks ingress.
pub struct Metrics {
    handle: PrometheusHandle,
    recorder: PrometheusRecorder,
    messages: BTreeMap<&'static str, Counter>,
    stored: Counter,
    duplicate: Counter,
    cloned: Counter,
    recovered: Counter,
    lost: Counter,
    quarantined: BTreeMap<Reason, Counter>,
    commit: Histogram,
    /// Messages received and not yet committed.
    pub(crate) waiting: Gauge,
    acks: Counter,
    acks_dropped: Counter,
    db_retries: Counter,
    broker_connects: Counter,
    dedupe_swept: Counter,
    uploads_refused: BTreeMap<&'static str, Counter>,
    /// What the forwarder counts.
    pub(crate) sync: crate::sync::Meter,
    /// What retention counts.
    pub(crate) retention: crate::retention::Meter,
    /// What the media service counts.
    pub(crate) media: crate::media::Meter,
    /// What the aggregator counts.
    pub(crate) telemetry: crate::telemetry::Meter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The kinds of messages that are counted.
pub(crate) const MESSAGE_KINDS: [&str; 6] =
    ["live", "backfill", "event", "status", "http", "other"];
/// The HTTP answers that are counted.
pub(crate) const UPLOAD_REFUSALS: [&str; 7] = ["400", "401", "403", "404", "413", "429", "503"];

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All counters at zero.
    pub fn new() -> Metrics {
        let matcher = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new();
        // The call refuses an empty list only. Without buckets the latency would be a summary:
        // worse, but there.
        let builder = match builder.set_buckets_for_metric(matcher, &LATENCY_BUCKETS) {
            Ok(builder) => builder,
            Err(_) => PrometheusBuilder::new(),
        };
        let recorder = builder.build_recorder();
        let plain = |name: &'static str, help: &'static str| counter(&recorder, name, help, vec![]);
        let labelled = |name, help, label: &'static str, values: &[&'static str]| {
            let each = values.iter().map(|value| {
                let labels = vec![Label::new(label, *value)];
                (*value, counter(&recorder, name, help, labels))
            });
            each.collect::<BTreeMap<_, _>>()
        };
        let outcome = |value: &'static str| {
            let labels = vec![Label::new("outcome", value)];
            counter(&recorder, "holdfast_edge_records_total", "Records by outcome.", labels)
        };
        let quarantined = Reason::ALL.into_iter().map(|reason| {
            let labels = vec![Label::new("reason", reason.as_str())];
            let help = "Records and messages put in quarantine, by reason.";
            (reason, counter(&recorder, "holdfast_edge_quarantined_total", help, labels))
        });
        let waiting = "holdfast_edge_waiting_messages";
        recorder.describe_gauge(
            KeyName::from_const_str(waiting),
            None,
            "Messages received and not yet committed.".into(),
        );
        let commit = "holdfast_edge_commit_seconds";
        recorder.describe_histogram(
            KeyName::from_const_str(commit),
            None,
            "Time of one ingress transaction.".into(),
        );
        Metrics {
            messages: labelled(
                "holdfast_edge_messages_total",
                "Messages by kind.",
                "kind",
                &MESSAGE_KINDS,
            ),
            stored: outcome("stored"),
            duplicate: outcome("duplicate"),
            cloned: outcome("cloned"),
            recovered: outcome("recovered"),
            lost: plain("holdfast_edge_lost_total", "Sequences newly declared lost."),
            quarantined: quarantined.collect(),
            commit: recorder.register_histogram(&Key::from_static_name(commit), &META),
            waiting: recorder.register_gauge(&Key::from_static_name(waiting), &META),
            acks: plain(
                "holdfast_edge_acks_published_total",
                "Acks handed to the broker's client.",
            ),
            acks_dropped: plain(
                "holdfast_edge_acks_dropped_total",
                "Acks that found no broker; the node will ask again.",
            ),
            db_retries: plain(
                "holdfast_edge_db_retries_total",
                "Ingress transactions tried again.",
            ),
            broker_connects: plain(
                "holdfast_edge_broker_connects_total",
                "Connections made to the broker.",
            ),
            dedupe_swept: plain(
                "holdfast_edge_dedupe_swept_total",
                "Event ids that left the dedupe cache.",
            ),
            uploads_refused: labelled(
                "holdfast_edge_uploads_refused_total",
                "Backfill requests refused, by status.",
                "status",
                &UPLOAD_REFUSALS,
            ),
            sync: crate::sync::Meter::new(&recorder),
            retention: crate::retention::Meter::new(&recorder),
            media: crate::media::Meter::new(&recorder),
            telemetry: crate::telemetry::Meter::new(&recorder),
            handle: recorder.handle(),
            recorder,
        }
    }

    /// Starts what counts by itself, such as a worker of leased work, so that it counts here.
    pub(crate) fn counting<T>(&self, start: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.recorder, start)
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub(crate) fn message(&self, kind: &str) {
        if let Some(counter) = self.messages.get(kind) {
            counter.increment(1);
        }
    }

    pub(crate) fn committed(&self, tally: &Tally, took: Duration) {
        self.commit.record(took.as_secs_f64());
        self.stored.increment(tally.stored);
        self.duplicate.increment(tally.duplicate);
        self.cloned.increment(tally.cloned);
        self.recovered.increment(tally.recovered);
        self.lost.increment(tally.lost);
        for (reason, count) in &tally.quarantined {
            if let Some(counter) = self.quarantined.get(reason) {
                counter.increment(*count);
            }
        }
    }

    pub(crate) fn ack(&self, handed_over: bool) {
        if handed_over { self.acks.increment(1) } else { self.acks_dropped.increment(1) }
    }

    pub(crate) fn db_retry(&self) {
        self.db_retries.increment(1);
    }

    pub(crate) fn broker_connected(&self) {
        self.broker_connects.increment(1);
    }

    pub(crate) fn dedupe_swept(&self, rows: u64) {
        self.dedupe_swept.increment(rows);
    }

    pub(crate) fn upload_refused(&self, status: &str) {
        if let Some(counter) = self.uploads_refused.get(status) {
            counter.increment(1);
        }
    }
}

pub(crate) fn counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Counter {
    recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
    recorder.register_counter(&Key::from_parts(name, labels), &META)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_there_before_anything_happened() {
        let metrics = Metrics::new();
        metrics.committed(&Tally { stored: 3, ..Tally::default() }, Duration::from_millis(4));
        let text = metrics.render();
        assert!(text.contains("holdfast_edge_records_total{outcome=\"stored\"} 3"), "{text}");
        assert!(
            text.contains("holdfast_edge_quarantined_total{reason=\"tenant_mismatch\"} 0"),
            "{text}"
        );
        assert!(text.contains("holdfast_edge_commit_seconds_bucket"), "{text}");
    }
}
