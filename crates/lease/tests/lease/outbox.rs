//! `sync_outbox` as the site has it, on the engine: what the forwarder takes over.

use lease::{Kind, Lease, Queue, RowLease, Table};
use uuid::Uuid;

use crate::site::Mode;

/// The table, from the site's own migration.
pub(crate) const SITE_TABLES: &str = include_str!("../../../edge/migrations/V1__site_tables.sql");

/// What leased work adds to it. As the site's later migrations, but with one lane index for all
/// priorities.
pub(crate) const LEASED_WORK: &str = "
ALTER TABLE sync_outbox ADD COLUMN finished boolean NOT NULL
    GENERATED ALWAYS AS (status IN ('acked', 'dlq', 'failed')) STORED;
DROP INDEX sync_outbox_work, sync_outbox_lease_expiry, sync_outbox_claim;
CREATE INDEX sync_outbox_work ON sync_outbox (next_attempt_at, occurred_at) WHERE NOT finished;
CREATE INDEX sync_outbox_lane ON sync_outbox
    (tenant_id, (-priority), (coalesce(device_id, id)), (coalesce(occurred_at, created_at)), id)
    WHERE NOT finished;
DROP TRIGGER sync_outbox_updated_at ON sync_outbox;
CREATE TRIGGER sync_outbox_updated_at BEFORE UPDATE ON sync_outbox
    FOR EACH ROW WHEN (NEW.updated_at = OLD.updated_at) EXECUTE FUNCTION sync_outbox_touch();

ALTER TABLE sync_outbox ADD CONSTRAINT sync_outbox_fence
    CHECK ((status IN ('claimed', 'sending')) = (lease_token IS NOT NULL));

CREATE FUNCTION sync_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('sync_outbox', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER sync_outbox_added AFTER INSERT ON sync_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION sync_outbox_notify();
";

/// What goes when lanes have the leases.
pub(crate) const NO_ROW_LEASES: &str = "
ALTER TABLE sync_outbox DROP CONSTRAINT sync_outbox_fence, DROP COLUMN lease_token CASCADE,
    DROP COLUMN claimed_by CASCADE, DROP COLUMN claimed_at CASCADE, DROP COLUMN lease_expires_at CASCADE;
";

/// The lanes, where they have the leases.
pub(crate) const LANES: &str = "sync_lane";

/// The channel that the trigger notifies.
pub(crate) const CHANNEL: &str = "sync_outbox";

/// The table as the engine needs it described.
pub(crate) fn table(mode: Mode) -> Table {
    let row = RowLease {
        claimed: "claimed",
        sending: Some("sending"),
        token: "lease_token",
        holder: "claimed_by",
        held_since: "claimed_at",
        expires: "lease_expires_at",
    };
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
        unfinished: Some("NOT finished"),
        lease: match mode {
            Mode::Row => Lease::Row(row),
            Mode::Lane => Lease::Lane(LANES),
        },
        attempts: "attempt_count",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: Some("failed_at"),
        buried_reason: Some("dlq_reason"),
        touched: Some("updated_at"),
        payload: "tenant_id, device_id, event_type, payload_json::text AS payload, seq",
    }
}

/// A row as the handler gets it.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Whose.
    pub(crate) tenant: Uuid,
    /// The ordering key, where it has one.
    pub(crate) device: Option<Uuid>,
    /// Its place in the order of its device, as the test wrote it.
    pub(crate) seq: i64,
}

/// The queue.
pub(crate) fn queue(mode: Mode, name: &'static str) -> Queue<Event> {
    Queue::new(name, table(mode), |row| {
        let read = || -> Result<Event, tokio_postgres::Error> {
            Ok(Event {
                tenant: row.try_get("tenant_id")?,
                device: row.try_get("device_id")?,
                seq: row.try_get::<_, Option<i64>>("seq")?.unwrap_or_default(),
            })
        };
        read().map_err(|error| error.to_string())
    })
    .channel(CHANNEL)
}
