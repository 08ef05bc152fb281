//! `schedule_notification` as leased work. The lease stands on the user, so that a message is `pending` until it is sent or failed, which is all
//! that a bot knows of.

use jiff::Timestamp;
use jiff::civil::Date;
use lease::{Kind, Lease, Queue, Table};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

/// The name in logs and metrics.
const QUEUE: &str = "schedule_notification";
/// What the schema notifies when messages were added.
const CHANNEL: &str = "schedule_notification";

/// A message on its way. As JSON it is the body of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The same however often it is sent.
    pub notification_id: String,
    /// Whom it is for.
    pub user_id: i64,
    /// Which day it is about.
    pub schedule_date: Date,
    /// The session that found it.
    pub source_session_id: Uuid,
    /// `event` or `summary`.
    pub notification_type: String,
    /// The words.
    pub message: String,
    /// The events it tells of.
    pub event_ids: serde_json::Value,
    /// When it was written.
    pub created_at: Timestamp,
}

pub(super) fn queue() -> Queue<Message> {
    Queue::new(QUEUE, table(), read).channel(CHANNEL)
}

/// The messages as leased work.
pub fn table() -> Table {
    Table {
        name: "schedule_ingest.schedule_notification",
        id: "delivery_seq",
        id_kind: Kind::Bigint,
        tenant: "user_id",
        tenant_kind: Kind::Bigint,
        rank: "(0 * attempts)",
        key: "user_id",
        key_kind: Kind::Bigint,
        at: None,
        status: "status",
        pending: "pending",
        done: Some("sent"),
        buried: "failed",
        unfinished: None,
        lease: Lease::Lane("schedule_ingest.notification_lane"),
        attempts: "attempts",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: Some("sent_at"),
        buried_at: Some("failed_at"),
        buried_reason: Some("failed_reason"),
        touched: None,
        payload: "notification_id, user_id, schedule_date, source_session_id, notification_type, message, event_ids, created_at",
    }
}

/// The text of an error names columns, never their values.
fn read(row: &Row) -> Result<Message, String> {
    let column = |name: &'static str| move |_| format!("{name} cannot be read");
    Ok(Message {
        notification_id: row.try_get("notification_id").map_err(column("notification_id"))?,
        user_id: row.try_get("user_id").map_err(column("user_id"))?,
        schedule_date: row.try_get("schedule_date").map_err(column("schedule_date"))?,
        source_session_id: row.try_get("source_session_id").map_err(column("source_session_id"))?,
        notification_type: row.try_get("notification_type").map_err(column("notification_type"))?,
        message: row.try_get("message").map_err(column("message"))?,
        event_ids: row.try_get("event_ids").map_err(column("event_ids"))?,
        created_at: row.try_get("created_at").map_err(column("created_at"))?,
    })
}
