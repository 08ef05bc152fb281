//! `kpi_minute`: sums of the readings of a barn in a minute, each reading in them once.

use std::collections::BTreeMap;

use event::QualityCode;
use event::farm::{EventType, Telemetry};
use jiff::Timestamp;
use pg::Transaction;
use uuid::Uuid;

use crate::consume::event::Event;

/// The ids come first: what is there already is in the sums already. A day's mark is updated though
/// nothing in it changes, so that we wait for whoever computes the day and mark it again.
const ADD: &str = "WITH input AS (
         SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::text[], $7::text[], $8::float8[])
             AS u (tenant_id, occurred_at, event_id, farm_id, barn_id, metric_type, unit, value)),
     fresh AS (
         INSERT INTO kpi_seen (tenant_id, occurred_at, event_id)
         SELECT tenant_id, occurred_at, event_id FROM input
         ON CONFLICT DO NOTHING RETURNING tenant_id, occurred_at, event_id),
     added AS (
         INSERT INTO kpi_minute AS t (tenant_id, farm_id, barn_id, metric_type, unit, minute,
             sample_count, sum_value, min_value, max_value)
         SELECT i.tenant_id, i.farm_id, i.barn_id, i.metric_type, i.unit,
             date_bin('1 minute', i.occurred_at, '2000-01-01 00:00:00+00') AS minute,
             count(*), sum(i.value), min(i.value), max(i.value)
         FROM input i JOIN fresh USING (tenant_id, occurred_at, event_id)
         GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
         ON CONFLICT (tenant_id, farm_id, barn_id, metric_type, unit, minute) DO UPDATE SET
             sample_count = t.sample_count + excluded.sample_count,
             sum_value = t.sum_value + excluded.sum_value,
             min_value = least(t.min_value, excluded.min_value),
             max_value = greatest(t.max_value, excluded.max_value)
         RETURNING tenant_id, farm_id, barn_id, metric_type, unit, minute)
     INSERT INTO kpi_mark AS t (tenant_id, farm_id, barn_id, metric_type, unit, day)
     SELECT DISTINCT tenant_id, farm_id, barn_id, metric_type, unit,
         (minute AT TIME ZONE 'UTC')::date
     FROM added ORDER BY 1, 2, 3, 4, 5, 6
     ON CONFLICT (tenant_id, farm_id, barn_id, metric_type, unit, day)
     DO UPDATE SET marked_at = t.marked_at";

/// The largest and smallest magnitudes that are added up: beyond them a sum could overflow, or a
/// mean underflow, and no sensor means it.
pub(super) const LARGEST: f64 = 1e250;
const SMALLEST: f64 = 1e-250;

/// Whether a reading counts; one that its sampler calls bad does not.
fn counts(reading: &Telemetry) -> bool {
    let size = reading.metric_value.abs();
    !matches!(reading.quality, Some(QualityCode::Bad | QualityCode::Oor))
        && (size == 0.0 || (SMALLEST..=LARGEST).contains(&size))
}

/// Adds the readings of a batch that are not in the sums yet.
pub(super) async fn add(transaction: &Transaction<'_>, events: &[Event]) -> Result<(), pg::Error> {
    let kind = EventType::TELEMETRY_INGESTED;
    // By id, because the same event may be in the batch twice.
    let mut readings: BTreeMap<(Uuid, i64, Uuid), (&Event, Telemetry)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.envelope.event_type == kind) {
        if let Ok(Some(reading)) = event.envelope.telemetry()
            && counts(&reading)
        {
            let at = event.envelope.occurred_at.as_microsecond();
            readings.insert((event.tenant(), at, event.id()), (event, reading));
        }
    }
    if readings.is_empty() {
        return Ok(());
    }
    let of = |get: fn(&Event) -> Option<Uuid>| -> Vec<Uuid> {
        // A key holds no null: a barn that is not known is the nil one.
        readings.values().map(|(event, _)| get(event).unwrap_or_default()).collect()
    };
    let tenants: Vec<Uuid> = readings.keys().map(|key| key.0).collect();
    let ids: Vec<Uuid> = readings.keys().map(|key| key.2).collect();
    let times: Vec<Timestamp> =
        readings.values().map(|(event, _)| event.envelope.occurred_at).collect();
    let metrics: Vec<&str> = readings.values().map(|(_, r)| r.metric_type.as_str()).collect();
    let units: Vec<&str> = readings.values().map(|(_, r)| r.unit.as_str()).collect();
    let values: Vec<f64> = readings.values().map(|(_, r)| r.metric_value).collect();
    let statement = transaction.prepare_cached(ADD).await?;
    let (farms, barns) = (of(Event::farm), of(Event::barn));
    transaction
        .execute(&statement, &[&tenants, &times, &ids, &farms, &barns, &metrics, &units, &values])
        .await?;
    Ok(())
}
