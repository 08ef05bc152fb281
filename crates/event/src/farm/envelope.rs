//! The envelope: reading, checking, writing.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{EventType, Telemetry, payload, rules};
use crate::id::{BarnId, DeviceId, EventId, FarmId, SessionId, TenantId};
use crate::{Class, Invalid, InvalidKind, MAX_EVENT_BYTES, json, timestamp};

const NAMES: [&str; 10] = [
    "event_id",
    "event_type",
    "tenant_id",
    "farm_id",
    "barn_id",
    "device_id",
    "session_id",
    "occurred_at",
    "trace_id",
    "payload",
];

/// A farm event.
///
/// Serialises with the documented field names, in the documented order, with null for what is not
/// there. The payload keeps the text it came with. A value that came from [`Envelope::parse`] or
/// [`Envelope::parse_from_node`] keeps every rule; one that was put together by hand is checked with
/// [`Envelope::check`].
#[derive(Debug, Clone, Serialize)]
pub struct Envelope {
    /// The event; with the tenant, the key of every dedupe.
    pub event_id: EventId,
    /// The type, which is also the routing key.
    pub event_type: EventType,
    /// Whose event it is.
    pub tenant_id: TenantId,
    /// The farm.
    pub farm_id: Option<FarmId>,
    /// The barn.
    pub barn_id: Option<BarnId>,
    /// The device.
    pub device_id: Option<DeviceId>,
    /// The weighing session, where there is one.
    pub session_id: Option<SessionId>,
    /// When it happened, by the clock of whoever saw it.
    pub occurred_at: Timestamp,
    /// Correlates the event with traces and logs.
    pub trace_id: Option<String>,
    /// The fields of the event's own domain; a JSON object.
    pub payload: Box<RawValue>,
}

impl Envelope {
    /// Reads an event that names its tenant.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, Invalid> {
        Envelope::read(json::utf8("event", bytes)?, None)
    }

    /// Reads an event that came from a node, whose tenant is known from its registration: `tenant_id`
    /// may be absent. If it is there and differs, that is a cross-tenant attempt
    /// ([`InvalidKind::TenantMismatch`]).
    pub fn parse_from_node(json: &str, tenant: TenantId) -> Result<Envelope, Invalid> {
        Envelope::read(json, Some(tenant))
    }

    fn read(json: &str, sender: Option<TenantId>) -> Result<Envelope, Invalid> {
        if json.len() > MAX_EVENT_BYTES {
            let problem =
                format!("is {} bytes: expected at most {MAX_EVENT_BYTES} bytes", json.len());
            return Err(Invalid::new("event", problem).with_kind(InvalidKind::TooLarge));
        }
        let [id, event_type, tenant, farm, barn, device, session, occurred_at, trace, payload] =
            json::document("event", json, &NAMES)?;
        let envelope = Envelope {
            event_id: json::id("event_id", id)?,
            event_type: json::text("event_type", event_type, EventType::EXPECTED)?.parse()?,
            tenant_id: tenant_of(json::optional_id("tenant_id", tenant)?, sender)?,
            farm_id: json::optional_id("farm_id", farm)?,
            barn_id: json::optional_id("barn_id", barn)?,
            device_id: json::optional_id("device_id", device)?,
            session_id: json::optional_id("session_id", session)?,
            occurred_at: timestamp::rfc3339(
                "occurred_at",
                &json::text("occurred_at", occurred_at, "an RFC 3339 time with an offset")?,
            )?,
            trace_id: trace
                .map(|raw| json::text("trace_id", Some(raw), rules::TRACE_ID))
                .transpose()?
                .map(Into::into),
            payload: payload.ok_or_else(|| Invalid::missing("payload", "an object"))?.to_owned(),
        };
        envelope.check()?;
        Ok(envelope)
    }

    /// Checks what the types of the fields do not already promise: which ids the event type needs, the
    /// trace id, and the payload.
    pub fn check(&self) -> Result<(), Invalid> {
        let cancelled = self.event_type == EventType::SESSION_CANCELLED;
        let core = cancelled || EventType::CORE.contains(&self.event_type);
        let domain = self.event_type.domain();
        let needs_device = core && domain != "sync";
        let needs_place = needs_device && domain != "telemetry";
        for (field, needed, there) in [
            ("farm_id", needs_place, self.farm_id.is_some()),
            ("barn_id", needs_place, self.barn_id.is_some()),
            ("device_id", needs_device, self.device_id.is_some()),
            ("session_id", core && domain == "weighvision", self.session_id.is_some()),
        ] {
            if needed && !there {
                let expected = format!("a UUID, which {} needs", self.event_type);
                return Err(Invalid::missing(field, &expected));
            }
        }
        if let Some(trace_id) = &self.trace_id {
            rules::trace_id("trace_id", trace_id)?;
        }
        payload::check(&self.event_type, &self.payload)?;
        json::check_storable("payload", self.payload.get())
    }

    /// The reading, if this is `telemetry.ingested`.
    pub fn telemetry(&self) -> Result<Option<Telemetry>, Invalid> {
        if self.event_type == EventType::TELEMETRY_INGESTED {
            Telemetry::parse(&self.payload).map(Some)
        } else {
            Ok(None)
        }
    }

    /// How dear the event is.
    pub fn class(&self) -> Class {
        self.event_type.class()
    }

    /// The event as JSON.
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }
}

fn tenant_of(named: Option<TenantId>, sender: Option<TenantId>) -> Result<TenantId, Invalid> {
    match (named, sender) {
        (Some(named), Some(sender)) if named != sender => {
            let problem = "is not the tenant this node belongs to: expected its own, or none";
            Err(Invalid::new("tenant_id", problem).with_kind(InvalidKind::TenantMismatch))
        }
        (Some(tenant), _) | (None, Some(tenant)) => Ok(tenant),
        (None, None) => Err(Invalid::missing("tenant_id", "a UUID of version 4 or 7")),
    }
}
