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

/// The same without reading every row, whatever the backlog: counts up to a limit, the oldest from the rows that were due first, and
/// what was sent by the planner's estimate of the table.
const GLANCE: &str = "SELECT
    (SELECT count(*) FROM (SELECT FROM outbox_events WHERE NOT finished AND status = 'PENDING' LIMIT $1) n) AS pending,
    (SELECT count(*) FROM (SELECT FROM outbox_events WHERE NOT finished AND status = 'IN_PROGRESS' LIMIT $1) n) AS in_progress,
    (SELECT count(*) FROM (SELECT FROM outbox_events WHERE failed_at IS NOT NULL AND status = 'FAILED' LIMIT $1) n) AS failed,
    (SELECT greatest(reltuples, 0)::int8 FROM pg_class WHERE oid = 'outbox_events'::regclass) AS sent,
    (SELECT coalesce(extract(epoch FROM now() - min(created_at)) * 1000, 0)::float8 FROM
        (SELECT created_at FROM outbox_events WHERE NOT finished AND status = 'PENDING' ORDER BY available_at LIMIT $2) n) AS oldest_ms,
    (SELECT coalesce(extract(epoch FROM now() - min(locked_at)) * 1000, 0)::float8
        FROM outbox_events WHERE NOT finished AND status = 'IN_PROGRESS') AS held_ms";

/// The most rows of a state that are counted at a glance.
const COUNTED: i64 = 1_000_000;
/// Among so many of the rows that were due first is the oldest; with more before it the count alone is an alert.
const OLDEST_AMONG: i64 = 10_000;

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

/// Asks how the outbox stands, exactly: it reads the whole table.
pub async fn metrics(client: &pg::Client, instance: &str) -> Result<Metrics, pg::Error> {
    Ok(read(&client.query_one(METRICS, &[]).await?, instance))
}

/// Asks how the outbox stands, in about the same time at any backlog.
pub async fn glance(client: &pg::Client, instance: &str) -> Result<Metrics, pg::Error> {
    let statement = client.prepare_cached(GLANCE).await?;
    let row = client.query_one(&statement, &[&COUNTED, &OLDEST_AMONG]).await?;
    let all = read(&row, instance);
    let unsent = all.pending_count + all.in_progress_count + all.failed_count;
    Ok(Metrics { sent_count: all.sent_count.saturating_sub(unsent), ..all })
}

fn read(row: &tokio_postgres::Row, instance: &str) -> Metrics {
    let count = |name| u64::try_from(row.get::<_, i64>(name)).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an age in milliseconds, not below 0"
    )]
    let ms = |name| row.get::<_, f64>(name).max(0.0) as u64;
    Metrics {
        pending_count: count("pending"),
        in_progress_count: count("in_progress"),
        failed_count: count("failed"),
        sent_count: count("sent"),
        oldest_pending_age_ms: ms("oldest_ms"),
        oldest_lock_age_ms: ms("held_ms"),
        instance_id: instance.to_owned(),
    }
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

impl Level {
    /// Both.
    pub const ALL: [Level; 2] = [Level::Warning, Level::Critical];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Warning => "warning",
            Level::Critical => "critical",
        }
    }
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

/// A documented threshold. A value above it is worth an alert.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// The metric, by its documented name.
    pub metric: &'static str,
    /// Above this somebody should look.
    pub warning: u64,
    /// Above this somebody must look now.
    pub critical: u64,
    /// What it means.
    pub words: &'static str,
    of: fn(&Metrics) -> u64,
}

/// The documented thresholds of single numbers.
pub const THRESHOLDS: [Threshold; 3] = [
    Threshold {
        metric: "pendingCount",
        warning: 100,
        critical: 1_000,
        words: "the dispatcher falls behind: the bus may be slow or away",
        of: |metrics| metrics.pending_count,
    },
    Threshold {
        metric: "oldestPendingAgeMs",
        warning: 30_000,
        critical: 300_000,
        words: "events are stuck: a partition may have no leader",
        of: |metrics| metrics.oldest_pending_age_ms,
    },
    Threshold {
        metric: "failedCount",
        warning: 0,
        critical: 10,
        words: "events were given up: look at their last_error_message",
        of: |metrics| metrics.failed_count,
    },
];

/// The documented metric that is held against the size of a batch.
pub const IN_PROGRESS: &str = "inProgressCount";
/// For so long more than a batch may be under way.
pub const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The documented thresholds, applied. `batch` is `OUTBOX_BATCH_SIZE`.
pub fn warnings(metrics: &Metrics, batch: u64) -> Vec<Warning> {
    let mut found = Vec::new();
    for Threshold { metric, warning, critical, words, of } in THRESHOLDS {
        let level = match of(metrics) {
            value if value > critical => Level::Critical,
            value if value > warning => Level::Warning,
            _ => continue,
        };
        found.push(Warning { level, metric, words });
    }
    let held_long = u128::from(metrics.oldest_lock_age_ms) > STUCK_AFTER.as_millis();
    if metrics.in_progress_count > batch && held_long {
        let words = "a dispatcher may be stuck";
        found.push(Warning { level: Level::Warning, metric: IN_PROGRESS, words });
    }
    found
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
