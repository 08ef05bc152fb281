//! The role: turns at their times, until told to stop.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};

use super::{Error, Report, Retention};
use crate::metrics::Metrics;
use crate::signal::Signal;

/// Runs until told to stop. A turn that is cut off leaves nothing undone that the next one does not do.
pub(crate) async fn run(retention: Retention, metrics: Arc<Metrics>, mut stop: Signal) {
    let mut turns = interval(retention.config.every);
    let mut disk = interval(retention.config.disk_every);
    for timer in [&mut turns, &mut disk] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut halt = stop.clone();
    loop {
        tokio::select! {
            () = stop.heard() => return,
            _ = turns.tick() => tokio::select! {
                () = halt.heard() => return,
                outcome = retention.turn() => tell(outcome, &metrics, true),
            },
            _ = disk.tick() => tokio::select! {
                () = halt.heard() => return,
                outcome = retention.watch_disk() => tell(outcome, &metrics, false),
            },
        }
    }
}

fn tell(outcome: Result<Option<Report>, Error>, metrics: &Metrics, whole: bool) {
    match outcome {
        Ok(Some(report)) => {
            metrics.retention.turn(&report, whole);
            for line in &report.lines {
                let (job, fate) = (line.job.as_str(), line.fate.as_str());
                tracing::info!(
                    job,
                    fate,
                    what = line.what,
                    rows = line.rows,
                    why = line.why,
                    "retention"
                );
            }
        }
        Ok(None) => tracing::debug!("another replica is at retention"),
        Err(error) => {
            tracing::warn!(%error, "retention ended early, and begins again at its next turn")
        }
    }
}
