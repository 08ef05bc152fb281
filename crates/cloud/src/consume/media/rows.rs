//! `media_object`: one row for each image.

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
    path: String,
    mime_type: String,
    size_bytes: i64,
}

/// An image does not change, so of several events that name it the earliest counts. One that names
/// a session counts before any that names none: a site that adopts an object without a row tells of
/// it again, with what its key says, and a key has no session. One that is copied, or on its way,
/// keeps what it was copied by.
const INSERT: &str =
    "INSERT INTO media_object AS t (tenant_id, media_id, event_id, farm_id, barn_id,
         device_id, session_id, occurred_at, path, mime_type, size_bytes, trace_id)
     SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[],
         $7::uuid[], $8::timestamptz[], $9::text[], $10::text[], $11::bigint[], $12::text[])
     ON CONFLICT (tenant_id, media_id) DO UPDATE SET
         event_id = excluded.event_id, farm_id = excluded.farm_id, barn_id = excluded.barn_id,
         device_id = excluded.device_id, session_id = excluded.session_id,
         occurred_at = excluded.occurred_at, path = excluded.path,
         mime_type = excluded.mime_type, size_bytes = excluded.size_bytes,
         trace_id = excluded.trace_id
     WHERE (excluded.session_id IS NULL, excluded.occurred_at, excluded.event_id)
             < (t.session_id IS NULL, t.occurred_at, t.event_id)
         AND t.copy_status = 'pending'";

/// The session of an image that was copied before anybody said it.
const SESSION: &str = "UPDATE media_object t SET session_id = u.session_id
     FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS u (tenant_id, media_id, session_id)
     WHERE t.tenant_id = u.tenant_id AND t.media_id = u.media_id AND t.session_id IS NULL
         AND u.session_id IS NOT NULL";

/// Stores the images that a batch tells of.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut picked: BTreeMap<(Uuid, Uuid), (&Event, Stored)> = BTreeMap::new();
    let order = |event: &Event| {
        (event.session().is_none(), event.envelope.occurred_at.as_microsecond(), event.id())
    };
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
    let of = |get: fn(&Event) -> Option<Uuid>| -> Vec<Option<Uuid>> {
        rows.iter().map(|(event, _)| get(event)).collect()
    };
    let tenants: Vec<Uuid> = picked.keys().map(|key| key.0).collect();
    let media: Vec<Uuid> = picked.keys().map(|key| key.1).collect();
    let ids: Vec<Uuid> = rows.iter().map(|(event, _)| event.id()).collect();
    let times: Vec<Timestamp> = rows.iter().map(|(event, _)| event.envelope.occurred_at).collect();
    let paths: Vec<&str> = rows.iter().map(|(_, row)| row.path.as_str()).collect();
    let types: Vec<&str> = rows.iter().map(|(_, row)| row.mime_type.as_str()).collect();
    let sizes: Vec<i64> = rows.iter().map(|(_, row)| row.size_bytes).collect();
    let traces: Vec<Option<&str>> =
        rows.iter().map(|(event, _)| event.envelope.trace_id.as_deref()).collect();
    let sessions = of(Event::session);
    let statement = transaction.prepare_cached(INSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &tenants,
                &media,
                &ids,
                &of(Event::farm),
                &of(Event::barn),
                &of(Event::device),
                &sessions,
                &times,
                &paths,
                &types,
                &sizes,
                &traces,
            ],
        )
        .await?;
    let statement = transaction.prepare_cached(SESSION).await?;
    transaction.execute(&statement, &[&tenants, &media, &sessions]).await?;
    Ok(())
}
