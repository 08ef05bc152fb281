//! What the media service counts.

use std::collections::BTreeMap;

use metrics::{Counter, Label};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::sweep::Report;
use crate::metrics::counter;

/// The media service's metrics.
pub(crate) struct Meter {
    promised: Counter,
    completed: Counter,
    refused: Counter,
    swept: BTreeMap<&'static str, Counter>,
    sweeps_failed: Counter,
}

impl Meter {
    pub(crate) fn new(recorder: &PrometheusRecorder) -> Meter {
        let outcome = |value: &'static str| {
            let help = "Uploads by what became of them.";
            let labels = vec![Label::new("outcome", value)];
            counter(recorder, "holdfast_media_uploads_total", help, labels)
        };
        let swept = Report::default().counts().map(|(found, _)| {
            let help = "What the sweep found and mended.";
            let labels = vec![Label::new("found", found)];
            (found, counter(recorder, "holdfast_media_swept_total", help, labels))
        });
        let help = "Sweeps that could not be finished.";
        Meter {
            promised: outcome("promised"),
            completed: outcome("completed"),
            refused: outcome("refused"),
            swept: swept.into_iter().collect(),
            sweeps_failed: counter(recorder, "holdfast_media_sweeps_failed_total", help, vec![]),
        }
    }

    pub(super) fn promised(&self) {
        self.promised.increment(1);
    }

    pub(super) fn completed(&self) {
        self.completed.increment(1);
    }

    pub(super) fn refused(&self) {
        self.refused.increment(1);
    }

    pub(super) fn swept(&self, report: &Report) {
        for (found, count) in report.counts() {
            if let Some(counter) = self.swept.get(found) {
                counter.increment(count);
            }
        }
    }

    pub(super) fn sweep_failed(&self) {
        self.sweeps_failed.increment(1);
    }
}
