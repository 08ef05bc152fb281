//! What the cloud counts, under names that stay.
//!
//! The recorder belongs to one cloud, not to the process: two in one process, as in tests, count
//! apart. Labels come from closed sets only; an id from outside never becomes a label.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::ingest::{Code, Tally};
use crate::relay::Meter;

pub(crate) const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Seconds, from a commit on a fast disk to one that met a checkpoint.
const LATENCY_BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The statuses of requests that are counted.
const STATUSES: [&str; 9] = ["200", "400", "401", "403", "404", "405", "413", "429", "503"];

/// The cloud's counters. Reading one never blocks ingestion.
pub struct Metrics {
    handle: PrometheusHandle,
    recorder: PrometheusRecorder,
    requests: BTreeMap<&'static str, Counter>,
    accepted: Counter,
    duplicate: Counter,
    rejected: BTreeMap<Code, Counter>,
    recovered: Counter,
    cloned: Counter,
    replayed: Counter,
    tombstones: Counter,
    lost: Counter,
    commit: Histogram,
    /// Batches being worked on.
    pub(crate) in_flight: Gauge,
    db_retries: Counter,
    dedupe_swept: Counter,
    /// The bus's.
    pub(crate) bus: bus::Metrics,
    /// The relay's.
    pub(crate) relay: Meter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

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
        let outcome = |value: &'static str| {
            let labels = vec![Label::new("outcome", value)];
            counter(&recorder, "holdfast_cloud_events_total", "Events by outcome.", labels)
        };
        let rejected = Code::ALL.into_iter().map(|code| {
            let labels = vec![Label::new("code", code.as_str())];
            let help = "Events and tombstones rejected, by code.";
            (code, counter(&recorder, "holdfast_cloud_rejected_total", help, labels))
        });
        let requests = STATUSES.into_iter().map(|status| {
            let labels = vec![Label::new("status", status)];
            let help = "Requests that want a token, by the status of the answer.";
            (status, counter(&recorder, "holdfast_cloud_requests_total", help, labels))
        });
        let in_flight = "holdfast_cloud_batches_in_flight";
        recorder.describe_gauge(
            KeyName::from_const_str(in_flight),
            None,
            "Batches being worked on.".into(),
        );
        let commit = "holdfast_cloud_commit_seconds";
        recorder.describe_histogram(
            KeyName::from_const_str(commit),
            None,
            "Time to make one batch durable.".into(),
        );
        Metrics {
            requests: requests.collect(),
            accepted: outcome("accepted"),
            duplicate: outcome("duplicate"),
            rejected: rejected.collect(),
            recovered: plain(
                "holdfast_cloud_recovered_total",
                "Events accepted after they had been declared lost.",
            ),
            cloned: plain(
                "holdfast_cloud_cloned_total",
                "Events accepted under a sequence that another event has.",
            ),
            replayed: plain(
                "holdfast_cloud_replayed_total",
                "Duplicates that the ledger knew and the dedupe cache did not.",
            ),
            tombstones: plain("holdfast_cloud_tombstones_total", "Tombstones taken."),
            lost: plain("holdfast_cloud_lost_total", "Sequences newly declared lost."),
            commit: recorder.register_histogram(&Key::from_static_name(commit), &META),
            in_flight: recorder.register_gauge(&Key::from_static_name(in_flight), &META),
            db_retries: plain("holdfast_cloud_db_retries_total", "Transactions tried again."),
            dedupe_swept: plain(
                "holdfast_cloud_dedupe_swept_total",
                "Event ids that left the dedupe cache.",
            ),
            bus: bus::Metrics::new(&recorder),
            relay: Meter::new(&recorder),
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

    pub(crate) fn answered(&self, status: &str) {
        if let Some(counter) = self.requests.get(status) {
            counter.increment(1);
        }
    }

    pub(crate) fn committed(&self, tally: &Tally, took: Duration) {
        self.commit.record(took.as_secs_f64());
        self.accepted.increment(tally.accepted);
        self.duplicate.increment(tally.duplicate);
        self.recovered.increment(tally.recovered);
        self.cloned.increment(tally.cloned);
        self.replayed.increment(tally.replayed);
        self.tombstones.increment(tally.tombstones);
        self.lost.increment(tally.lost);
        for (code, count) in &tally.rejected {
            if let Some(counter) = self.rejected.get(code) {
                counter.increment(*count);
            }
        }
    }

    pub(crate) fn db_retry(&self) {
        self.db_retries.increment(1);
    }

    pub(crate) fn dedupe_swept(&self, rows: u64) {
        self.dedupe_swept.increment(rows);
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
