//! How the outbox stands: counts, the oldest, the pace, the pauses.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::scope;

/// The time over which the pace is taken unless something else is asked for, in seconds.
pub const PACE_SECONDS: f64 = 300.0;

/// Whether the cloud is asked at the moment, as `sync_state` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// It is.
    Closed,
    /// The pause is over; the next request is a probe.
    HalfOpen,
    /// A pause runs.
    Open,
}

impl Breaker {
    /// The state as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Breaker::Closed => "closed",
            Breaker::HalfOpen => "half_open",
            Breaker::Open => "open",
        }
    }
}

/// How the outbox of one tenant stands.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TenantStats {
    /// Whose.
    pub tenant_id: Uuid,
    /// Rows by state.
    pub rows: BTreeMap<String, i64>,
    /// Of the held rows, those whose lease has expired.
    pub stuck: i64,
    /// When the oldest row that waits or is held was written.
    pub oldest_at: Option<Timestamp>,
    /// Events that the cloud took, a second.
    pub acked_per_second: f64,
    /// Events that came in, a second.
    pub arriving_per_second: f64,
    /// How long the backlog lasts at this pace; `None` when it does not shrink.
    pub drain_seconds: Option<f64>,
    /// When the cloud last took an event.
    pub last_acked_at: Option<Timestamp>,
    /// Failures of the link in a row.
    pub consecutive_failures: i32,
    /// Until when the cloud is left alone.
    pub paused_until: Option<Timestamp>,
    /// Why the link went down, while it is.
    pub last_failure: Option<String>,
}

impl TenantStats {
    /// Rows that wait or are held.
    pub fn waiting(&self) -> i64 {
        ["pending", "claimed", "sending"].iter().filter_map(|state| self.rows.get(*state)).sum()
    }
}

/// How the outbox stands.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// By the database's clock.
    pub at: Timestamp,
    /// Whether the cloud is asked.
    pub breaker: Breaker,
    /// Until when it is left alone.
    pub paused_until: Option<Timestamp>,
    /// How long the whole backlog lasts; `None` when it does not shrink.
    pub drain_seconds: Option<f64>,
    /// Each tenant that has rows or a state.
    pub tenants: Vec<TenantStats>,
}

const COUNTS: &str = "SELECT tenant_id, status, count(*),
    min(created_at) FILTER (WHERE status IN ('pending', 'claimed', 'sending')),
    count(*) FILTER (WHERE status IN ('claimed', 'sending') AND lease_expires_at < now())
FROM sync_outbox
WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
  AND ($2 OR NOT finished OR failed_at IS NOT NULL)
GROUP BY tenant_id, status";

// What a node sends under the same name has a stream, and does not count.
const PACE: &str = "SELECT tenant_id,
    coalesce(sum(CASE WHEN event_type = 'sync.batch.acked' AND stream IS NULL
        AND jsonb_typeof(payload_json->'event_count') = 'number'
        THEN (payload_json->>'event_count')::numeric END), 0)::float8,
    count(*) FILTER (WHERE event_type NOT LIKE 'sync.batch.%')
FROM sync_outbox
WHERE tenant_id = ANY($1) AND occurred_at <= now()
  AND occurred_at > now() - $2::float8 * interval '1 s'
GROUP BY tenant_id";

const STATE: &str = "SELECT tenant_id, last_acked_at, consecutive_failures, paused_until,
    coalesce(paused_until > now(), false), last_failure
FROM sync_state WHERE $1::uuid[] IS NULL OR tenant_id = ANY($1)";

/// Counts. With `acked` the whole table is read.
pub async fn stats(pool: &pg::Pool, tenants: &Tenants, acked: bool) -> Result<Stats, pg::Error> {
    stats_over(pool, tenants, acked, PACE_SECONDS).await
}

/// The same, with the pace of the last so many seconds.
pub async fn stats_over(
    pool: &pg::Pool,
    tenants: &Tenants,
    acked: bool,
    pace_seconds: f64,
) -> Result<Stats, pg::Error> {
    let scope = scope(tenants);
    let client = pool.get().await?;
    let mut by_tenant: BTreeMap<Uuid, TenantStats> = BTreeMap::new();
    for row in client.query(COUNTS, &[&scope, &acked]).await? {
        let one = entry(&mut by_tenant, row.try_get(0)?);
        one.rows.insert(row.try_get(1)?, row.try_get(2)?);
        let oldest: Option<Timestamp> = row.try_get(3)?;
        one.oldest_at = [one.oldest_at, oldest].into_iter().flatten().min();
        one.stuck += row.try_get::<_, i64>(4)?;
    }
    let (mut breaker, mut paused_until) = (Breaker::Closed, None);
    for row in client.query(STATE, &[&scope]).await? {
        let one = entry(&mut by_tenant, row.try_get(0)?);
        one.last_acked_at = row.try_get(1)?;
        one.consecutive_failures = row.try_get(2)?;
        one.paused_until = row.try_get(3)?;
        one.last_failure = row.try_get(5)?;
        paused_until = paused_until.max(one.paused_until);
        if row.try_get(4)? {
            breaker = Breaker::Open;
        } else if one.consecutive_failures > 0 && breaker == Breaker::Closed {
            breaker = Breaker::HalfOpen;
        }
    }
    let ids: Vec<Uuid> = by_tenant.keys().copied().collect();
    for row in client.query(PACE, &[&ids, &pace_seconds]).await? {
        let one = entry(&mut by_tenant, row.try_get(0)?);
        one.acked_per_second = row.try_get::<_, f64>(1)? / pace_seconds;
        one.arriving_per_second = number(row.try_get(2)?) / pace_seconds;
    }
    let at: Timestamp = client.query_one("SELECT now()", &[]).await?.try_get(0)?;
    let mut whole = TenantStats::default();
    for one in by_tenant.values_mut() {
        one.drain_seconds = drain(one);
        *whole.rows.entry("pending".to_owned()).or_default() += one.waiting();
        whole.acked_per_second += one.acked_per_second;
        whole.arriving_per_second += one.arriving_per_second;
    }
    let drain_seconds = drain(&whole);
    let tenants = by_tenant.into_values().collect();
    Ok(Stats { at, breaker, paused_until, drain_seconds, tenants })
}

fn entry(stats: &mut BTreeMap<Uuid, TenantStats>, tenant: Uuid) -> &mut TenantStats {
    stats.entry(tenant).or_insert_with(|| TenantStats { tenant_id: tenant, ..Default::default() })
}

fn drain(of: &TenantStats) -> Option<f64> {
    let net = of.acked_per_second - of.arriving_per_second;
    match of.waiting() {
        0 => Some(0.0),
        waiting if net > 0.0 => Some(number(waiting) / net),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count of rows reaches 2^53")]
fn number(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_wants_a_backlog_that_shrinks() {
        let stats = |waiting, acked, arriving| TenantStats {
            rows: BTreeMap::from([("pending".to_owned(), waiting), ("dlq".to_owned(), 7)]),
            acked_per_second: acked,
            arriving_per_second: arriving,
            ..TenantStats::default()
        };
        assert_eq!(drain(&stats(0, 0.0, 5.0)), Some(0.0));
        assert_eq!(drain(&stats(100, 12.0, 2.0)), Some(10.0));
        assert_eq!(drain(&stats(100, 2.0, 2.0)), None);
    }
}
