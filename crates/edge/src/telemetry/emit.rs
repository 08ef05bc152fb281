//! `telemetry.aggregated` for the cloud: one event for each version of an aggregate whose bucket has ended.
//!
//! The event goes into `sync_outbox` in the transaction that records, in the aggregate's row, which version it told of; so a version is sent
//! once, and a corrected one again. Ids of the versions of one aggregate ascend: of two events about one bucket the higher id is newer.

use std::collections::BTreeMap;

use event::Window;
use event::farm::{Envelope, EventType};
use event::id::{BarnId, DeviceId, EventId, FarmId, TenantId};
use jiff::Timestamp;
use pg::Transaction;
use rand::RngExt as _;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use uuid::Uuid;

use super::dirty::{Bucket, Columns};
use crate::outbox;

const TOLD: &str = "UPDATE telemetry_agg t SET emitted_version = t.version,
         emitted_at = greatest(clock_timestamp(), t.emitted_at + interval '1 millisecond')
     FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     WHERE t.tenant_id = k.tenant_id AND t.device_id = k.device_id AND t.\"window\" = $1
         AND t.bucket_start_at = k.start_at AND t.version > t.emitted_version
     RETURNING t.tenant_id, t.device_id, t.bucket_start_at, t.metric_type, t.avg_value, t.min_value,
         t.max_value, t.unit, t.count, t.sum_value, t.version, t.emitted_at";

/// Where the device was, by its last reading in the bucket.
const PLACES: &str = "SELECT (k.place - 1)::int, r.farm_id, r.barn_id
     FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY
         AS k (tenant_id, device_id, start_at, place)
     CROSS JOIN LATERAL (
         SELECT farm_id, barn_id FROM telemetry_raw
         WHERE tenant_id = k.tenant_id AND device_id = k.device_id
             AND occurred_at >= k.start_at AND occurred_at < k.start_at + make_interval(secs => $4)
         ORDER BY occurred_at DESC LIMIT 1) r";

/// The documented fields in their order, then ours.
#[derive(Serialize)]
struct Payload<'a> {
    metric_type: &'a str,
    aggregation_window: &'a str,
    avg_value: f64,
    min_value: f64,
    max_value: f64,
    unit: &'a str,
    count: i64,
    sum_value: f64,
    version: i64,
    source: &'a str,
}

/// Hands over to the cloud what has changed in these buckets. Returns how many aggregates.
pub(super) async fn emit(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &[Bucket],
) -> Result<usize, pg::Error> {
    if buckets.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(TOLD).await?;
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    let rows =
        transaction.query(&statement, &[&window.as_str(), &tenants, &devices, &starts]).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let places = places(transaction, window, buckets).await?;
    let envelopes: Vec<Envelope> =
        rows.iter().filter_map(|row| envelope(row, window, &places)).collect();
    outbox::add_all(transaction, &envelopes).await?;
    Ok(envelopes.len())
}

type Place = (Option<Uuid>, Option<Uuid>);

async fn places(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &[Bucket],
) -> Result<BTreeMap<Bucket, Place>, pg::Error> {
    let statement = transaction.prepare_cached(PLACES).await?;
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    let span = window.span().as_secs_f64();
    let rows = transaction.query(&statement, &[&tenants, &devices, &starts, &span]).await?;
    let place = |row: &Row| {
        let place = usize::try_from(row.get::<_, i32>(0)).ok()?;
        Some((*buckets.get(place)?, (row.get(1), row.get(2))))
    };
    Ok(rows.iter().filter_map(place).collect())
}

/// The event. `None` for ids that no event could have brought, which only a hand could have put into the table.
fn envelope(row: &Row, window: Window, places: &BTreeMap<Bucket, Place>) -> Option<Envelope> {
    let bucket = Bucket { tenant: row.get(0), device: row.get(1), start: row.get(2) };
    let (farm, barn) = places.get(&bucket).copied().unwrap_or_default();
    let payload = Payload {
        metric_type: row.get(3),
        aggregation_window: window.as_str(),
        avg_value: row.get(4),
        min_value: row.get(5),
        max_value: row.get(6),
        unit: row.get(7),
        count: row.get(8),
        sum_value: row.get(9),
        version: row.get(10),
        source: "edge",
    };
    Some(Envelope {
        event_id: EventId::from_uuid(id_at(row.get(11))).ok()?,
        event_type: EventType::TELEMETRY_AGGREGATED,
        tenant_id: TenantId::from_uuid(bucket.tenant).ok()?,
        farm_id: farm.and_then(|id| FarmId::from_uuid(id).ok()),
        barn_id: barn.and_then(|id| BarnId::from_uuid(id).ok()),
        device_id: Some(DeviceId::from_uuid(bucket.device).ok()?),
        session_id: None,
        occurred_at: bucket.start,
        trace_id: None,
        payload: RawValue::from_string(serde_json::to_string(&payload).ok()?).ok()?,
    })
}

/// A version 7 id of the database's clock, which alone decides the order of versions.
fn id_at(at: Timestamp) -> Uuid {
    let mut random = [0; 10];
    rand::rng().fill(&mut random);
    let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}
