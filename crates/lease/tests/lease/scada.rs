//! The other shape: `outbox_events` of a SCADA node, with text keys, no tenants and no priorities.

use lease::backoff::Backoff;
use lease::{Batch, Handler, Kind, Lease, Outcome, Queue, RowLease, Table, Verdict, Worker};

use crate::site::{Mode, Site};

/// The documented table, with the two columns that leases add.
const OUTBOX_EVENTS: &str = "
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
    event_type text NOT NULL, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'PENDING',
    retry_count integer NOT NULL DEFAULT 0, available_at timestamptz NOT NULL DEFAULT now(),
    locked_by text, locked_at timestamptz, sent_at timestamptz, last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    lease_token uuid, lease_expires_at timestamptz, last_error_code text,
    CHECK (status IN ('PENDING', 'IN_PROGRESS', 'SENT', 'FAILED')),
    CHECK ((status = 'IN_PROGRESS') = (lease_token IS NOT NULL))
);
CREATE INDEX idx_outbox_status_available ON outbox_events (status, available_at);
";

fn table() -> Table {
    Table {
        name: "outbox_events",
        id: "id",
        id_kind: Kind::Uuid,
        tenant: "aggregate_type",
        tenant_kind: Kind::Text,
        // Of no meaning, but of a column, because an index needs one.
        rank: "(0 * retry_count)",
        key: "aggregate_id",
        key_kind: Kind::Text,
        at: Some("created_at"),
        status: "status",
        pending: "PENDING",
        done: Some("SENT"),
        buried: "FAILED",
        unfinished: None,
        lease: Lease::Row(RowLease {
            claimed: "IN_PROGRESS",
            sending: None,
            token: "lease_token",
            holder: "locked_by",
            held_since: "locked_at",
            expires: "lease_expires_at",
        }),
        attempts: "retry_count",
        due: "available_at",
        last_attempt: None,
        error_code: "last_error_code",
        error_message: "last_error",
        done_at: Some("sent_at"),
        buried_at: None,
        buried_reason: None,
        touched: None,
        payload: "event_type, payload::text AS payload",
    }
}

/// Refuses one event for good, and every other one once.
struct Broker;

impl Handler<String> for Broker {
    async fn handle(&self, batch: Batch<String>) -> Verdict {
        let mut failed: Option<lease::Lane> = None;
        let outcomes = batch.items.iter().map(|item| {
            let text = |word: &str| word.to_owned();
            if item.row == "poison" {
                let (reason, code) = (text("refused"), text("RECORD_TOO_LARGE"));
                return Outcome::Bury { reason, code, message: text("too large") };
            }
            if failed.as_ref() == Some(&item.lane) {
                return Outcome::NotTried;
            }
            if item.attempts == 0 {
                failed = Some(item.lane.clone());
                return Outcome::Retry { code: text("NOT_LEADER"), message: text("moved") };
            }
            Outcome::Done
        });
        Verdict::each(outcomes.collect())
    }
}

#[tokio::test]
async fn the_other_shape_works_with_the_same_engine() {
    let site = Site::new(Mode::Row, "scada").await;
    site.client.batch_execute(OUTBOX_EVENTS).await.unwrap();
    site.client.batch_execute(&table().lane_index("idx_outbox_lane")).await.unwrap();
    let fill = "INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
        SELECT gen_random_uuid(), 'tag', 'plant.area.unit.' || n % 4,
          CASE n WHEN 17 THEN 'poison' ELSE 'telemetry' END, '{}' FROM generate_series(1, 40) n";
    site.client.batch_execute(fill).await.unwrap();
    let queue =
        Queue::new("scada", table(), |row| row.try_get("event_type").map_err(|e| e.to_string()));
    let mut options = site.options("w");
    options.backoff = Backoff::Schedule(vec![std::time::Duration::from_millis(1)]);
    let worker = Worker::start(&site.address, queue, Broker, options).unwrap();
    site.until(
        "SELECT count(*) FROM outbox_events WHERE status = 'SENT' AND sent_at IS NOT NULL
        AND locked_by IS NULL AND retry_count = 1",
        39,
    )
    .await;
    site.until(
        "SELECT count(*) FROM outbox_events WHERE status = 'FAILED' AND event_type = 'poison'
        AND last_error_code = 'RECORD_TOO_LARGE' AND retry_count = 1",
        1,
    )
    .await;
    worker.stop().await;
}
