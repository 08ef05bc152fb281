//! The watch over the outbox: the documented metrics, and the thresholds they are held against.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::store::Store;
use crate::outbox::{Level, Warning, glance, warnings};

/// An answer that takes longer is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Watches until told to stop.
pub(super) async fn run(
    store: &Store,
    instance: &str,
    batch: u64,
    every: Duration,
    stop: &CancellationToken,
) {
    tokio::select! {
        () = store.has_schema() => {}
        () = stop.cancelled() => return,
    }
    let mut turn = tokio::time::interval(every);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = turn.tick() => {}
            () = stop.cancelled() => return,
        }
        store.metrics.upkeep();
        let asked = async { glance(&store.pool.get().await?, instance).await };
        let told = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the outbox could not be asked how it stands");
                continue;
            }
            Err(_) => continue,
        };
        store.metrics.outbox(&told);
        tracing::info!(
            pending = told.pending_count,
            in_progress = told.in_progress_count,
            failed = told.failed_count,
            sent = told.sent_count,
            oldest_pending_ms = told.oldest_pending_age_ms,
            instance = told.instance_id,
            "outbox"
        );
        let now = warnings(&told, batch);
        let before = store.vitals.warn(now.clone());
        for (alert, holds) in changes(&before, &now) {
            store.metrics.alert(alert, holds);
            say(alert, holds);
        }
    }
}

/// The alerts that have begun (true) and ended (false).
fn changes<'a>(before: &'a [Warning], now: &'a [Warning]) -> Vec<(&'a Warning, bool)> {
    let ended = before.iter().filter(|alert| !now.contains(alert)).map(|alert| (alert, false));
    let begun = now.iter().filter(|alert| !before.contains(alert)).map(|alert| (alert, true));
    ended.chain(begun).collect()
}

fn say(alert: &Warning, holds: bool) {
    let (metric, words) = (alert.metric, alert.words);
    match (holds, alert.level) {
        (true, Level::Critical) => tracing::error!(metric, words, "critical alert"),
        (true, Level::Warning) => tracing::warn!(metric, words, "alert"),
        (false, level) => tracing::info!(metric, level = level.as_str(), "alert is over"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_that_gets_worse_ends_and_begins() {
        let alert = |level| Warning { level, metric: "pendingCount", words: "x" };
        let (mild, bad) = (alert(Level::Warning), alert(Level::Critical));
        assert_eq!(changes(&[], std::slice::from_ref(&mild)), [(&mild, true)]);
        assert_eq!(changes(std::slice::from_ref(&mild), std::slice::from_ref(&mild)), []);
        assert_eq!(
            changes(std::slice::from_ref(&mild), std::slice::from_ref(&bad)),
            [(&mild, false), (&bad, true)]
        );
    }
}
