//! `capture_session` as leased work.
//!
//! The engine writes `lease_state` and the columns beside it; the schema's trigger keeps `state` and `error` in step. A session is a lane
//! of its own, and the rank puts all that are pending before any that is stale.

use lease::{Kind, Lease, Queue, RowLease, Table};
use tokio_postgres::Row;
use uuid::Uuid;

/// The name in logs and metrics.
const QUEUE: &str = "schedule_capture";

/// A claimed session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The session.
    pub session: Uuid,
    /// Whose schedule it shows.
    pub user_id: i64,
    /// Which in the order of the database it was opened; a session never undoes what a later one saw. No clock has a part in this.
    pub opened: i64,
}

pub(super) fn queue() -> Queue<Claimed> {
    Queue::new(QUEUE, table(), read)
}

/// The sessions as leased work.
pub fn table() -> Table {
    Table {
        name: "schedule_ingest.capture_session",
        id: "id",
        id_kind: Kind::Uuid,
        // Of no meaning, but of a column, or it were no condition of the index.
        tenant: "(0 * user_id)",
        tenant_kind: Kind::Bigint,
        rank: "(CASE state WHEN 'pending' THEN 0 ELSE 1 END)",
        key: "id",
        key_kind: Kind::Uuid,
        at: Some("created_at"),
        status: "lease_state",
        pending: "pending",
        done: Some("done"),
        buried: "failed",
        unfinished: Some("finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed')"),
        lease: Lease::Row(RowLease {
            claimed: "claimed",
            sending: None,
            token: "lease_token",
            holder: "locked_by",
            held_since: "locked_at",
            expires: "lease_expires_at",
        }),
        attempts: "attempts",
        due: "available_at",
        last_attempt: None,
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: None,
        buried_reason: None,
        touched: None,
        payload: "id AS session_id, user_id, opened_seq",
    }
}

/// The text of an error names columns, never their values.
fn read(row: &Row) -> Result<Claimed, String> {
    let column = |name: &'static str| move |_| format!("{name} cannot be read");
    Ok(Claimed {
        session: row.try_get("session_id").map_err(column("id"))?,
        user_id: row.try_get("user_id").map_err(column("user_id"))?,
        opened: row.try_get("opened_seq").map_err(column("opened_seq"))?,
    })
}
