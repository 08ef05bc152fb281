//! What the historian counts, under names that stay. Labels come from closed sets only.

use std::collections::BTreeMap;
use std::time::Duration;

use event::scada::{Category, Severity};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::record::{INCOMPATIBLE, INVALID, REFUSED, Record};

const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const CAUSES: [&str; 3] = [INVALID, INCOMPATIBLE, REFUSED];

/// The historian's counters.
pub struct Metrics {
    handle: PrometheusHandle,
    recorder: PrometheusRecorder,
    stored: BTreeMap<&'static str, Counter>,
    announced: BTreeMap<&'static str, Counter>,
    refused: BTreeMap<&'static str, Counter>,
    duplicates: Counter,
    held: Counter,
    commit: Histogram,
    delay: Histogram,
    floods: Gauge,
    hours_waiting: Gauge,
    hours_rolled: Counter,
    /// The bus's.
    pub(super) bus: bus::Metrics,
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
    /// All counters at zero. The recorder belongs to one historian: two in one process count apart.
    pub fn new() -> Metrics {
        let matcher = Matcher::Suffix("_seconds".to_owned());
        // The call refuses an empty list only.
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(matcher, &BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let each = |name, help, label, values: Vec<&'static str>| {
            values
                .into_iter()
                .map(|value| {
                    (value, counter(&recorder, name, help, vec![Label::new(label, value)]))
                })
                .collect::<BTreeMap<_, _>>()
        };
        Metrics {
            stored: each(
                "holdfast_historian_stored_total",
                "Events stored, by category.",
                "category",
                Category::ALL.map(Category::as_str).to_vec(),
            ),
            announced: each(
                "holdfast_historian_alarms_announced_total",
                "Alarms that operators were told of, by severity.",
                "severity",
                Severity::ALL.map(Severity::as_str).to_vec(),
            ),
            refused: each(
                "holdfast_historian_refused_total",
                "Messages that became dead letters, by cause.",
                "cause",
                CAUSES.to_vec(),
            ),
            duplicates: counter(
                &recorder,
                "holdfast_historian_duplicates_total",
                "Events that were stored already.",
                vec![],
            ),
            held: counter(
                &recorder,
                "holdfast_historian_held_total",
                "Times a batch had to wait for the database.",
                vec![],
            ),
            commit: histogram(
                &recorder,
                "holdfast_historian_commit_seconds",
                "Time to make one batch durable.",
            ),
            delay: histogram(
                &recorder,
                "holdfast_historian_delay_seconds",
                "From the measurement to its commit, of the newest event of a batch.",
            ),
            floods: gauge(
                &recorder,
                "holdfast_historian_alarm_floods",
                "Positions at which an alarm flood goes on.",
            ),
            hours_waiting: gauge(
                &recorder,
                "holdfast_historian_hours_waiting",
                "Hours of telemetry that changed since their minutes were made.",
            ),
            hours_rolled: counter(
                &recorder,
                "holdfast_historian_hours_rolled_total",
                "Hours whose minutes this replica has made.",
                vec![],
            ),
            bus: bus::Metrics::new(&recorder),
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

    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub(super) fn stored(&self, new: &[&Record], duplicates: usize, took: Duration) {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for record in new {
            *counts.entry(record.envelope.category.as_str()).or_default() += 1;
        }
        for (category, count) in counts {
            if let Some(counter) = self.stored.get(category) {
                counter.increment(count);
            }
        }
        self.duplicates.increment(u64::try_from(duplicates).unwrap_or_default());
        self.commit.record(took.as_secs_f64());
        if let Some(newest) = new.iter().map(|record| record.envelope.timestamp).max() {
            let delay = jiff::Timestamp::now().duration_since(newest);
            self.delay.record(delay.as_secs_f64().max(0.0));
        }
    }

    pub(super) fn refused(&self, cause: &str) {
        if let Some(counter) = self.refused.get(cause) {
            counter.increment(1);
        }
    }

    pub(super) fn announced(&self, severity: Severity) {
        if let Some(counter) = self.announced.get(severity.as_str()) {
            counter.increment(1);
        }
    }

    pub(super) fn held(&self) {
        self.held.increment(1);
    }

    pub(super) fn floods(&self, positions: i64) {
        self.floods.set(f64::from(i32::try_from(positions).unwrap_or(i32::MAX)));
    }

    pub(super) fn hours_waiting(&self, hours: i64) {
        self.hours_waiting.set(f64::from(i32::try_from(hours).unwrap_or(i32::MAX)));
    }

    pub(super) fn hour_rolled(&self) {
        self.hours_rolled.increment(1);
    }
}

fn counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Counter {
    recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
    recorder.register_counter(&Key::from_parts(name, labels), &META)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, help: &'static str) -> Gauge {
    recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
    recorder.register_gauge(&Key::from_static_name(name), &META)
}

fn histogram(recorder: &PrometheusRecorder, name: &'static str, help: &'static str) -> Histogram {
    recorder.describe_histogram(KeyName::from_const_str(name), None, help.into());
    recorder.register_histogram(&Key::from_static_name(name), &META)
}
