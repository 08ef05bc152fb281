//! What the cloud is told of an image. docs/spec/media.md has the payloads.

use event::farm::{Envelope, EventType};
use event::id::EventId;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Fault, Row};

/// The image is in the object store.
pub(crate) fn stored(row: &Row, trace_id: Option<String>) -> Result<Envelope, Fault> {
    let payload = json!({
        "media_id": row.id,
        "path": row.object_key,
        "mime_type": row.mime_type,
        "size_bytes": row.size_bytes,
    });
    event(row, EventType::MEDIA_STORED, row.captured_at, trace_id, &payload)
}

/// The image was stored, and its object is gone.
pub(super) fn missing(row: &Row, at: Timestamp) -> Result<Envelope, Fault> {
    let payload = json!({
        "media_id": row.id,
        "path": row.object_key,
        "size_bytes": row.size_bytes,
        "stored_at": row.stored_at,
    });
    event(row, kind("alarm.media.missing")?, at, None, &payload)
}

/// The image was given up at the site before the cloud had it.
pub(crate) fn dropped(row: &Row, reason: &str) -> Result<Envelope, Fault> {
    let payload = json!({
        "media_id": row.id,
        "path": row.object_key,
        "size_bytes": row.size_bytes,
        "stored_at": row.stored_at,
        "reason": reason,
    });
    event(row, kind("alarm.media.dropped")?, Timestamp::now(), None, &payload)
}

/// The object is back.
pub(super) fn restored(row: &Row, at: Timestamp) -> Result<Envelope, Fault> {
    let payload = json!({"media_id": row.id, "path": row.object_key});
    event(row, kind("media.restored")?, at, None, &payload)
}

fn kind(text: &str) -> Result<EventType, Fault> {
    text.parse().map_err(|_| Fault::Damaged("event_type".to_owned()))
}

fn event(
    row: &Row,
    event_type: EventType,
    occurred_at: Timestamp,
    trace_id: Option<String>,
    payload: &Value,
) -> Result<Envelope, Fault> {
    let ids = row.ids()?;
    let envelope = Envelope {
        event_id: EventId::mint(),
        event_type,
        tenant_id: ids.tenant,
        farm_id: Some(ids.farm),
        barn_id: Some(ids.barn),
        device_id: Some(ids.device),
        session_id: ids.session,
        occurred_at,
        trace_id,
        payload: serde_json::value::to_raw_value(payload)
            .map_err(|_| Fault::Damaged("payload".to_owned()))?,
    };
    envelope.check().map_err(|invalid| Fault::Damaged(invalid.field.to_string()))?;
    Ok(envelope)
}
