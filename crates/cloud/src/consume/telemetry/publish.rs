//! `telemetry.aggregated`: one event for each version of an aggregate that is published.
//!
//! The event goes into the relay outbox in the transaction that records, in the aggregate's row,
//! which version it told of; so a version is sent once, and a corrected one again. Ids of the versions
//! of one aggregate ascend: of two events about one bucket, the one with the higher id is newer.

use event::farm::{Envelope, EventType};
use event::id::{BarnId, DeviceId, EventId, FarmId, TenantId};
use jiff::Timestamp;
use pg::Transaction;
use rand::RngExt as _;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::RELAY_CHANNEL;
use crate::trace::Traceparent;

/// Events put into the outbox by one transaction.
const EVENTS: i64 = 500;

const DUE: &str =
    "SELECT tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit,
         farm_id, barn_id, avg_value, min_value, max_value, version,
         greatest(clock_timestamp(), published_at + interval '1 millisecond')
     FROM telemetry_aggregate WHERE publish_at <= clock_timestamp()
     ORDER BY publish_at LIMIT $1 FOR UPDATE SKIP LOCKED";

const PUBLISHED: &str = "UPDATE telemetry_aggregate t SET published_version = k.version,
         published_at = k.published_at, publish_at = NULL, changed_since = NULL
     FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[],
             $7::bigint[], $8::timestamptz[])
         AS k (tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit, version,
             published_at)
     WHERE t.tenant_id = k.tenant_id AND t.aggregation_window = k.aggregation_window
         AND t.bucket_start = k.bucket_start AND t.device_id = k.device_id
         AND t.metric_type = k.metric_type AND t.unit = k.unit";

const OUTBOX: &str = "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at,
         trace_id, routing_key, ordering_key, envelope, traceparent)
     SELECT a, b, $8, c, $6, $8, d, e, $7
     FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::bytea[])
         AS u (a, b, c, d, e)";

/// The payload, with the documented fields in their order.
#[derive(Serialize)]
struct Payload<'a> {
    metric_type: &'a str,
    aggregation_window: &'a str,
    avg_value: f64,
    min_value: f64,
    max_value: f64,
    unit: &'a str,
}

#[derive(Default)]
struct Columns {
    tenants: Vec<Uuid>,
    windows: Vec<String>,
    starts: Vec<Timestamp>,
    devices: Vec<Uuid>,
    metrics: Vec<String>,
    units: Vec<String>,
    versions: Vec<i64>,
    times: Vec<Timestamp>,
}

#[derive(Default)]
struct Outgoing {
    tenants: Vec<Uuid>,
    ids: Vec<Uuid>,
    times: Vec<Timestamp>,
    keys: Vec<String>,
    envelopes: Vec<Vec<u8>>,
}

/// Hands aggregates over to the relay whose time has come. Returns how many.
pub(super) async fn publish(transaction: &Transaction<'_>) -> Result<usize, pg::Error> {
    let statement = transaction.prepare_cached(DUE).await?;
    let rows = transaction.query(&statement, &[&EVENTS]).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let trace = Traceparent::mint();
    let (mut columns, mut outgoing) = (Columns::default(), Outgoing::default());
    for row in &rows {
        let tenant: Uuid = row.get(0);
        let (window, start): (String, Timestamp) = (row.get(1), row.get(2));
        let (device, at): (Uuid, Timestamp) = (row.get(3), row.get(12));
        let (metric, unit): (String, String) = (row.get(4), row.get(5));
        let payload = Payload {
            metric_type: &metric,
            aggregation_window: &window,
            avg_value: row.get(8),
            min_value: row.get(9),
            max_value: row.get(10),
            unit: &unit,
        };
        if let Some(envelope) = envelope(row, &payload, tenant, device, start, at, trace) {
            outgoing.tenants.push(tenant);
            outgoing.ids.push(envelope.event_id.uuid());
            outgoing.times.push(start);
            // With the device's readings, so that they leave in order.
            outgoing.keys.push(format!("telemetry/{device}"));
            outgoing.envelopes.push(envelope.to_json().into_bytes());
        }
        columns.tenants.push(tenant);
        columns.windows.push(window);
        columns.starts.push(start);
        columns.devices.push(device);
        columns.metrics.push(metric);
        columns.units.push(unit);
        columns.versions.push(row.get(11));
        columns.times.push(at);
    }
    let statement = transaction.prepare_cached(OUTBOX).await?;
    let Outgoing { tenants, ids, times, keys, envelopes } = &outgoing;
    let kind = EventType::TELEMETRY_AGGREGATED;
    let (trace_id, traceparent) = (trace.trace_id(), trace.to_string());
    transaction
        .execute(
            &statement,
            &[tenants, ids, times, keys, envelopes, &trace_id, &traceparent, &kind.as_str()],
        )
        .await?;
    let statement = transaction.prepare_cached(PUBLISHED).await?;
    let Columns { tenants, windows, starts, devices, metrics, units, versions, times } = &columns;
    transaction
        .execute(&statement, &[tenants, windows, starts, devices, metrics, units, versions, times])
        .await?;
    let statement = transaction.prepare_cached("SELECT pg_notify($1, '')").await?;
    transaction.execute(&statement, &[&RELAY_CHANNEL]).await?;
    Ok(rows.len())
}

/// The event. `None` for ids that no event could have brought, which only a hand could have put into
/// the table.
fn envelope(
    row: &tokio_postgres::Row,
    payload: &Payload<'_>,
    tenant: Uuid,
    device: Uuid,
    start: Timestamp,
    at: Timestamp,
    trace: Traceparent,
) -> Option<Envelope> {
    let (farm, barn): (Option<Uuid>, Option<Uuid>) = (row.get(6), row.get(7));
    Some(Envelope {
        event_id: EventId::from_uuid(id_at(at)).ok()?,
        event_type: EventType::TELEMETRY_AGGREGATED,
        tenant_id: TenantId::from_uuid(tenant).ok()?,
        farm_id: farm.and_then(|id| FarmId::from_uuid(id).ok()),
        barn_id: barn.and_then(|id| BarnId::from_uuid(id).ok()),
        device_id: Some(DeviceId::from_uuid(device).ok()?),
        session_id: None,
        occurred_at: start,
        trace_id: Some(trace.trace_id()),
        payload: RawValue::from_string(serde_json::to_string(payload).ok()?).ok()?,
    })
}

/// A version 7 id of the database's clock, which alone decides the order of versions.
fn id_at(at: Timestamp) -> Uuid {
    let mut random = [0; 10];
    rand::rng().fill(&mut random);
    let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}
