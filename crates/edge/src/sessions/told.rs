//! What the cloud is told of a session. docs/spec/sessions.md has the payloads.

use event::farm::{Envelope, EventType};
use event::id::{BarnId, DeviceId, EventId, FarmId, IdError, SessionId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use super::{Fault, Session};

/// An event of a session, checked: whatever the row holds, the cloud can read it.
pub(super) fn event(
    session: &Session,
    event_type: EventType,
    occurred_at: Timestamp,
    trace_id: Option<String>,
    payload: &Value,
) -> Result<Envelope, Fault> {
    fn id<T>(name: &str, from: fn(Uuid) -> Result<T, IdError>, uuid: Uuid) -> Result<T, Fault> {
        from(uuid).map_err(|error| Fault::Damaged(format!("{name} {error}")))
    }
    let envelope = Envelope {
        event_id: EventId::mint(),
        event_type,
        tenant_id: id("tenant_id", TenantId::from_uuid, session.tenant_id)?,
        farm_id: Some(id("farm_id", FarmId::from_uuid, session.farm_id)?),
        barn_id: Some(id("barn_id", BarnId::from_uuid, session.barn_id)?),
        device_id: Some(id("device_id", DeviceId::from_uuid, session.device_id)?),
        session_id: Some(id("id", SessionId::from_uuid, session.id)?),
        occurred_at,
        trace_id,
        payload: serde_json::value::to_raw_value(payload)
            .map_err(|_| Fault::Damaged("payload".to_owned()))?,
    };
    envelope.check().map_err(|invalid| Fault::Damaged(invalid.field.to_string()))?;
    Ok(envelope)
}

/// When the end is said to have happened: after the start, because the forwarder sends the events of
/// a device in the order of their times.
pub(super) fn end_of(session: &Session, end_at: Timestamp) -> Timestamp {
    let after_start = session.start_at.checked_add(SignedDuration::from_micros(1));
    after_start.map_or(end_at, |least| end_at.max(least))
}
