//! `kpi_edge_bucket`: aggregates that a site made itself, for the days of sites that send these in place of readings.
//!
//! Promise: the newest of each counts, in any order of arrival, and its day is marked. Nothing is added to the sums of readings: when a
//! day is computed, the fuller of the two is taken (`days`). The cloud's own aggregates come back over the bus, do not say that they
//! are an edge's, and are left alone.

use std::collections::BTreeMap;

use event::Window;
use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use super::minutes::LARGEST;
use crate::consume::event::Event;

#[derive(Debug, Deserialize)]
struct FromEdge {
    source: String,
    metric_type: String,
    aggregation_window: String,
    min_value: f64,
    max_value: f64,
    unit: String,
    count: i64,
    sum_value: f64,
}

/// A bucket that moves to another barn leaves the day of the old one as it was computed: the barn is that of the bucket's last reading,
/// and a device does not move within a minute. The mark is updated to itself, so that we wait for whoever computes the day.
const UPSERT: &str = "WITH stored AS (
         INSERT INTO kpi_edge_bucket AS t (tenant_id, device_id, metric_type, unit,
             aggregation_window, bucket_start, farm_id, barn_id, sample_count, sum_value,
             min_value, max_value, event_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[],
             $6::timestamptz[], $7::uuid[], $8::uuid[], $9::bigint[], $10::float8[],
             $11::float8[], $12::float8[], $13::uuid[])
         ON CONFLICT (tenant_id, device_id, metric_type, unit, aggregation_window, bucket_start)
         DO UPDATE SET farm_id = excluded.farm_id, barn_id = excluded.barn_id,
             sample_count = excluded.sample_count, sum_value = excluded.sum_value,
             min_value = excluded.min_value, max_value = excluded.max_value,
             event_id = excluded.event_id
         WHERE excluded.event_id > t.event_id
         RETURNING tenant_id, farm_id, barn_id, metric_type, unit, bucket_start)
     INSERT INTO kpi_mark AS t (tenant_id, farm_id, barn_id, metric_type, unit, day)
     SELECT DISTINCT tenant_id, farm_id, barn_id, metric_type, unit,
         (bucket_start AT TIME ZONE 'UTC')::date
     FROM stored ORDER BY 1, 2, 3, 4, 5, 6
     ON CONFLICT (tenant_id, farm_id, barn_id, metric_type, unit, day)
     DO UPDATE SET marked_at = t.marked_at";

type Key = (Uuid, Uuid, String, String, String, i64);

/// Whether it is a bucket of ours, and can be added up.
fn sound(row: &FromEdge, start: Timestamp) -> bool {
    let known = row.aggregation_window.parse::<Window>();
    row.source == "edge"
        && row.count >= 1
        && known.is_ok_and(|window| window.start_of(start) == start)
        && [row.sum_value, row.min_value, row.max_value].iter().all(|one| one.abs() <= LARGEST)
}

/// Stores what the sites of a batch have aggregated.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut picked: BTreeMap<Key, (&Event, FromEdge)> = BTreeMap::new();
    let kind = EventType::TELEMETRY_AGGREGATED;
    for event in events.iter().filter(|event| event.envelope.event_type == kind) {
        let (Some(row), Some(device)) = (event.payload::<FromEdge>(), event.device()) else {
            continue;
        };
        let start = event.envelope.occurred_at;
        if !sound(&row, start) {
            continue;
        }
        let (metric, unit) = (row.metric_type.clone(), row.unit.clone());
        let window = row.aggregation_window.clone();
        let key = (event.tenant(), device, metric, unit, window, start.as_microsecond());
        if picked.get(&key).is_none_or(|(held, _)| held.id() < event.id()) {
            picked.insert(key, (event, row));
        }
    }
    if picked.is_empty() {
        return Ok(());
    }
    let rows: Vec<&(&Event, FromEdge)> = picked.values().collect();
    let of =
        |get: fn(&FromEdge) -> f64| -> Vec<f64> { rows.iter().map(|(_, row)| get(row)).collect() };
    let place = |get: fn(&Event) -> Option<Uuid>| -> Vec<Uuid> {
        rows.iter().map(|(event, _)| get(event).unwrap_or_default()).collect()
    };
    let tenants: Vec<Uuid> = picked.keys().map(|key| key.0).collect();
    let devices: Vec<Uuid> = picked.keys().map(|key| key.1).collect();
    let metrics: Vec<&str> = picked.keys().map(|key| key.2.as_str()).collect();
    let units: Vec<&str> = picked.keys().map(|key| key.3.as_str()).collect();
    let windows: Vec<&str> = picked.keys().map(|key| key.4.as_str()).collect();
    let starts: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let counts: Vec<i64> = rows.iter().map(|(_, row)| row.count).collect();
    let ids: Vec<Uuid> = rows.iter().map(|(event, _)| event.id()).collect();
    let statement = transaction.prepare_cached(UPSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &tenants,
                &devices,
                &metrics,
                &units,
                &windows,
                &starts,
                &place(Event::farm),
                &place(Event::barn),
                &counts,
                &of(|row| row.sum_value),
                &of(|row| row.min_value),
                &of(|row| row.max_value),
                &ids,
            ],
        )
        .await?;
    Ok(())
}
