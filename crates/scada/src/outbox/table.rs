//! `outbox_events` as leased work, and how a row becomes a message.

use std::collections::BTreeMap;

use bus::Message;
use bytes::Bytes;
use lease::{Kind, Lease, Queue, RowLease, Table};
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::write::Headers;

/// The name in logs and metrics.
const QUEUE: &str = "scada_outbox";
/// The NOTIFY channel that says that the outbox has new rows.
const CHANNEL: &str = "outbox_events";
/// The envelope's schema version, on the message. Consumers go by it.
const SCHEMA_VERSION: &str = "schema_version";

pub(super) fn queue() -> Queue<Message> {
    Queue::new(QUEUE, table(), read).channel(CHANNEL)
}

/// What a historian sends on to a second one: the same columns, and a row is deleted when it is delivered.
pub(crate) fn federation_queue() -> Queue<Message> {
    let table = Table { name: "federation_outbox", done: None, done_at: None, ..table() };
    Queue::new("scada_federation", table, read)
}

fn table() -> Table {
    Table {
        name: "outbox_events",
        id: "id",
        id_kind: Kind::Uuid,
        // Of no meaning, but of a column, or it were no condition of the index.
        tenant: "(0 * length(aggregate_type))",
        tenant_kind: Kind::Bigint,
        rank: "(CASE aggregate_type WHEN 'alarm' THEN 0 WHEN 'event' THEN 1 ELSE 2 END)",
        key: "(aggregate_id::text COLLATE \"C\")",
        key_kind: Kind::Text,
        at: Some("created_at"),
        status: "status",
        pending: "PENDING",
        done: Some("SENT"),
        buried: "FAILED",
        unfinished: Some("NOT finished"),
        lease: Lease::Row(RowLease {
            claimed: "IN_PROGRESS",
            sending: None,
            token: "lease_token",
            holder: "locked_by",
            held_since: "locked_at",
            expires: "lock_expires_at",
        }),
        attempts: "retry_count",
        due: "available_at",
        last_attempt: None,
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: Some("sent_at"),
        buried_at: Some("failed_at"),
        buried_reason: Some("failed_reason"),
        touched: None,
        payload: "id AS event_id, event_type, payload::text AS body, headers",
    }
}

/// The text of an error names columns, never their values.
fn read(row: &Row) -> Result<Message, String> {
    let column = |name: &'static str| move |_| format!("{name} cannot be read");
    let id: Uuid = row.try_get("event_id").map_err(column("id"))?;
    let event_type: &str = row.try_get("event_type").map_err(column("event_type"))?;
    let body: String = row.try_get("body").map_err(column("payload"))?;
    let Json(headers): Json<Headers> = row.try_get("headers").map_err(column("headers"))?;
    let named = [
        ("correlation_id", headers.correlation_id),
        ("trace_id", headers.trace_id),
        (SCHEMA_VERSION, headers.schema_version),
        ("source_timestamp", headers.source_timestamp),
    ];
    let named: BTreeMap<String, String> =
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Message {
        key: Some(headers.partition_key),
        headers: named,
        ..Message::json(headers.topic, event_type.to_owned(), id.to_string(), Bytes::from(body))
    })
}
