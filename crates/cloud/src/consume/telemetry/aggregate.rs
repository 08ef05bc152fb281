//! Aggregates, computed again for every bucket that is marked.
//!
//! Promises: when no mark is left, every aggregate is what its readings say, however late and in
//! whichever order they came. A mark is removed in the transaction that stores what it asked for.
//! Replicas share the marks: each claims what the others have not locked.
//!
//! A minute is computed from its readings, an hour from its minutes, a day from its hours; so one late
//! reading costs a minute, sixty minutes' rows and twenty-four hours' rows, and not a day of readings.

use std::time::Duration;

use event::Window;
use jiff::Timestamp;
use pg::Transaction;
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{TELEMETRY_SERVICE, publish};
use crate::consume::Options;
use crate::consume::hold::wait;

/// Buckets computed in one transaction: enough to be quick, few enough that a reading which wants to
/// mark one of them does not wait long.
const BUCKETS: i64 = 500;

/// Locking the mark first, and reading in a later statement, sees every reading whose mark was there.
const CLAIM: &str = "SELECT tenant_id, device_id, metric_type, unit, bucket_start
     FROM telemetry_mark
     WHERE level = $1 AND marked_at <= clock_timestamp() - make_interval(secs => $2)
     ORDER BY marked_at LIMIT $3 FOR UPDATE SKIP LOCKED";

const UNMARK: &str = "DELETE FROM telemetry_mark t
     USING unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[])
         AS k (tenant_id, device_id, metric_type, unit, bucket_start)
     WHERE t.level = $1 AND t.tenant_id = k.tenant_id AND t.device_id = k.device_id
         AND t.metric_type = k.metric_type AND t.unit = k.unit
         AND t.bucket_start = k.bucket_start";

/// Marks are upserted for the reason given at the readings.
const MARK: &str =
    "INSERT INTO telemetry_mark AS t (level, tenant_id, device_id, metric_type, unit,
         bucket_start)
     SELECT DISTINCT $1, k.tenant_id, k.device_id, k.metric_type, k.unit, k.bucket_start
     FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[])
         AS k (tenant_id, device_id, metric_type, unit, bucket_start)
     ORDER BY 2, 3, 4, 5, 6
     ON CONFLICT (level, tenant_id, device_id, metric_type, unit, bucket_start)
     DO UPDATE SET marked_at = t.marked_at";

/// A reading that its sampler calls BAD or out of range is kept and not aggregated; nor is one of an
/// absurd size, whose sum could overflow or whose mean underflow and fail the bucket of its neighbours.
const FROM_READINGS: &str = "SELECT count(*) AS n, sum(r.metric_value) AS total,
         min(r.metric_value) AS lowest, max(r.metric_value) AS highest,
         (array_agg(r.farm_id ORDER BY r.occurred_at DESC, r.event_id DESC))[1] AS farm_id,
         (array_agg(r.barn_id ORDER BY r.occurred_at DESC, r.event_id DESC))[1] AS barn_id
     FROM telemetry_reading r
     WHERE r.tenant_id = k.tenant_id AND r.device_id = k.device_id
         AND r.metric_type = k.metric_type AND r.unit = k.unit
         AND r.occurred_at >= k.bucket_start
         AND r.occurred_at < k.bucket_start + make_interval(secs => $7)
         AND (r.quality IS NULL OR r.quality IN ('GOOD', 'UNCERTAIN'))
         AND (r.metric_value = 0 OR abs(r.metric_value) BETWEEN 1e-250 AND 1e250)";

const FROM_SHORTER: &str = "SELECT sum(r.sample_count)::bigint AS n, sum(r.sum_value) AS total,
         min(r.min_value) AS lowest, max(r.max_value) AS highest,
         (array_agg(r.farm_id ORDER BY r.bucket_start DESC))[1] AS farm_id,
         (array_agg(r.barn_id ORDER BY r.bucket_start DESC))[1] AS barn_id
     FROM telemetry_aggregate r
     WHERE r.tenant_id = k.tenant_id AND r.device_id = k.device_id
         AND r.metric_type = k.metric_type AND r.unit = k.unit AND r.aggregation_window = $9
         AND r.bucket_start >= k.bucket_start
         AND r.bucket_start < k.bucket_start + make_interval(secs => $7)";

/// Readings are added and never taken away, so a bucket whose count is the same is the same, and one of fewer is older, or was made from
/// fewer readings than the edge had when it sent its own (see `from_edge`).
fn store(source: &str) -> String {
    format!(
        "INSERT INTO telemetry_aggregate AS t (aggregation_window, tenant_id, device_id,
             metric_type, unit, bucket_start, farm_id, barn_id, sample_count, sum_value, avg_value,
             min_value, max_value, changed_since, publish_at)
         SELECT $1, k.tenant_id, k.device_id, k.metric_type, k.unit, k.bucket_start, c.farm_id,
             c.barn_id, c.n, c.total, c.total / c.n, c.lowest, c.highest,
             CASE WHEN $8 THEN clock_timestamp() END, CASE WHEN $8 THEN clock_timestamp() END
         FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[])
             AS k (tenant_id, device_id, metric_type, unit, bucket_start)
         CROSS JOIN LATERAL ({source}) c
         WHERE c.n > 0
         ORDER BY 2, 6, 3, 4, 5
         ON CONFLICT (tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit)
         DO UPDATE SET farm_id = excluded.farm_id, barn_id = excluded.barn_id,
             sample_count = excluded.sample_count, sum_value = excluded.sum_value,
             avg_value = excluded.avg_value, min_value = excluded.min_value,
             max_value = excluded.max_value, version = t.version + 1, updated_at = now(),
             changed_since = CASE WHEN $8 THEN coalesce(t.changed_since, excluded.changed_since) END,
             publish_at = CASE WHEN $8 THEN coalesce(t.publish_at, excluded.publish_at) END
         WHERE excluded.sample_count > t.sample_count
         RETURNING tenant_id, device_id, metric_type, unit, bucket_start, changed_since,
             clock_timestamp()"
    )
}

const SET_DUE: &str = "UPDATE telemetry_aggregate t SET publish_at = k.publish_at
     FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[],
             $7::timestamptz[])
         AS k (tenant_id, device_id, metric_type, unit, bucket_start, publish_at)
     WHERE t.aggregation_window = $1 AND t.tenant_id = k.tenant_id AND t.device_id = k.device_id
         AND t.metric_type = k.metric_type AND t.unit = k.unit AND t.bucket_start = k.bucket_start";

/// A day's latest values come from the minute that was just computed.
const LATEST: &str = "INSERT INTO telemetry_latest AS t (tenant_id, device_id, metric_type, unit,
         farm_id, barn_id, metric_value, quality, occurred_at, event_id)
     SELECT DISTINCT ON (k.tenant_id, k.device_id, k.metric_type, k.unit) k.tenant_id, k.device_id,
         k.metric_type, k.unit, r.farm_id, r.barn_id, r.metric_value, r.quality, r.occurred_at,
         r.event_id
     FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[])
         AS k (tenant_id, device_id, metric_type, unit, bucket_start)
     CROSS JOIN LATERAL (
         SELECT * FROM telemetry_reading r
         WHERE r.tenant_id = k.tenant_id AND r.device_id = k.device_id
             AND r.metric_type = k.metric_type AND r.unit = k.unit
             AND r.occurred_at >= k.bucket_start
             AND r.occurred_at < k.bucket_start + interval '1 minute'
         ORDER BY r.occurred_at DESC, r.event_id DESC LIMIT 1) r
     ORDER BY k.tenant_id, k.device_id, k.metric_type, k.unit, r.occurred_at DESC, r.event_id DESC
     ON CONFLICT (tenant_id, device_id, metric_type, unit) DO UPDATE SET
         farm_id = excluded.farm_id, barn_id = excluded.barn_id,
         metric_value = excluded.metric_value, quality = excluded.quality,
         occurred_at = excluded.occurred_at, event_id = excluded.event_id
     WHERE (excluded.occurred_at, excluded.event_id) > (t.occurred_at, t.event_id)";

/// The keys of buckets, as columns.
#[derive(Default)]
pub(super) struct Keys {
    tenants: Vec<Uuid>,
    devices: Vec<Uuid>,
    metrics: Vec<String>,
    units: Vec<String>,
    starts: Vec<Timestamp>,
}

impl Keys {
    fn push(&mut self, row: &tokio_postgres::Row) -> Timestamp {
        let start = row.get(4);
        self.add(row.get(0), row.get(1), row.get(2), row.get(3), start);
        start
    }

    /// One more bucket.
    pub(super) fn add(
        &mut self,
        tenant: Uuid,
        device: Uuid,
        metric: String,
        unit: String,
        start: Timestamp,
    ) {
        self.tenants.push(tenant);
        self.devices.push(device);
        self.metrics.push(metric);
        self.units.push(unit);
        self.starts.push(start);
    }
}

/// Keeps the aggregates right and publishes them, until told to stop.
pub(super) async fn run(pool: pg::Pool, stop: CancellationToken, options: Options) {
    let mut pause = options.poll;
    while !stop.is_cancelled() {
        match turn(&pool, &options).await {
            Ok(0) => {
                pause = options.poll;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(options.poll) => {}
                }
            }
            Ok(_) => pause = options.poll,
            Err(error) => {
                tracing::warn!(service = TELEMETRY_SERVICE, %error, "aggregates wait");
                let _ = wait(&mut pause, &stop).await;
            }
        }
    }
}

/// Computes some buckets of every window and publishes what is due. Returns how many there were.
async fn turn(pool: &pg::Pool, options: &Options) -> Result<usize, pg::Error> {
    let mut client = pool.get().await?;
    let mut done = 0;
    for window in Window::ALL {
        let transaction = client.transaction().await?;
        done += compute(&transaction, window, options).await?;
        transaction.commit().await?;
    }
    let transaction = client.transaction().await?;
    done += publish::publish(&transaction).await?;
    transaction.commit().await?;
    Ok(done)
}

async fn compute(
    transaction: &Transaction<'_>,
    window: Window,
    options: &Options,
) -> Result<usize, pg::Error> {
    let statement = transaction.prepare_cached(CLAIM).await?;
    let ripe: Duration = options.ripen;
    let claimed =
        transaction.query(&statement, &[&window.as_str(), &ripe.as_secs_f64(), &BUCKETS]).await?;
    if claimed.is_empty() {
        return Ok(0);
    }
    let mut keys = Keys::default();
    for row in &claimed {
        keys.push(row);
    }
    let Keys { tenants, devices, metrics, units, starts } = &keys;
    let (span, published) = (window.span().as_secs_f64(), options.windows.contains(&window));
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![];
    let (name, shorter) = (window.as_str(), window.shorter().map(Window::as_str));
    values.extend([&name as &(dyn ToSql + Sync), tenants, devices, metrics, units, starts]);
    values.extend([&span as &(dyn ToSql + Sync), &published]);
    let source = match &shorter {
        None => FROM_READINGS,
        Some(shorter) => {
            values.push(shorter);
            FROM_SHORTER
        }
    };
    let statement = transaction.prepare_cached(&store(source)).await?;
    let rows = transaction.query(&statement, &values).await?;
    if window == Window::Minute {
        let statement = transaction.prepare_cached(LATEST).await?;
        transaction.execute(&statement, &[tenants, devices, metrics, units, starts]).await?;
    }
    changed(transaction, window, options, &rows).await?;
    let statement = transaction.prepare_cached(UNMARK).await?;
    transaction
        .execute(&statement, &[&window.as_str(), tenants, devices, metrics, units, starts])
        .await?;
    Ok(claimed.len())
}

/// What follows from aggregates that have changed: the next longer window is marked, and the time is
/// set at which they are published.
async fn changed(
    transaction: &Transaction<'_>,
    window: Window,
    options: &Options,
    rows: &[tokio_postgres::Row],
) -> Result<(), pg::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut keys = Keys::default();
    let mut due: Vec<Timestamp> = Vec::new();
    for row in rows {
        let start = keys.push(row);
        let since: Option<Timestamp> = row.get(5);
        if let Some(since) = since {
            let end = start.checked_add(window.span()).unwrap_or(Timestamp::MAX);
            due.push(options.debounce.publish_at(end, since, row.get(6)));
        }
    }
    if options.windows.contains(&window) {
        let statement = transaction.prepare_cached(SET_DUE).await?;
        let Keys { tenants, devices, metrics, units, starts } = &keys;
        transaction
            .execute(
                &statement,
                &[&window.as_str(), tenants, devices, metrics, units, starts, &due],
            )
            .await?;
    }
    mark_longer(transaction, window, &keys).await
}

/// Marks the buckets of the next longer window that hold these.
pub(super) async fn mark_longer(
    transaction: &Transaction<'_>,
    window: Window,
    keys: &Keys,
) -> Result<(), pg::Error> {
    let Some(next) = window.next() else { return Ok(()) };
    let Keys { tenants, devices, metrics, units, starts } = keys;
    if starts.is_empty() {
        return Ok(());
    }
    let starts: Vec<Timestamp> = starts.iter().map(|at| next.start_of(*at)).collect();
    let statement = transaction.prepare_cached(MARK).await?;
    transaction
        .execute(&statement, &[&next.as_str(), tenants, devices, metrics, units, &starts])
        .await?;
    Ok(())
}
