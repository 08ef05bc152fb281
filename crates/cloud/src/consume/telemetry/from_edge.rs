//! Aggregates that a site made itself, for sites that send these in place of readings, or beside them.
//!
//! Promise: nothing is counted twice. A site's aggregate and the cloud's own are about the same readings, and are never added up: the row of
//! more samples wins, in any order of arrival. A longer window is made from it, as from the cloud's own. The event is on the bus already, so it is not published again; the cloud's own events, which come
//! back over the bus, do not say that they are an edge's and are left alone.

use std::collections::BTreeMap;

use event::Window;
use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use super::aggregate::{Keys, mark_longer};
use crate::consume::event::Event;

#[derive(Debug, Deserialize)]
struct FromEdge {
    source: String,
    metric_type: String,
    aggregation_window: String,
    avg_value: f64,
    min_value: f64,
    max_value: f64,
    unit: String,
    count: i64,
    sum_value: f64,
}

const UPSERT: &str =
    "INSERT INTO telemetry_aggregate AS t (aggregation_window, tenant_id, device_id,
         metric_type, unit, bucket_start, farm_id, barn_id, sample_count, sum_value, avg_value,
         min_value, max_value)
     SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[],
         $6::timestamptz[], $7::uuid[], $8::uuid[], $9::bigint[], $10::float8[], $11::float8[],
         $12::float8[], $13::float8[])
     ON CONFLICT (tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit)
     DO UPDATE SET farm_id = excluded.farm_id, barn_id = excluded.barn_id,
         sample_count = excluded.sample_count, sum_value = excluded.sum_value,
         avg_value = excluded.avg_value, min_value = excluded.min_value,
         max_value = excluded.max_value, version = t.version + 1, updated_at = now()
     WHERE excluded.sample_count > t.sample_count";

/// In the order in which the aggregates of readings are stored, so that the two wait for each other and do not deadlock.
type Key = (Uuid, i64, Uuid, String, String, String);

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
        let known = row.aggregation_window.parse::<Window>();
        // What is not a bucket of ours, or counts nothing, would only stand in the way of what is.
        let sound = known.is_ok_and(|window| window.start_of(start) == start) && row.count >= 1;
        if row.source != "edge" || !sound || !row.sum_value.is_finite() {
            continue;
        }
        let key = (
            event.tenant(),
            start.as_microsecond(),
            device,
            row.metric_type.clone(),
            row.unit.clone(),
            row.aggregation_window.clone(),
        );
        if picked.get(&key).is_none_or(|(_, held)| held.count < row.count) {
            picked.insert(key, (event, row));
        }
    }
    if picked.is_empty() {
        return Ok(());
    }
    // Marks before rows, the shorter window first: that is the order of whoever computes aggregates.
    for window in Window::ALL {
        let mut keys = Keys::default();
        let of_window = picked.iter().filter(|(key, _)| key.5 == window.as_str());
        for (key, (event, _)) in of_window {
            keys.add(key.0, key.2, key.3.clone(), key.4.clone(), event.envelope.occurred_at);
        }
        mark_longer(transaction, window, &keys).await?;
    }
    let rows: Vec<&(&Event, FromEdge)> = picked.values().collect();
    let of =
        |get: fn(&FromEdge) -> f64| -> Vec<f64> { rows.iter().map(|(_, row)| get(row)).collect() };
    let windows: Vec<&str> = rows.iter().map(|(_, row)| row.aggregation_window.as_str()).collect();
    let tenants: Vec<Uuid> = picked.keys().map(|key| key.0).collect();
    let devices: Vec<Uuid> = picked.keys().map(|key| key.2).collect();
    let metrics: Vec<&str> = rows.iter().map(|(_, row)| row.metric_type.as_str()).collect();
    let units: Vec<&str> = rows.iter().map(|(_, row)| row.unit.as_str()).collect();
    let starts: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let farms: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.farm()).collect();
    let barns: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.barn()).collect();
    let counts: Vec<i64> = rows.iter().map(|(_, row)| row.count).collect();
    let statement = transaction.prepare_cached(UPSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &windows,
                &tenants,
                &devices,
                &metrics,
                &units,
                &starts,
                &farms,
                &barns,
                &counts,
                &of(|row| row.sum_value),
                &of(|row| row.avg_value),
                &of(|row| row.min_value),
                &of(|row| row.max_value),
            ],
        )
        .await?;
    Ok(())
}
