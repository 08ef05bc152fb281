//! `telemetry_reading`, and the marks on the minutes that new readings fall into.

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use uuid::Uuid;

use crate::consume::event::Event;

/// A mark is updated when it is there, though nothing in it changes: whoever computes the bucket
/// holds its mark, and we must wait for that and then mark again, or our readings would be missing.
const INSERT: &str = "WITH new AS (
         INSERT INTO telemetry_reading (tenant_id, occurred_at, event_id, farm_id, barn_id, device_id,
             session_id, metric_type, metric_value, unit, quality, clock_unset, trace_id, stream,
             epoch, seq)
         SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::uuid[], $8::text[], $9::float8[], $10::text[], $11::text[],
             $12::boolean[], $13::text[], $14::text[], $15::uuid[], $16::bigint[])
         ON CONFLICT DO NOTHING
         RETURNING tenant_id, device_id, metric_type, unit, occurred_at)
     INSERT INTO telemetry_mark AS t (level, tenant_id, device_id, metric_type, unit, bucket_start)
     SELECT DISTINCT '1m', tenant_id, device_id, metric_type, unit,
         date_bin('1 minute', occurred_at, '2000-01-01 00:00:00+00')
     FROM new ORDER BY 2, 3, 4, 5, 6
     ON CONFLICT (level, tenant_id, device_id, metric_type, unit, bucket_start)
     DO UPDATE SET marked_at = t.marked_at";

#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<Uuid>,
    times: Vec<Timestamp>,
    ids: Vec<Uuid>,
    farms: Vec<Option<Uuid>>,
    barns: Vec<Option<Uuid>>,
    devices: Vec<Uuid>,
    sessions: Vec<Option<Uuid>>,
    metrics: Vec<String>,
    values: Vec<f64>,
    units: Vec<String>,
    qualities: Vec<Option<&'static str>>,
    unset: Vec<bool>,
    traces: Vec<Option<&'a str>>,
    streams: Vec<Option<&'a str>>,
    epochs: Vec<Option<Uuid>>,
    seqs: Vec<Option<i64>>,
}

/// Stores the readings of a batch that are not there yet, and marks their minutes.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let kind = EventType::TELEMETRY_INGESTED;
    let mut readings: Vec<&Event> =
        events.iter().filter(|event| event.envelope.event_type == kind).collect();
    // Two replicas that got the same events insert them in the same order, and so cannot each wait
    // for the other.
    readings.sort_by_key(|event| (event.tenant(), event.envelope.occurred_at, event.id()));
    let mut rows = Columns::default();
    for event in readings {
        let envelope = &event.envelope;
        let (Ok(Some(reading)), Some(device)) = (envelope.telemetry(), event.device()) else {
            continue;
        };
        rows.tenants.push(event.tenant());
        rows.times.push(envelope.occurred_at);
        rows.ids.push(event.id());
        rows.farms.push(event.farm());
        rows.barns.push(event.barn());
        rows.devices.push(device);
        rows.sessions.push(event.session());
        rows.metrics.push(reading.metric_type);
        rows.values.push(reading.metric_value);
        rows.units.push(reading.unit);
        rows.qualities.push(reading.quality.map(|quality| quality.as_str()));
        rows.unset.push(reading.clock_unset);
        rows.traces.push(envelope.trace_id.as_deref());
        let place = event.place.as_ref();
        rows.streams.push(place.map(|place| place.stream.as_str()));
        rows.epochs.push(place.map(|place| place.epoch));
        rows.seqs.push(place.map(|place| place.seq));
    }
    if rows.ids.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(INSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &rows.tenants,
                &rows.times,
                &rows.ids,
                &rows.farms,
                &rows.barns,
                &rows.devices,
                &rows.sessions,
                &rows.metrics,
                &rows.values,
                &rows.units,
                &rows.qualities,
                &rows.unset,
                &rows.traces,
                &rows.streams,
                &rows.epochs,
                &rows.seqs,
            ],
        )
        .await?;
    Ok(())
}
