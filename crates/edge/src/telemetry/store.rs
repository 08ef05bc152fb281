//! `telemetry_agg` and `telemetry_series`.

use std::collections::{BTreeMap, BTreeSet};

use event::Window;
use jiff::Timestamp;
use pg::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::compute::{AHEAD, Held};
use super::dirty::Bucket;

/// Readings are added and never taken away, so one of more readings is the newer one, and one of as many is the same. An aggregate whose raw rows have
/// left the site stays as it was.
const STORE: &str = "INSERT INTO telemetry_agg AS t (id, tenant_id, device_id, \"window\", bucket_start_at,
         bucket_end_at, metric_type, unit, readings, count, sum_value, avg_value, min_value, max_value)
     SELECT k.id, k.tenant_id, k.device_id, $1, k.start_at, k.start_at + make_interval(secs => $2),
         k.metric_type, k.unit, k.readings, k.n, k.total, k.total / k.n, k.lowest, k.highest
     FROM unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::timestamptz[], $7::text[], $8::text[],
         $9::bigint[], $10::bigint[], $11::float8[], $12::float8[], $13::float8[])
         AS k (id, tenant_id, device_id, start_at, metric_type, unit, readings, n, total, lowest, highest)
     ON CONFLICT (tenant_id, device_id, \"window\", bucket_start_at, metric_type) DO UPDATE SET
         unit = excluded.unit, readings = excluded.readings, count = excluded.count,
         sum_value = excluded.sum_value, avg_value = excluded.avg_value,
         min_value = excluded.min_value, max_value = excluded.max_value, updated_at = now(),
         version = t.version + CASE WHEN (t.count, t.sum_value, t.min_value, t.max_value, t.unit)
             IS DISTINCT FROM (excluded.count, excluded.sum_value, excluded.min_value,
                 excluded.max_value, excluded.unit) THEN 1 ELSE 0 END
     WHERE excluded.readings > t.readings
     RETURNING tenant_id, device_id, bucket_start_at";

const SERIES: &str = "INSERT INTO telemetry_series AS t (tenant_id, device_id, metric_type, unit, first_at, last_at)
     SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[],
         $6::timestamptz[])
     ON CONFLICT (tenant_id, device_id, metric_type) DO UPDATE SET
         unit = CASE WHEN excluded.last_at >= t.last_at THEN excluded.unit ELSE t.unit END,
         first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
     WHERE excluded.first_at < t.first_at OR excluded.last_at > t.last_at";

#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    tenants: Vec<Uuid>,
    devices: Vec<Uuid>,
    starts: Vec<Timestamp>,
    metrics: Vec<&'a str>,
    units: Vec<&'a str>,
    readings: Vec<i64>,
    counts: Vec<i64>,
    sums: Vec<f64>,
    lowest: Vec<f64>,
    highest: Vec<f64>,
}

/// Stores what buckets hold; returns the buckets in which something changed.
pub(super) async fn store(
    transaction: &Transaction<'_>,
    window: Window,
    held: &[Held],
) -> Result<BTreeSet<Bucket>, pg::Error> {
    let mut rows = Columns::default();
    for one in held {
        let Some(values) = one.values else { continue };
        rows.ids.push(Uuid::now_v7());
        rows.tenants.push(one.bucket.tenant);
        rows.devices.push(one.bucket.device);
        rows.starts.push(one.bucket.start);
        rows.metrics.push(&one.metric);
        rows.units.push(&one.unit);
        rows.readings.push(one.readings);
        rows.counts.push(values.count);
        rows.sums.push(values.sum);
        rows.lowest.push(values.min);
        rows.highest.push(values.max);
    }
    if rows.ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let statement = transaction.prepare_cached(STORE).await?;
    let span = window.span().as_secs_f64();
    let values: [&(dyn ToSql + Sync); 13] = [
        &window.as_str(),
        &span,
        &rows.ids,
        &rows.tenants,
        &rows.devices,
        &rows.starts,
        &rows.metrics,
        &rows.units,
        &rows.readings,
        &rows.counts,
        &rows.sums,
        &rows.lowest,
        &rows.highest,
    ];
    let changed = transaction.query(&statement, &values).await?;
    let bucket = |row: &tokio_postgres::Row| Bucket {
        tenant: row.get(0),
        device: row.get(1),
        start: row.get(2),
    };
    Ok(changed.iter().map(bucket).collect())
}

/// Takes note of where the series of some minutes begin and end.
pub(super) async fn note_series(
    transaction: &Transaction<'_>,
    held: &[Held],
    now: Timestamp,
) -> Result<(), pg::Error> {
    let horizon = now.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
    let mut series: BTreeMap<(Uuid, Uuid, &str), (Timestamp, Timestamp, &str)> = BTreeMap::new();
    // Buckets ascend in time within a series, so the last one's unit is the newest.
    let mut ordered: Vec<&Held> = held.iter().collect();
    ordered.sort_by_key(|one| one.bucket.start);
    for one in ordered {
        let key = (one.bucket.tenant, one.bucket.device, one.metric.as_str());
        if one.first > horizon {
            continue;
        }
        let last = if one.last <= horizon { one.last } else { one.first };
        let entry = series.entry(key).or_insert((one.first, last, &one.unit));
        entry.0 = entry.0.min(one.first);
        if last >= entry.1 {
            (entry.1, entry.2) = (last, &one.unit);
        }
    }
    if series.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(SERIES).await?;
    let tenants: Vec<Uuid> = series.keys().map(|key| key.0).collect();
    let devices: Vec<Uuid> = series.keys().map(|key| key.1).collect();
    let metrics: Vec<&str> = series.keys().map(|key| key.2).collect();
    let units: Vec<&str> = series.values().map(|value| value.2).collect();
    let first: Vec<Timestamp> = series.values().map(|value| value.0).collect();
    let last: Vec<Timestamp> = series.values().map(|value| value.1).collect();
    transaction.execute(&statement, &[&tenants, &devices, &metrics, &units, &first, &last]).await?;
    Ok(())
}
