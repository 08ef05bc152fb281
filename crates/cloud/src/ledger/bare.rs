//! Events by id: counted by hour, and looked up where the counts differ.

use event::id::{EventId, TenantId};
use event::ledger::HourState;
use jiff::Timestamp;
use uuid::Uuid;

/// The most hours that are counted at once.
pub const MAX_HOURS: usize = 10_000;
/// The most events that are looked up at once.
pub const MAX_LOOKED_UP: usize = 1_000;

/// As the edge counts, but of every event: the cache does not know sequences.
const HOURS: &str = "SELECT hour, count(*), to_hex(bit_xor(mark))
FROM (SELECT CASE WHEN substr(event_id::text, 15, 1) = '7'
            THEN ('x' || substr(translate(event_id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000
            ELSE -1 END AS hour,
        ('x' || substr(md5(event_id::text), 1, 16))::bit(64)::bigint AS mark
    FROM ingest_dedupe WHERE tenant_id = $1) e
WHERE hour = ANY($2) GROUP BY 1 ORDER BY 1";

/// Count and hash of the event ids that ingestion remembers, of some hours, at most [`MAX_HOURS`].
pub async fn hours(
    pool: &pg::Pool,
    tenant: TenantId,
    hours: &[i64],
) -> Result<Vec<HourState>, pg::Error> {
    let client = pool.get().await?;
    let hours = &hours[..hours.len().min(MAX_HOURS)];
    let rows = client.query(HOURS, &[&tenant.uuid(), &hours]).await?;
    let each = rows.iter().map(|row| HourState {
        tenant_id: tenant,
        hour: row.get(0),
        count: row.get::<_, i64>(1).unsigned_abs(),
        hash: row.get(2),
        bare: 0,
    });
    Ok(each.collect())
}

/// The most events that are told at once.
pub const MAX_TOLD: i64 = 10_000;

/// What never has a sequence: weighings, images and results, which a site's services make. An id of version 7 begins with
/// its time.
const TOLD: &str = "SELECT DISTINCT event_id FROM (
    SELECT event_id FROM media_object WHERE tenant_id = $1
    UNION ALL SELECT event_id FROM inference_result WHERE tenant_id = $1
    UNION ALL SELECT created_event_id FROM weighvision_session WHERE tenant_id = $1
    UNION ALL SELECT finalized_event_id FROM weighvision_session WHERE tenant_id = $1
    UNION ALL SELECT cancelled_event_id FROM weighvision_session WHERE tenant_id = $1) e
WHERE event_id >= $2 AND substr(event_id::text, 15, 1) = '7' ORDER BY 1 LIMIT $3";

/// Events of weighings, images and results that were made since a time and are stored, the earliest [`MAX_TOLD`].
pub async fn told(
    pool: &pg::Pool,
    tenant: TenantId,
    since: Timestamp,
) -> Result<Vec<EventId>, pg::Error> {
    let client = pool.get().await?;
    let since = u128::try_from(since.as_millisecond()).unwrap_or_default();
    let first = Uuid::from_u128(since << 80);
    let rows = client.query(TOLD, &[&tenant.uuid(), &first, &MAX_TOLD]).await?;
    Ok(rows.iter().filter_map(|row| EventId::from_uuid(row.get(0)).ok()).collect())
}

const REMEMBERED: &str =
    "SELECT event_id FROM ingest_dedupe WHERE tenant_id = $1 AND event_id = ANY($2)";

/// Tables by their event's id, for what the cache has forgotten.
const STORED: &str = "SELECT event_id FROM relay_outbox WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT event_id FROM event_journal WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT event_id FROM telemetry_reading WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT event_id FROM inference_result WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT event_id FROM media_object WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT created_event_id FROM weighvision_session
    WHERE tenant_id = $1 AND created_event_id = ANY($2)
UNION ALL SELECT finalized_event_id FROM weighvision_session
    WHERE tenant_id = $1 AND finalized_event_id = ANY($2)
UNION ALL SELECT cancelled_event_id FROM weighvision_session
    WHERE tenant_id = $1 AND cancelled_event_id = ANY($2)
UNION ALL SELECT event_id FROM stored_event WHERE tenant_id = $1 AND event_id = ANY($2)
UNION ALL SELECT sent_event_id FROM sync_batch WHERE tenant_id = $1 AND sent_event_id = ANY($2)
UNION ALL SELECT acked_event_id FROM sync_batch WHERE tenant_id = $1 AND acked_event_id = ANY($2)";

/// Which of these events, at most [`MAX_LOOKED_UP`], are nowhere in the cloud.
pub async fn lacking(
    pool: &pg::Pool,
    tenant: TenantId,
    events: &[EventId],
) -> Result<Vec<EventId>, pg::Error> {
    let client = pool.get().await?;
    let mut lacking: Vec<EventId> = events.iter().take(MAX_LOOKED_UP).copied().collect();
    for table in [REMEMBERED, STORED] {
        if lacking.is_empty() {
            break;
        }
        let ids: Vec<Uuid> = lacking.iter().map(|event| event.uuid()).collect();
        let found = client.query(table, &[&tenant.uuid(), &ids]).await?;
        let found: Vec<Uuid> = found.iter().map(|row| row.get(0)).collect();
        lacking.retain(|event| !found.contains(&event.uuid()));
    }
    Ok(lacking)
}
