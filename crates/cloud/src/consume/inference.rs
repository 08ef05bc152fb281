//! Inference results: one row for each result id, of the latest event that names it.

use std::collections::BTreeMap;

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use super::event::Event;

#[derive(Debug, Deserialize)]
struct Completed {
    inference_result_id: Uuid,
    predicted_weight_kg: f64,
    confidence: f64,
    model_version: String,
}

/// Stores the results of a batch in `table`, which has the columns of a result.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut picked: BTreeMap<(Uuid, Uuid), (&Event, Completed)> = BTreeMap::new();
    let order = |event: &Event| (event.envelope.occurred_at.as_microsecond(), event.id());
    let completed = |event: &&Event| event.envelope.event_type == EventType::INFERENCE_COMPLETED;
    for event in events.iter().filter(completed) {
        let Some(payload) = event.payload::<Completed>() else { continue };
        let key = (event.tenant(), payload.inference_result_id);
        let older = picked.get(&key).is_none_or(|(held, _)| order(held) < order(event));
        if older {
            picked.insert(key, (event, payload));
        }
    }
    if picked.is_empty() {
        return Ok(());
    }
    let statement = format!(
        "INSERT INTO {table} AS t (tenant_id, inference_result_id, event_id, farm_id, barn_id,
             device_id, session_id, occurred_at, predicted_weight_kg, confidence, model_version,
             trace_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::uuid[], $8::timestamptz[], $9::float8[], $10::float8[], $11::text[],
             $12::text[])
         ON CONFLICT (tenant_id, inference_result_id) DO UPDATE SET
             event_id = excluded.event_id, farm_id = excluded.farm_id,
             barn_id = excluded.barn_id, device_id = excluded.device_id,
             session_id = excluded.session_id, occurred_at = excluded.occurred_at,
             predicted_weight_kg = excluded.predicted_weight_kg,
             confidence = excluded.confidence, model_version = excluded.model_version,
             trace_id = excluded.trace_id
         WHERE (excluded.occurred_at, excluded.event_id) > (t.occurred_at, t.event_id)"
    );
    let statement = transaction.prepare_cached(&statement).await?;
    let rows: Vec<&(&Event, Completed)> = picked.values().collect();
    let of = |get: fn(&Event) -> Option<Uuid>| -> Vec<Option<Uuid>> {
        rows.iter().map(|(event, _)| get(event)).collect()
    };
    let tenants: Vec<Uuid> = picked.keys().map(|key| key.0).collect();
    let results: Vec<Uuid> = picked.keys().map(|key| key.1).collect();
    let ids: Vec<Uuid> = rows.iter().map(|(event, _)| event.id()).collect();
    let times: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let weights: Vec<f64> = rows.iter().map(|(_, row)| row.predicted_weight_kg).collect();
    let confidences: Vec<f64> = rows.iter().map(|(_, row)| row.confidence).collect();
    let models: Vec<&str> = rows.iter().map(|(_, row)| row.model_version.as_str()).collect();
    let traces: Vec<Option<&str>> =
        rows.iter().map(|(event, _)| event.envelope.trace_id.as_deref()).collect();
    transaction
        .execute(
            &statement,
            &[
                &tenants,
                &results,
                &ids,
                &of(Event::farm),
                &of(Event::barn),
                &of(Event::device),
                &of(Event::session),
                &times,
                &weights,
                &confidences,
                &models,
                &traces,
            ],
        )
        .await?;
    Ok(())
}
