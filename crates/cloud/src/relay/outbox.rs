//! `relay_outbox` as leased work, and how a row becomes a message.

use std::collections::BTreeMap;

use bus::Message;
use bytes::Bytes;
use event::farm::EventType;
use event::names::amqp;
use lease::{Kind, Lease, Queue, Table};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::RELAY_CHANNEL;
use crate::trace::Traceparent;

/// The name in logs and metrics.
const QUEUE: &str = "relay";

/// A row, ready to go.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    /// The message, without the relay's own span in it.
    pub(super) message: Message,
    /// The trace of the request that brought it.
    pub(super) parent: Traceparent,
}

pub(super) fn queue() -> Queue<Outgoing> {
    Queue::new(QUEUE, table(), read).channel(RELAY_CHANNEL)
}

/// The outbox as leased work.
pub fn table() -> Table {
    Table {
        name: "relay_outbox",
        id: "id",
        id_kind: Kind::Bigint,
        tenant: "tenant_id",
        tenant_kind: Kind::Uuid,
        rank: "(-priority)",
        key: "coalesce(ordering_key, id::text) COLLATE \"C\"",
        key_kind: Kind::Text,
        at: None,
        status: "status",
        pending: "pending",
        done: None,
        buried: "dlq",
        unfinished: Some("NOT finished"),
        lease: Lease::Lane("relay_lane"),
        attempts: "attempt_count",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: Some("failed_at"),
        buried_reason: Some("dlq_reason"),
        touched: Some("updated_at"),
        payload: "event_id, event_type, ordering_key, envelope, trace_id, traceparent, stream, epoch, seq",
    }
}

/// The text of an error names columns, never their values.
fn read(row: &Row) -> Result<Outgoing, String> {
    let column = |name: &'static str| move |_| format!("{name} cannot be read");
    let text = |name: &'static str| row.try_get::<_, Option<String>>(name).map_err(column(name));
    let event_id: Uuid = row.try_get("event_id").map_err(column("event_id"))?;
    let event_type: &str = row.try_get("event_type").map_err(column("event_type"))?;
    let event_type: EventType =
        event_type.parse().map_err(|_| "event_type breaks its grammar".to_owned())?;
    let envelope: Vec<u8> = row.try_get("envelope").map_err(column("envelope"))?;
    let epoch: Option<Uuid> = row.try_get("epoch").map_err(column("epoch"))?;
    let seq: Option<i64> = row.try_get("seq").map_err(column("seq"))?;
    let headers = [
        ("trace_id", text("trace_id")?),
        ("stream", text("stream")?),
        ("epoch", epoch.map(|epoch| epoch.to_string())),
        ("seq", seq.map(|seq| seq.to_string())),
    ];
    let headers: BTreeMap<String, String> =
        headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    // One that cannot be read starts a trace, as on every other hop.
    let parent = text("traceparent")?.and_then(|text| text.parse().ok());
    Ok(Outgoing {
        message: Message {
            key: text("ordering_key")?,
            headers,
            ..Message::json(
                amqp::exchange(&event_type),
                amqp::routing_key(&event_type),
                event_id.to_string(),
                Bytes::from(envelope),
            )
        },
        parent: parent.unwrap_or_else(Traceparent::mint),
    })
}
