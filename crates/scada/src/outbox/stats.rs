//! How an outbox stands, and when that is worth a warning.

use std::time::Duration;

use serde::Serialize;

const METRICS: &str = "SELECT
    count(*) FILTER (WHERE status = 'PENDING') AS pending,
    count(*) FILTER (WHERE status = 'IN_PROGRESS') AS in_progress,
    count(*) FILTER (WHERE status = 'FAILED') AS failed,
    count(*) FILTER (WHERE status = 'SENT') AS sent,
    coalesce(extract(epoch FROM now() - min(created_at) FILTER (WHERE status = 'PENDING')) * 1000, 0)::float8 AS oldest_ms,
    coalesce(extract(epoch FROM now() - min(locked_at) FILTER (WHERE status = 'IN_PROGRESS')) * 1000, 0)::float8 AS held_ms
FROM outbox_events";

/// The documented metrics of an outbox, with their documented names.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Events that wait.
    pub pending_count: u64,
    /// Events that are being published.
    pub in_progress_count: u64,
    /// Events that were given up.
    pub failed_count: u64,
    /// Events that were published and are still here.
    pub sent_count: u64,
    /// How long the oldest has waited.
    pub oldest_pending_age_ms: u64,
    /// How long the oldest lock has been held; not among the documented ones, for one of the documented warnings.
    pub oldest_lock_age_ms: u64,
    /// Who asks.
    pub instance_id: String,
}

/// Asks how the outbox stands.
pub async fn metrics(client: &pg::Client, instance: &str) -> Result<Metrics, pg::Error> {
    let row = client.query_one(METRICS, &[]).await?;
    let count = |name| u64::try_from(row.get::<_, i64>(name)).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an age in milliseconds, not below 0"
    )]
    let ms = |name| row.get::<_, f64>(name).max(0.0) as u64;
    Ok(Metrics {
        pending_count: count("pending"),
        in_progress_count: count("in_progress"),
        failed_count: count("failed"),
        sent_count: count("sent"),
        oldest_pending_age_ms: ms("oldest_ms"),
        oldest_lock_age_ms: ms("held_ms"),
        instance_id: instance.to_owned(),
    })
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Somebody should look.
    Warning,
    /// Somebody must look now.
    Critical,
}

/// A documented threshold that was passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// How bad it is.
    pub level: Level,
    /// The metric, by its documented name.
    pub metric: &'static str,
    /// What it means.
    pub words: &'static str,
}

/// The documented thresholds, applied. `batch` is `OUTBOX_BATCH_SIZE`.
pub fn warnings(metrics: &Metrics, batch: u64) -> Vec<Warning> {
    let level = |value: u64, warning: u64, critical: u64| match value {
        value if value > critical => Some(Level::Critical),
        value if value > warning => Some(Level::Warning),
        _ => None,
    };
    let stuck = Duration::from_secs(120).as_millis();
    let held_long = u128::from(metrics.oldest_lock_age_ms) > stuck;
    let found = [
        (
            level(metrics.pending_count, 100, 1_000),
            "pendingCount",
            "the dispatcher falls behind: the bus may be slow or away",
        ),
        (
            level(metrics.oldest_pending_age_ms, 30_000, 300_000),
            "oldestPendingAgeMs",
            "events are stuck: a partition may have no leader",
        ),
        (
            level(metrics.failed_count, 0, 10),
            "failedCount",
            "events were given up: look at their last_error_message",
        ),
        (
            (metrics.in_progress_count > batch && held_long).then_some(Level::Warning),
            "inProgressCount",
            "a dispatcher may be stuck",
        ),
    ];
    found
        .into_iter()
        .filter_map(|(level, metric, words)| Some(Warning { level: level?, metric, words }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics {
            pending_count: 100,
            in_progress_count: 50,
            failed_count: 0,
            sent_count: 7,
            oldest_pending_age_ms: 30_000,
            oldest_lock_age_ms: 120_000,
            instance_id: "dispatcher-1".to_owned(),
        }
    }

    #[test]
    fn thresholds_are_the_documented_ones() {
        assert_eq!(warnings(&metrics(), 50), []);
        let of = |metrics: Metrics| -> Vec<(Level, &str)> {
            warnings(&metrics, 50).iter().map(|w| (w.level, w.metric)).collect()
        };
        assert_eq!(
            of(Metrics { pending_count: 101, ..metrics() }),
            [(Level::Warning, "pendingCount")]
        );
        assert_eq!(
            of(Metrics { pending_count: 1_001, ..metrics() }),
            [(Level::Critical, "pendingCount")]
        );
        assert_eq!(
            of(Metrics { oldest_pending_age_ms: 300_001, ..metrics() }),
            [(Level::Critical, "oldestPendingAgeMs")]
        );
        assert_eq!(of(Metrics { failed_count: 1, ..metrics() }), [(Level::Warning, "failedCount")]);
        assert_eq!(
            of(Metrics { failed_count: 11, ..metrics() }),
            [(Level::Critical, "failedCount")]
        );
        let stuck = Metrics { in_progress_count: 51, oldest_lock_age_ms: 120_001, ..metrics() };
        assert_eq!(of(stuck), [(Level::Warning, "inProgressCount")]);
    }

    #[test]
    fn names_are_the_documented_ones() {
        let json = serde_json::to_value(metrics()).unwrap();
        for name in [
            "pendingCount",
            "inProgressCount",
            "failedCount",
            "sentCount",
            "oldestPendingAgeMs",
            "instanceId",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }
}
