//! `telemetry_dirty`: the buckets whose aggregates may be out of date.
//!
//! Promise: a reading that is stored has its mark until it is in the aggregate. docs/spec/telemetry.md says, case by case, why none is
//! lost when ingress and the aggregator meet.

use std::collections::BTreeSet;
use std::time::Duration;

use event::Window;
use jiff::Timestamp;
use pg::Transaction;
use uuid::Uuid;

/// A mark that is there is updated though nothing in it may change: whoever computes the bucket holds the mark's lock, so that we wait, and mark
/// again when it has gone. `DO NOTHING` would not wait.
const MARK: &str =
    "INSERT INTO telemetry_dirty AS t (tenant_id, device_id, \"window\", bucket_start_at, due_at)
     SELECT k.tenant_id, k.device_id, $1, k.start_at,
         least(greatest(now(), k.start_at + make_interval(secs => $5)), now() + interval '1 minute')
     FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     ON CONFLICT (tenant_id, device_id, \"window\", bucket_start_at)
     DO UPDATE SET due_at = least(t.due_at, excluded.due_at)";

/// Locking the marks first, and reading in a later statement, sees every reading whose mark was there.
const CLAIM: &str = "SELECT tenant_id, device_id, bucket_start_at FROM telemetry_dirty
     WHERE \"window\" = $1 AND due_at <= clock_timestamp() - make_interval(secs => $2)
     ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED";

const IS_DUE: &str = "SELECT EXISTS (SELECT FROM telemetry_dirty
     WHERE \"window\" = $1 AND due_at <= clock_timestamp() - make_interval(secs => $2))";

const CLEAR: &str = "DELETE FROM telemetry_dirty t
     USING unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     WHERE t.tenant_id = k.tenant_id AND t.device_id = k.device_id AND t.\"window\" = $1
         AND t.bucket_start_at = k.start_at";

const POSTPONE: &str =
    "UPDATE telemetry_dirty t SET due_at = k.start_at + make_interval(secs => $5)
     FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     WHERE t.tenant_id = k.tenant_id AND t.device_id = k.device_id AND t.\"window\" = $1
         AND t.bucket_start_at = k.start_at";

const OLDEST: &str = "SELECT extract(epoch FROM clock_timestamp() - min(d.due_at))::float8
     FROM unnest(ARRAY['1m', '1h', '1d']) AS w (name) CROSS JOIN LATERAL (
         SELECT due_at FROM telemetry_dirty WHERE \"window\" = w.name ORDER BY due_at LIMIT 1) d";

/// A bucket of one device, all its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket {
    pub(crate) tenant: Uuid,
    pub(crate) device: Uuid,
    pub(crate) start: Timestamp,
}

/// Buckets as columns, for a statement.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) tenants: Vec<Uuid>,
    pub(super) devices: Vec<Uuid>,
    pub(super) starts: Vec<Timestamp>,
}

impl Columns {
    pub(super) fn of<'a>(buckets: impl IntoIterator<Item = &'a Bucket>) -> Columns {
        let mut columns = Columns::default();
        for bucket in buckets {
            columns.tenants.push(bucket.tenant);
            columns.devices.push(bucket.device);
            columns.starts.push(bucket.start);
        }
        columns
    }
}

fn seconds(window: Window) -> f64 {
    window.span().as_secs_f64()
}

/// Marks buckets, in the order of their keys: two that mark the same buckets wait for each other, and do not deadlock.
pub(crate) async fn mark(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &BTreeSet<Bucket>,
) -> Result<(), pg::Error> {
    if buckets.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(MARK).await?;
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&window.as_str(), &tenants, &devices, &starts, &seconds(window)];
    transaction.execute(&statement, &values).await?;
    Ok(())
}

/// Whether a mark is due, whoever holds it.
pub(super) async fn is_due(
    transaction: &Transaction<'_>,
    window: Window,
    settle: Duration,
) -> Result<bool, pg::Error> {
    let statement = transaction.prepare_cached(IS_DUE).await?;
    let row = transaction.query_one(&statement, &[&window.as_str(), &settle.as_secs_f64()]).await?;
    Ok(row.get(0))
}

/// Locks some marks that are due and that nobody else holds.
pub(super) async fn claim(
    transaction: &Transaction<'_>,
    window: Window,
    settle: Duration,
    most: i64,
) -> Result<Vec<Bucket>, pg::Error> {
    let statement = transaction.prepare_cached(CLAIM).await?;
    let rows =
        transaction.query(&statement, &[&window.as_str(), &settle.as_secs_f64(), &most]).await?;
    let bucket = |row: &tokio_postgres::Row| Bucket {
        tenant: row.get(0),
        device: row.get(1),
        start: row.get(2),
    };
    Ok(rows.iter().map(bucket).collect())
}

/// Removes marks that were claimed.
pub(super) async fn clear(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &[Bucket],
) -> Result<(), pg::Error> {
    if buckets.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(CLEAR).await?;
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    transaction.execute(&statement, &[&window.as_str(), &tenants, &devices, &starts]).await?;
    Ok(())
}

/// Lets marks that were claimed come up again when their buckets end.
pub(super) async fn postpone(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &[Bucket],
) -> Result<(), pg::Error> {
    if buckets.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(POSTPONE).await?;
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&window.as_str(), &tenants, &devices, &starts, &seconds(window)];
    transaction.execute(&statement, &values).await?;
    Ok(())
}

/// For how many seconds the oldest mark has been due; negative when none is due, `None` when there is none.
pub(super) async fn oldest(client: &pg::Client) -> Result<Option<f64>, pg::Error> {
    let statement = client.prepare_cached(OLDEST).await?;
    Ok(client.query_one(&statement, &[]).await?.get(0))
}
