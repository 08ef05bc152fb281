//! `kpi_hour`: the course of a day, from `telemetry.aggregated` of hours.

use std::collections::BTreeMap;

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use crate::consume::event::Event;

#[derive(Debug, Deserialize)]
struct Aggregated {
    metric_type: String,
    aggregation_window: String,
    avg_value: f64,
    min_value: f64,
    max_value: f64,
    unit: String,
}

/// Of two events about one hour the one with the higher id is newer.
const UPSERT: &str =
    "INSERT INTO kpi_hour AS t (tenant_id, hour, device_id, metric_type, unit, farm_id,
         barn_id, avg_value, min_value, max_value, event_id)
     SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::text[], $5::text[],
         $6::uuid[], $7::uuid[], $8::float8[], $9::float8[], $10::float8[], $11::uuid[])
     ON CONFLICT (tenant_id, hour, device_id, metric_type, unit) DO UPDATE SET
         farm_id = excluded.farm_id, barn_id = excluded.barn_id, avg_value = excluded.avg_value,
         min_value = excluded.min_value, max_value = excluded.max_value,
         event_id = excluded.event_id
     WHERE excluded.event_id > t.event_id";

type Key = (Uuid, i64, Uuid, String, String);

/// Stores the hours that a batch tells of.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut picked: BTreeMap<Key, (&Event, Aggregated)> = BTreeMap::new();
    let kind = EventType::TELEMETRY_AGGREGATED;
    for event in events.iter().filter(|event| event.envelope.event_type == kind) {
        let (Some(row), Some(device)) = (event.payload::<Aggregated>(), event.device()) else {
            continue;
        };
        if row.aggregation_window != "1h" {
            continue;
        }
        let at = event.envelope.occurred_at.as_microsecond();
        let key = (event.tenant(), at, device, row.metric_type.clone(), row.unit.clone());
        if picked.get(&key).is_none_or(|(held, _)| held.id() < event.id()) {
            picked.insert(key, (event, row));
        }
    }
    if picked.is_empty() {
        return Ok(());
    }
    let rows: Vec<&(&Event, Aggregated)> = picked.values().collect();
    let of = |get: fn(&Aggregated) -> f64| -> Vec<f64> {
        rows.iter().map(|(_, row)| get(row)).collect()
    };
    let tenants: Vec<Uuid> = picked.keys().map(|key| key.0).collect();
    let hours: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let devices: Vec<Uuid> = picked.keys().map(|key| key.2).collect();
    let metrics: Vec<&str> = picked.keys().map(|key| key.3.as_str()).collect();
    let units: Vec<&str> = picked.keys().map(|key| key.4.as_str()).collect();
    let farms: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.farm()).collect();
    let barns: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.barn()).collect();
    let ids: Vec<Uuid> = rows.iter().map(|(event, _)| event.id()).collect();
    let statement = transaction.prepare_cached(UPSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &tenants,
                &hours,
                &devices,
                &metrics,
                &units,
                &farms,
                &barns,
                &of(|row| row.avg_value),
                &of(|row| row.min_value),
                &of(|row| row.max_value),
                &ids,
            ],
        )
        .await?;
    Ok(())
}
