//! `kpi_image`: one row for each image, of the earliest event that tells of it.

use std::collections::BTreeMap;

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use crate::consume::event::Event;

#[derive(Debug, Deserialize)]
struct Stored {
    media_id: Uuid,
    size_bytes: i64,
}

const UPSERT: &str = "INSERT INTO kpi_image AS t (tenant_id, media_id, event_id, farm_id, barn_id,
         occurred_at, size_bytes)
     SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
         $6::timestamptz[], $7::bigint[])
     ON CONFLICT (tenant_id, media_id) DO UPDATE SET event_id = excluded.event_id,
         farm_id = excluded.farm_id, barn_id = excluded.barn_id,
         occurred_at = excluded.occurred_at, size_bytes = excluded.size_bytes
     WHERE (excluded.occurred_at, excluded.event_id) < (t.occurred_at, t.event_id)";

/// Stores the images that a batch tells of.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut picked: BTreeMap<(Uuid, Uuid), (&Event, Stored)> = BTreeMap::new();
    let order = |event: &Event| (event.envelope.occurred_at.as_microsecond(), event.id());
    let stored = |event: &&Event| event.envelope.event_type == EventType::MEDIA_STORED;
    for event in events.iter().filter(stored) {
        let Some(payload) = event.payload::<Stored>() else { continue };
        let key = (event.tenant(), payload.media_id);
        if picked.get(&key).is_none_or(|(held, _)| order(event) < order(held)) {
            picked.insert(key, (event, payload));
        }
    }
    if picked.is_empty() {
        return Ok(());
    }
    let rows: Vec<&(&Event, Stored)> = picked.values().collect();
    let (tenants, media): (Vec<Uuid>, Vec<Uuid>) = picked.keys().copied().unzip();
    let ids: Vec<Uuid> = rows.iter().map(|(event, _)| event.id()).collect();
    let farms: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.farm()).collect();
    let barns: Vec<Option<Uuid>> = rows.iter().map(|(event, _)| event.barn()).collect();
    let times: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let sizes: Vec<i64> = rows.iter().map(|(_, row)| row.size_bytes).collect();
    let statement = transaction.prepare_cached(UPSERT).await?;
    transaction
        .execute(&statement, &[&tenants, &media, &ids, &farms, &barns, &times, &sizes])
        .await?;
    Ok(())
}
