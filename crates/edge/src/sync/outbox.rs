//! `sync_outbox` as leased work: its two parts, and how a row becomes an event again.

use event::farm::{Envelope, EventType};
use event::id::{BarnId, DeviceId, Epoch, EventId, FarmId, IdError, SessionId, TenantId};
use jiff::Timestamp;
use lease::{Kind, Lease, Queue, RowLease, Table};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use uuid::Uuid;

/// The NOTIFY channel that says that the outbox has new rows.
const CHANNEL: &str = "sync_outbox";

/// The part of the outbox that a worker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Alarms and events.
    Live,
    /// Telemetry, and the forwarder's own events.
    Bulk,
}

impl Part {
    pub(super) const ALL: [Part; 2] = [Part::Live, Part::Bulk];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Part::Live => "live",
            Part::Bulk => "bulk",
        }
    }

    /// The queue, named for logs and metrics.
    pub(super) fn queue(self) -> Queue<Outgoing> {
        let (name, unfinished) = match self {
            Part::Live => ("sync_live", "NOT finished AND priority > 0"),
            Part::Bulk => ("sync_bulk", "NOT finished AND priority <= 0"),
        };
        Queue::new(name, table(unfinished), read).channel(CHANNEL)
    }
}

/// `unfinished` is the predicate of the part's lane index.
fn table(unfinished: &'static str) -> Table {
    Table {
        name: "sync_outbox",
        id: "id",
        id_kind: Kind::Uuid,
        tenant: "tenant_id",
        tenant_kind: Kind::Uuid,
        rank: "(-priority)",
        key: "coalesce(device_id, id)",
        key_kind: Kind::Uuid,
        at: Some("coalesce(occurred_at, created_at)"),
        status: "status",
        pending: "pending",
        done: Some("acked"),
        buried: "dlq",
        unfinished: Some(unfinished),
        lease: Lease::Row(RowLease {
            claimed: "claimed",
            sending: Some("sending"),
            token: "lease_token",
            holder: "claimed_by",
            held_since: "claimed_at",
            expires: "lease_expires_at",
        }),
        attempts: "attempt_count",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: Some("failed_at"),
        buried_reason: Some("dlq_reason"),
        touched: Some("updated_at"),
        payload: "id, tenant_id, farm_id, barn_id, device_id, session_id, event_type,
    coalesce(occurred_at, created_at) AS happened_at, trace_id, payload_json::text AS payload_text,
    stream, epoch, seq, extract(epoch FROM now() - created_at)::float8 AS age_seconds",
    }
}

/// A row of the outbox, ready to go.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) event_id: EventId,
    pub(super) tenant: TenantId,
    /// One of the forwarder's own events, of which no further ones are made.
    pub(super) about_sync: bool,
    /// How long ago the row was written.
    pub(super) age_seconds: f64,
    /// The element of the request's `events`.
    pub(super) json: Box<RawValue>,
}

#[derive(Serialize)]
struct Element<'a> {
    event: &'a Envelope,
    #[serde(flatten)]
    place: Option<Place>,
}

#[derive(Serialize)]
struct Place {
    stream: String,
    epoch: Epoch,
    seq: i64,
}

/// The text of an error names columns, never their values.
fn read(row: &Row) -> Result<Outgoing, String> {
    let column = |name: &'static str| move |_| format!("{name} cannot be read");
    let id = |name: &'static str| row.try_get::<_, Uuid>(name).map_err(column(name));
    let maybe = |name: &'static str| row.try_get::<_, Option<Uuid>>(name).map_err(column(name));
    let wrong = |name: &'static str| move |error: IdError| format!("{name} {error}");
    let text: String = row.try_get("payload_text").map_err(column("payload_json"))?;
    let event_type: &str = row.try_get("event_type").map_err(column("event_type"))?;
    let event_type: EventType =
        event_type.parse().map_err(|_| "event_type breaks its grammar".to_owned())?;
    let envelope = Envelope {
        event_id: EventId::from_uuid(id("id")?).map_err(wrong("id"))?,
        event_type,
        tenant_id: TenantId::from_uuid(id("tenant_id")?).map_err(wrong("tenant_id"))?,
        farm_id: maybe("farm_id")?.map(FarmId::from_uuid).transpose().map_err(wrong("farm_id"))?,
        barn_id: maybe("barn_id")?.map(BarnId::from_uuid).transpose().map_err(wrong("barn_id"))?,
        device_id: maybe("device_id")?
            .map(DeviceId::from_uuid)
            .transpose()
            .map_err(wrong("device_id"))?,
        session_id: maybe("session_id")?
            .map(SessionId::from_uuid)
            .transpose()
            .map_err(wrong("session_id"))?,
        occurred_at: row.try_get::<_, Timestamp>("happened_at").map_err(column("occurred_at"))?,
        trace_id: row.try_get("trace_id").map_err(column("trace_id"))?,
        payload: RawValue::from_string(text).map_err(|_| "payload_json is not JSON".to_owned())?,
    };
    let stream: Option<String> = row.try_get("stream").map_err(column("stream"))?;
    let seq: Option<i64> = row.try_get("seq").map_err(column("seq"))?;
    let place = match (stream, maybe("epoch")?, seq) {
        (Some(stream), Some(epoch), Some(seq)) => {
            Some(Place { stream, epoch: Epoch::from_uuid(epoch).map_err(wrong("epoch"))?, seq })
        }
        _ => None,
    };
    let element = Element { event: &envelope, place };
    let json = serde_json::value::to_raw_value(&element)
        .map_err(|_| "the row makes no JSON".to_owned())?;
    Ok(Outgoing {
        event_id: envelope.event_id,
        tenant: envelope.tenant_id,
        about_sync: [EventType::SYNC_BATCH_SENT, EventType::SYNC_BATCH_ACKED]
            .contains(&envelope.event_type),
        age_seconds: row.try_get("age_seconds").map_err(column("created_at"))?,
        json,
    })
}
