//! One line of the sampler socket, read and checked. Pure.
//!
//! A line becomes a command or an envelope that the edge will accept: every rule is checked here, so that the
//! sampler hears of a mistake and the spool holds nothing that would be refused later. A name that is not
//! part of a request is refused, because a silently ignored typo is lost data.

use super::fields::Fields;
use crate::config::Identity;
use event::farm::{Envelope, EventType, rules};
use event::id::{DeviceId, EventId, IdError, SessionId, TenantId};
use event::{Invalid, QualityCode, rfc3339};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::str::FromStr;

/// The longest tag, in bytes of JSON.
const MAX_TAG_BYTES: usize = 64;

/// What the node knows when a line arrives.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// Whether that is known to be true.
    pub clock_set: bool,
}

/// A record for the spool.
#[derive(Debug)]
pub struct Record {
    /// Its event.
    pub event_id: EventId,
    /// How dear it is.
    pub class: u8,
    /// The envelope as JSON.
    pub bytes: Vec<u8>,
}

/// What a line asks for.
#[derive(Debug)]
pub enum Request {
    /// Tell how the node is.
    Status,
    /// Tell that the node is.
    Ping,
    /// Keep this.
    Record(Record),
}

/// A line, read: the tag to echo, if one could be found, and the request or what is wrong with it.
#[derive(Debug)]
pub struct Parsed {
    /// JSON text to echo.
    pub tag: Option<String>,
    /// The request.
    pub request: Result<Request, Invalid>,
}

/// Reads a line without its newline.
pub fn parse(line: &[u8], identity: &Identity, moment: Moment) -> Parsed {
    let fields = match Fields::parse(line) {
        Ok(fields) => fields,
        Err(invalid) => {
            return Parsed { tag: None, request: Err(invalid) };
        }
    };
    let tag = match tag(&fields) {
        Ok(tag) => tag,
        Err(invalid) => {
            return Parsed { tag: None, request: Err(invalid) };
        }
    };
    Parsed { tag, request: request(&fields, identity, moment) }
}

fn tag(fields: &Fields<'_>) -> Result<Option<String>, Invalid> {
    match fields.get("tag") {
        Some(raw) if raw.get().len() > MAX_TAG_BYTES => {
            let problem = format!("is {} bytes: expected at most {MAX_TAG_BYTES}", raw.get().len());
            Err(Invalid::new("tag", problem))
        }
        raw => Ok(raw.map(|raw| raw.get().to_owned())),
    }
}

const SHARED: [&str; 5] = ["event_id", "device_id", "occurred_at", "trace_id", "tag"];
const SAMPLE: [&str; 4] = ["metric_type", "metric_value", "unit", "quality"];
const EVENT: [&str; 3] = ["event_type", "payload", "session_id"];

fn request(fields: &Fields<'_>, identity: &Identity, moment: Moment) -> Result<Request, Invalid> {
    if let Some(cmd) = fields.get("cmd") {
        fields.refuse_others(&[&["cmd", "tag"]], "a command")?;
        return match &*text("cmd", cmd, "status or ping")? {
            "status" => Ok(Request::Status),
            "ping" => Ok(Request::Ping),
            other => Err(Invalid::value("cmd", other, "status or ping")),
        };
    }
    for place in ["farm_id", "barn_id", "tenant_id"] {
        if fields.get(place).is_some() {
            let problem = "is not accepted here: it comes from the node's configuration";
            return Err(Invalid::new(place, problem));
        }
    }
    let own_time = fields
        .get("occurred_at")
        .map(|raw| rfc3339("occurred_at", &text("occurred_at", raw, "an RFC 3339 time")?))
        .transpose()?;
    let clock_unset = own_time.is_none() && !moment.clock_set;
    let (event_type, payload, session_id) = if let Some(raw) = fields.get("event_type") {
        fields.refuse_others(&[&SHARED, &EVENT], "an event")?;
        let event_type = text("event_type", raw, "an event type")?.parse()?;
        let payload = fields.required("payload", "an object")?.to_owned();
        (event_type, payload, optional_id::<SessionId>(fields, "session_id")?)
    } else {
        fields.refuse_others(&[&SHARED, &SAMPLE], "a sample")?;
        (EventType::TELEMETRY_INGESTED, sample_payload(fields, clock_unset)?, None)
    };
    let trace_id = match fields.get("trace_id") {
        Some(raw) => text("trace_id", raw, "1 to 128 visible ASCII characters")?.into_owned(),
        None => uuid::Uuid::new_v4().simple().to_string(),
    };
    let event_id = optional_id(fields, "event_id")?.unwrap_or_else(EventId::mint);
    let envelope = Envelope {
        event_id,
        event_type,
        // The check needs some tenant; it is not written unless it is configured.
        tenant_id: identity.tenant_id.unwrap_or_else(TenantId::mint),
        farm_id: identity.farm_id,
        barn_id: identity.barn_id,
        device_id: optional_id::<DeviceId>(fields, "device_id")?.or(identity.device_id),
        session_id,
        occurred_at: own_time.unwrap_or(moment.now),
        trace_id: Some(trace_id),
        payload,
    };
    envelope.check().map_err(|invalid| own_name(invalid, fields))?;
    let class = envelope.class().number();
    let bytes = encode(&envelope, identity.tenant_id.is_some())?;
    Ok(Request::Record(Record { event_id, class, bytes }))
}

/// A sampler knows `metric_value`, not `payload.metric_value`.
fn own_name(mut invalid: Invalid, fields: &Fields<'_>) -> Invalid {
    if fields.get("event_type").is_none()
        && let Some(name) = invalid.field.strip_prefix("payload.")
    {
        invalid.field = name.to_owned();
    }
    invalid
}

#[derive(Serialize)]
struct SamplePayload<'a> {
    metric_type: Cow<'a, str>,
    metric_value: &'a RawValue,
    unit: Cow<'a, str>,
    quality: QualityCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<&'static str>,
}

fn sample_payload(fields: &Fields<'_>, clock_unset: bool) -> Result<Box<RawValue>, Invalid> {
    let type_rule = "a lower-case letter and up to 63 of a-z, 0-9 and underscore";
    let metric_type = text("metric_type", fields.required("metric_type", type_rule)?, type_rule)?;
    rules::metric_type("metric_type", &metric_type)?;
    let metric_value = fields.required("metric_value", "a finite number")?;
    finite("metric_value", metric_value)?;
    let unit_rule = "1 to 32 characters, no control characters";
    let unit = text("unit", fields.required("unit", unit_rule)?, unit_rule)?;
    rules::unit("unit", &unit)?;
    let quality: QualityCode = match fields.get("quality") {
        Some(raw) => text("quality", raw, "one of GOOD, BAD, UNCERTAIN, OOR")?.parse()?,
        None => QualityCode::Good,
    };
    let quality = match quality {
        QualityCode::Good if clock_unset => QualityCode::Uncertain,
        other => other,
    };
    let clock = clock_unset.then_some("unset");
    let payload = SamplePayload { metric_type, metric_value, unit, quality, clock };
    to_raw_value(&payload).map_err(|error| Invalid::new("sample", format!("is not JSON: {error}")))
}

fn finite(field: &str, raw: &RawValue) -> Result<(), Invalid> {
    let json = raw.get();
    let number = json.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    match json.parse::<f64>() {
        Ok(value) if number && value.is_finite() => Ok(()),
        _ => Err(Invalid::new(field, format!("is {}: expected a finite number", shown(json)))),
    }
}

fn shown(json: &str) -> String {
    match json.as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        _ => json.chars().filter(|c| !c.is_control()).take(40).collect(),
    }
}

fn text<'a>(field: &str, raw: &'a RawValue, expected: &str) -> Result<Cow<'a, str>, Invalid> {
    serde_json::from_str::<Text<'a>>(raw.get())
        .map(|text| text.0)
        .map_err(|_| Invalid::new(field, format!("is {}: expected {expected}", shown(raw.get()))))
}

/// Text that is borrowed where it has no escape.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn optional_id<T: FromStr<Err = IdError>>(
    fields: &Fields<'_>,
    field: &'static str,
) -> Result<Option<T>, Invalid> {
    let Some(raw) = fields.get(field) else {
        return Ok(None);
    };
    let text = text(field, raw, "a UUID of version 4 or 7")?;
    let id = text
        .parse()
        .map_err(|error: IdError| Invalid::new(field, format!("{} {error}", shown(raw.get()))))?;
    Ok(Some(id))
}

/// The envelope as it is spooled and sent: without a tenant unless the operator configured one.
fn encode(envelope: &Envelope, with_tenant: bool) -> Result<Vec<u8>, Invalid> {
    #[derive(Serialize)]
    struct Untenanted<'a> {
        event_id: EventId,
        event_type: &'a EventType,
        farm_id: Option<event::id::FarmId>,
        barn_id: Option<event::id::BarnId>,
        device_id: Option<DeviceId>,
        session_id: Option<SessionId>,
        occurred_at: Timestamp,
        trace_id: &'a Option<String>,
        payload: &'a RawValue,
    }
    let bytes = if with_tenant {
        serde_json::to_vec(envelope)
    } else {
        serde_json::to_vec(&Untenanted {
            event_id: envelope.event_id,
            event_type: &envelope.event_type,
            farm_id: envelope.farm_id,
            barn_id: envelope.barn_id,
            device_id: envelope.device_id,
            session_id: envelope.session_id,
            occurred_at: envelope.occurred_at,
            trace_id: &envelope.trace_id,
            payload: &envelope.payload,
        })
    };
    let bytes = bytes.map_err(|error| Invalid::new("event", format!("is not JSON: {error}")))?;
    if bytes.len() > event::MAX_EVENT_BYTES {
        let problem = format!(
            "is {} bytes with what the node adds: expected at most {}",
            bytes.len(),
            event::MAX_EVENT_BYTES
        );
        return Err(Invalid::new("payload", problem));
    }
    Ok(bytes)
}
