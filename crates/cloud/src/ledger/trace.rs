//! Where one event is in the cloud.

use api::tokens::Tenants;
use event::id::EventId;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::states::scope;

/// An event as the cloud knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CloudTrace {
    /// When ingestion accepted it; absent when the cache has forgotten it.
    pub accepted_at: Option<Timestamp>,
    /// Its row in the relay; absent once the bus has confirmed it.
    pub relay: Option<Relay>,
    /// The consumers' tables that have it.
    pub stored: Vec<Stored>,
    /// What consumers gave up.
    pub dead_letters: Vec<DeadLetter>,
    /// What ingestion refused.
    pub rejected: Vec<Rejected>,
}

/// A row of the relay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Relay {
    /// Its state.
    pub status: String,
    /// When ingestion wrote it.
    pub created_at: Timestamp,
    /// Attempts that counted.
    pub attempt_count: i32,
    /// The last one.
    pub last_attempt_at: Option<Timestamp>,
    /// Why that failed.
    pub last_error_code: Option<String>,
    /// Why it was given up.
    pub dlq_reason: Option<String>,
}

/// A table that has the event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stored {
    /// The table.
    pub table: String,
    /// Since when; some tables do not say.
    pub at: Option<Timestamp>,
}

/// A message that a consumer gave up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadLetter {
    /// Whose queue.
    pub queue: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub cause_code: String,
}

/// An event that ingestion refused.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rejected {
    /// When last.
    pub at: Timestamp,
    /// Why.
    pub code: String,
}

const ACCEPTED: &str = "SELECT first_seen_at FROM ingest_dedupe
WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) LIMIT 1";
const RELAY: &str = "SELECT status, created_at, attempt_count, last_attempt_at, last_error_code,
    dlq_reason
FROM relay_outbox WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) LIMIT 1";
const DEAD: &str = "SELECT queue, dead_lettered_at, cause_code FROM bus_dead_letter
WHERE message_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) ORDER BY queue LIMIT 10";
const REJECTED: &str = "SELECT last_at, code FROM ingest_rejected
WHERE event_id = $1 AND tenant_id IS NOT NULL AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
ORDER BY last_at DESC LIMIT 10";

/// Tables by their event's id; the partitioned ones are quick when the time is known.
const STORED: &str = "SELECT 'telemetry_reading', stored_at FROM telemetry_reading
    WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
        AND ($3::timestamptz IS NULL OR occurred_at = $3)
UNION ALL SELECT 'event_journal', stored_at FROM event_journal
    WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
        AND ($3::timestamptz IS NULL OR occurred_at = $3)
UNION ALL SELECT 'kpi_seen', NULL FROM kpi_seen
    WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
        AND ($3::timestamptz IS NULL OR occurred_at = $3)
UNION ALL SELECT 'weighvision_session', updated_at FROM weighvision_session
    WHERE (created_event_id = $1 OR finalized_event_id = $1 OR cancelled_event_id = $1)
        AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
UNION ALL SELECT 'inference_result', stored_at FROM inference_result
    WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
UNION ALL SELECT 'media_object', stored_at FROM media_object
    WHERE event_id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
UNION ALL SELECT 'sync_batch', stored_at FROM sync_batch
    WHERE (sent_event_id = $1 OR acked_event_id = $1)
        AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))
LIMIT 20";

/// Looks an event up; `None` if these tenants have nothing of this id here. `occurred_at` makes the search quick.
pub async fn trace(
    pool: &pg::Pool,
    tenants: &Tenants,
    event: EventId,
    occurred_at: Option<Timestamp>,
) -> Result<Option<CloudTrace>, pg::Error> {
    let client = pool.get().await?;
    let (id, scope): (Uuid, _) = (event.uuid(), scope(tenants));
    let accepted = client.query_opt(ACCEPTED, &[&id, &scope]).await?;
    let relay = client.query_opt(RELAY, &[&id, &scope]).await?;
    let stored = client.query(STORED, &[&id, &scope, &occurred_at]).await?;
    let dead = client.query(DEAD, &[&id.to_string(), &scope]).await?;
    let rejected = client.query(REJECTED, &[&id, &scope]).await?;
    let found = CloudTrace {
        accepted_at: accepted.map(|row| row.get(0)),
        relay: relay.map(|row| Relay {
            status: row.get(0),
            created_at: row.get(1),
            attempt_count: row.get(2),
            last_attempt_at: row.get(3),
            last_error_code: row.get(4),
            dlq_reason: row.get(5),
        }),
        stored: stored.iter().map(|row| Stored { table: row.get(0), at: row.get(1) }).collect(),
        dead_letters: dead
            .iter()
            .map(|row| DeadLetter { queue: row.get(0), at: row.get(1), cause_code: row.get(2) })
            .collect(),
        rejected: rejected
            .iter()
            .map(|row| Rejected { at: row.get(0), code: row.get(1) })
            .collect(),
    };
    Ok((found != CloudTrace::default()).then_some(found))
}
