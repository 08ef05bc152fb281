//! What retention counts.

use std::collections::BTreeMap;

use metrics::{Counter, Gauge, Key, KeyName, Label, Recorder as _};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{Fate, Job, Report};
use crate::metrics::{META, counter};

/// Retention's counters.
pub(crate) struct Meter {
    removed: BTreeMap<Job, Counter>,
    dropped: Counter,
    held: BTreeMap<Job, Gauge>,
    database: Gauge,
    over: Gauge,
}

impl Meter {
    pub(crate) fn new(recorder: &PrometheusRecorder) -> Meter {
        let gauge = |name: &'static str, help: &'static str, labels| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
            recorder.register_gauge(&Key::from_parts(name, labels), &META)
        };
        let label = |job: Job| vec![Label::new("job", job.as_str())];
        let removed = Job::ALL.into_iter().map(|job| {
            let help = "Rows and objects that had expired and went, by job.";
            (job, counter(recorder, "holdfast_edge_retention_removed_total", help, label(job)))
        });
        let held = Job::ALL.into_iter().map(|job| {
            let help = "Rows and objects that have expired and are held back, by job.";
            (job, gauge("holdfast_edge_retention_held", help, label(job)))
        });
        Meter {
            removed: removed.collect(),
            held: held.collect(),
            dropped: counter(
                recorder,
                "holdfast_edge_retention_dropped_total",
                "Undelivered events and images that a limit took, and that were declared lost.",
                vec![],
            ),
            database: gauge("holdfast_edge_database_bytes", "The size of the database.", vec![]),
            over: gauge(
                "holdfast_edge_disk_over_bytes",
                "What is above the limit of the database or of the disk.",
                vec![],
            ),
        }
    }

    pub(super) fn turn(&self, report: &Report, whole: bool) {
        for (job, removed) in &self.removed {
            removed.increment(report.rows(*job, Fate::Gone));
        }
        self.dropped.increment(report.rows(Job::Disk, Fate::Dropped));
        if whole {
            for (job, held) in &self.held {
                held.set(number(report.rows(*job, Fate::Held)));
            }
        }
        if let Some(disk) = report.disk {
            self.database.set(number(disk.database));
            self.over.set(number(disk.over));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count of rows or bytes here reaches 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}
