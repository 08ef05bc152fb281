//! Where one event is at the edge.

use api::tokens::Tenants;
use event::id::EventId;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::sync::admin::scope;

/// An event as the edge knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EdgeTrace {
    /// Whose it is.
    pub tenant_id: Option<Uuid>,
    /// The node it came from; absent for an event without a sequence.
    pub stream: Option<String>,
    /// The life of the node's spool.
    pub epoch: Option<Uuid>,
    /// Its sequence.
    pub seq: Option<i64>,
    /// The node's last words: `head`, `acked`, `oldest`, `state`, of whatever life.
    pub node: Option<serde_json::Value>,
    /// When it was sampled.
    pub occurred_at: Option<Timestamp>,
    /// When the edge stored it.
    pub received_at: Option<Timestamp>,
    /// Whether it is in `telemetry_raw`.
    pub stored: bool,
    /// Its outbox row.
    pub outbox: Option<Outbox>,
    /// Its rows in quarantine.
    pub quarantined: Vec<Quarantine>,
}

/// An outbox row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outbox {
    /// Its state.
    pub status: String,
    /// The event's type.
    pub event_type: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it last changed: for an acked row, when the cloud had it.
    pub updated_at: Timestamp,
    /// Attempts that counted.
    pub attempt_count: i32,
    /// The last one.
    pub last_attempt_at: Option<Timestamp>,
    /// Why that failed.
    pub last_error_code: Option<String>,
    /// Why it is a dead letter.
    pub dlq_reason: Option<String>,
}

/// A row in quarantine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quarantine {
    /// When it came first.
    pub received_at: Timestamp,
    /// Why it is there.
    pub reason: String,
    /// In a sentence.
    pub detail: String,
}

const OUTBOX: &str = "SELECT tenant_id, stream, epoch, seq, occurred_at, status, event_type,
    created_at, updated_at, attempt_count, last_attempt_at, last_error_code, dlq_reason
FROM sync_outbox WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))";
const STORED: &str = "SELECT tenant_id, stream, epoch, seq, occurred_at, ingested_at
FROM telemetry_raw WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) LIMIT 1";
const QUARANTINED: &str = "SELECT tenant_id, node_id, epoch, seq, received_at, reason, detail
FROM ingress_quarantine WHERE event_id = $1 AND tenant_id IS NOT NULL
    AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) ORDER BY received_at LIMIT 10";

/// Looks an event up; `None` if these tenants have none of this id here.
pub async fn trace(
    pool: &pg::Pool,
    tenants: &Tenants,
    event: EventId,
) -> Result<Option<EdgeTrace>, pg::Error> {
    let client = pool.get().await?;
    let (id, scope) = (event.uuid(), scope(tenants));
    let mut found = EdgeTrace::default();
    let mut place = |row: &tokio_postgres::Row| {
        found.tenant_id = found.tenant_id.or(row.get(0));
        found.stream = found.stream.take().or(row.get(1));
        found.epoch = found.epoch.or(row.get(2));
        found.seq = found.seq.or(row.get(3));
    };
    let outbox = client.query_opt(OUTBOX, &[&id, &scope]).await?;
    let stored = client.query_opt(STORED, &[&id, &scope]).await?;
    let quarantined = client.query(QUARANTINED, &[&id, &scope]).await?;
    for row in outbox.iter().chain(&stored).chain(&quarantined) {
        place(row);
    }
    if let Some(row) = &outbox {
        found.occurred_at = row.get(4);
        found.received_at = Some(row.get(7));
        found.outbox = Some(Outbox {
            status: row.get(5),
            event_type: row.get(6),
            created_at: row.get(7),
            updated_at: row.get(8),
            attempt_count: row.get(9),
            last_attempt_at: row.get(10),
            last_error_code: row.get(11),
            dlq_reason: row.get(12),
        });
    }
    if let Some(row) = &stored {
        found.stored = true;
        found.occurred_at = Some(row.get(4));
        found.received_at = Some(row.get(5));
    }
    let each = quarantined.iter().map(|row| Quarantine {
        received_at: row.get(4),
        reason: row.get(5),
        detail: row.get(6),
    });
    found.quarantined = each.collect();
    if let Some(stream) = &found.stream {
        let words = "SELECT jsonb_build_object('epoch', status->'epoch', 'head', status->'head',
                'acked', status->'acked', 'oldest', status->'oldest', 'state', status->'state')
            FROM nodes WHERE node_id = $1 AND status IS NOT NULL";
        found.node = client.query_opt(words, &[stream]).await?.map(|row| row.get(0));
    }
    Ok(found.tenant_id.is_some().then_some(found))
}
