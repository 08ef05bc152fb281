//! What a node counts, under names that stay. Labels come from closed sets only.

use std::collections::BTreeMap;
use std::time::Duration;

use event::scada::{Category, Envelope};
use lease::Counts;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level as Importance, Metadata, Recorder,
};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::store::To;
use crate::outbox::{self, IN_PROGRESS, Level, THRESHOLDS, Warning};

const META: Metadata<'static> = Metadata::new(module_path!(), Importance::INFO, None);
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The documented metrics that have a threshold: their documented name, their gauge, and how many of the documented unit are one of
/// the gauge's.
pub const GAUGES: [(&str, &str, u64); 4] = [
    ("pendingCount", "holdfast_producer_outbox_pending", 1),
    ("oldestPendingAgeMs", "holdfast_producer_outbox_oldest_pending_seconds", 1_000),
    ("failedCount", "holdfast_producer_outbox_failed", 1),
    (IN_PROGRESS, "holdfast_producer_outbox_in_progress", 1),
];

/// A node's counters.
pub struct Metrics {
    handle: PrometheusHandle,
    recorder: PrometheusRecorder,
    made: BTreeMap<&'static str, Counter>,
    invalid: Counter,
    cycles: BTreeMap<&'static str, Counter>,
    missed: Counter,
    drained: Counter,
    gaps: Counter,
    spool_cycles: Gauge,
    spool_bytes: Gauge,
    database_up: Gauge,
    write: Histogram,
    outbox: [Gauge; 4],
    oldest_lock: Gauge,
    sent: Gauge,
    alerts: BTreeMap<(&'static str, &'static str), (Gauge, Counter)>,
    rows: [Counter; 6],
    /// The bus's.
    pub(super) bus: bus::Metrics,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All counters at zero. The recorder belongs to one node's process: two in one process count apart. `batch` is
    /// `OUTBOX_BATCH_SIZE`, which one of the rules compares with.
    pub fn new(batch: u32) -> Metrics {
        let matcher = Matcher::Suffix("_write_seconds".to_owned());
        // The call refuses an empty list only.
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(matcher, &BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let count = |name, help| counter(&recorder, name, help, vec![]);
        let level = |name, help| gauge(&recorder, name, help, vec![]);
        level("holdfast_producer_outbox_batch_size", "The most events of one publish.")
            .set(f64::from(batch));
        let metrics = Metrics {
            made: Category::ALL
                .map(Category::as_str)
                .into_iter()
                .map(|category| (category, labelled(&recorder, MADE, "category", category)))
                .collect(),
            invalid: count("holdfast_producer_invalid_total", "Envelopes that broke a rule."),
            cycles: [To::Outbox, To::Spool, To::Lost]
                .map(To::as_str)
                .into_iter()
                .map(|to| (to, labelled(&recorder, CYCLES, "to", to)))
                .collect(),
            missed: count("holdfast_producer_missed_cycles_total", "Ticks that were left out."),
            drained: count(
                "holdfast_producer_drained_cycles_total",
                "Cycles that came from the spool to the outbox.",
            ),
            gaps: count("holdfast_producer_gap_cycles_total", "Cycles that the spool gave up."),
            spool_cycles: level("holdfast_producer_spool_cycles", "Cycles in the spool."),
            spool_bytes: level("holdfast_producer_spool_bytes", "The size of the spool."),
            database_up: level("holdfast_producer_database_up", "1 while writes go through."),
            write: {
                let name = "holdfast_producer_write_seconds";
                let help = "The transaction of one cycle.";
                recorder.describe_histogram(KeyName::from_const_str(name), None, help.into());
                recorder.register_histogram(&Key::from_static_name(name), &META)
            },
            outbox: GAUGES.map(|(documented, name, _)| {
                let help = format!("The documented {documented}.");
                recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
                recorder.register_gauge(&Key::from_static_name(name), &META)
            }),
            oldest_lock: level(
                "holdfast_producer_outbox_oldest_lock_seconds",
                "How long the oldest lock of a dispatcher has been held; 0 without one.",
            ),
            sent: level("holdfast_producer_outbox_sent", "Events that were sent and not pruned."),
            alerts: alerts(&recorder),
            rows: [
                count("holdfast_producer_published_total", "Events that the bus confirmed."),
                count("holdfast_producer_retried_total", "Events put back after a failure."),
                count("holdfast_producer_failed_total", "Events given up."),
                count("holdfast_producer_released_total", "Events put back untouched."),
                count("holdfast_producer_reclaimed_total", "Events taken over from a dead lease."),
                count("holdfast_producer_fenced_total", "Outcomes that came too late to count."),
            ],
            bus: bus::Metrics::new(&recorder),
            handle: recorder.handle(),
            recorder,
        };
        metrics.database_up.set(0.0);
        metrics
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

    pub(super) fn made(&self, events: &[Envelope], invalid: u64) {
        self.invalid.increment(invalid);
        for event in events {
            if let Some(counter) = self.made.get(event.category.as_str()) {
                counter.increment(1);
            }
        }
    }

    pub(super) fn cycle(&self, to: To) {
        if let Some(counter) = self.cycles.get(to.as_str()) {
            counter.increment(1);
        }
    }

    pub(super) fn missed(&self, ticks: u64) {
        self.missed.increment(ticks);
    }

    pub(super) fn wrote(&self, took: Duration) {
        self.write.record(took.as_secs_f64());
    }

    pub(super) fn refused(&self, events: u64) {
        self.invalid.increment(events);
    }

    pub(super) fn drained(&self, cycles: u64) {
        self.drained.increment(cycles);
    }

    pub(super) fn gap(&self, cycles: u64) {
        self.gaps.increment(cycles);
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub(super) fn spool(&self, stats: &spool::Stats) {
        self.spool_cycles.set(stats.head.saturating_sub(stats.acked) as f64);
        self.spool_bytes.set(stats.bytes as f64);
    }

    pub(super) fn database(&self, up: bool) {
        self.database_up.set(f64::from(u8::from(up)));
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub(super) fn outbox(&self, told: &outbox::Metrics) {
        let values = [
            told.pending_count,
            told.oldest_pending_age_ms,
            told.failed_count,
            told.in_progress_count,
        ];
        for ((gauge, value), (_, _, per)) in self.outbox.iter().zip(values).zip(GAUGES) {
            gauge.set(value as f64 / per as f64);
        }
        self.oldest_lock.set(told.oldest_lock_age_ms as f64 / 1_000.0);
        self.sent.set(told.sent_count as f64);
    }

    /// An alert begins or ends.
    pub(super) fn alert(&self, alert: &Warning, holds: bool) {
        if let Some((gauge, counter)) = self.alerts.get(&(alert.metric, alert.level.as_str())) {
            gauge.set(f64::from(u8::from(holds)));
            counter.increment(u64::from(holds));
        }
    }

    /// What all dispatchers have done so far.
    pub(super) fn dispatched(&self, all: Counts) {
        let Counts { done, retried, buried, released, reclaimed, fenced, .. } = all;
        let values = [done, retried, buried, released, reclaimed, fenced];
        for (counter, value) in self.rows.iter().zip(values) {
            counter.absolute(value);
        }
    }
}

const MADE: (&str, &str) = ("holdfast_producer_events_total", "Events made, by category.");
const CYCLES: (&str, &str) = ("holdfast_producer_cycles_total", "Cycles, by where they went.");

fn alerts(
    recorder: &PrometheusRecorder,
) -> BTreeMap<(&'static str, &'static str), (Gauge, Counter)> {
    let mut alerts = BTreeMap::new();
    let metrics = THRESHOLDS.iter().map(|threshold| threshold.metric).chain([IN_PROGRESS]);
    for metric in metrics {
        for level in Level::ALL.map(Level::as_str) {
            let labels = || vec![Label::new("metric", metric), Label::new("level", level)];
            let name = "holdfast_producer_alerts";
            let holds = gauge(recorder, name, "1 while an alert holds.", labels());
            let name = "holdfast_producer_alerts_total";
            let begun = counter(recorder, name, "Alerts that began.", labels());
            alerts.insert((metric, level), (holds, begun));
        }
    }
    alerts
}

fn labelled(
    recorder: &PrometheusRecorder,
    (name, help): (&'static str, &'static str),
    label: &'static str,
    value: &'static str,
) -> Counter {
    counter(recorder, name, help, vec![Label::new(label, value)])
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

fn gauge(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Gauge {
    recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
    recorder.register_gauge(&Key::from_parts(name, labels), &META)
}
