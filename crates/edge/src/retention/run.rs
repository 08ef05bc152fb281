//! The role: turns at their times, until told to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{Error, Report, Retention};
use crate::metrics::Metrics;
use crate::signal::Signal;

/// After a start the backlog comes first; a site that is restarted every hour has its turns all the same.
const FIRST_TURN: Duration = Duration::from_secs(600);

/// The statement of a turn that was cut off goes on at the server, and holds its lock until it ends: by its own timeout at the latest.
const UNTIL_FREE: u32 = 310;
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Runs until told to stop. A turn that is cut off leaves nothing that the next one does not do.
pub(crate) async fn run(retention: Retention, metrics: Arc<Metrics>, mut stop: Signal) {
    tokio::select! {
        () = stop.heard() => {}
        () = turns(&retention, &metrics) => {}
    }
}

async fn turns(retention: &Retention, metrics: &Metrics) {
    let mut turn = timer(retention.config.every);
    let mut disk = timer(retention.config.disk_every);
    loop {
        let mut tries = 1;
        tokio::select! {
            _ = turn.tick() => {
                // A turn may take hours, and the disk does not wait for its end.
                tokio::select! {
                    outcome = retention.turn() => {
                        tell(outcome, metrics, true);
                        continue;
                    }
                    () = over(retention, &mut disk) => tries = UNTIL_FREE,
                }
            }
            _ = disk.tick() => {}
        }
        tell(watch_disk(retention, tries).await, metrics, false);
    }
}

/// Watches the disk. Where another is at it, it tries again, up to so often.
async fn watch_disk(retention: &Retention, tries: u32) -> Result<Option<Report>, Error> {
    for _ in 1..tries {
        match retention.watch_disk().await {
            Ok(None) => tokio::time::sleep(TRY_EVERY).await,
            outcome => return outcome,
        }
    }
    retention.watch_disk().await
}

/// Returns when there is too little disk.
async fn over(retention: &Retention, disk: &mut Interval) {
    loop {
        disk.tick().await;
        match retention.is_over().await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the disk could not be looked at"),
        }
    }
}

fn timer(every: Duration) -> Interval {
    let mut timer = interval_at(Instant::now() + every.min(FIRST_TURN), every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

fn tell(outcome: Result<Option<Report>, Error>, metrics: &Metrics, whole: bool) {
    match outcome {
        Ok(Some(report)) => {
            metrics.retention.turn(&report, whole);
            for line in &report.lines {
                let (job, fate) = (line.job.as_str(), line.fate.as_str());
                let (what, rows, why) = (&line.what, line.rows, &line.why);
                tracing::info!(job, fate, what, rows, why, "retention");
            }
        }
        Ok(None) => tracing::debug!("another replica is at retention"),
        Err(error) => {
            tracing::warn!(%error, "retention ended early, and begins again at its next turn");
        }
    }
}
