//! Events without a sequence: counted by hour, named where the cloud may lack them, and put back.
//!
//! No frontier counts them. What is left to compare is the outbox: a row that is `acked` is one that the cloud said it has.

use api::tokens::Tenants;
use event::id::{EventId, TenantId};
use event::ledger::{HOUR_MS, HourState, NO_HOUR};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::sync::admin::{Actor, scope};

/// The most hours in a page.
pub const MAX_HOURS: i64 = 10_000;
/// The most events in a page.
pub const MAX_ACKED: i64 = 1_000;

/// The hour of an id of version 7 is in the id, so that every tier puts it into the same one.
const HOURS: &str = "SELECT tenant_id, hour, count(*), to_hex(bit_xor(mark)),
    count(*) FILTER (WHERE bare)
FROM (SELECT tenant_id, seq IS NULL AS bare,
        CASE WHEN substr(id::text, 15, 1) = '7'
            THEN ('x' || substr(translate(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000
            ELSE -1 END AS hour,
        ('x' || substr(md5(id::text), 1, 16))::bit(64)::bigint AS mark
    FROM sync_outbox WHERE status = 'acked' AND ($1::uuid[] IS NULL OR tenant_id = ANY($1))) e
WHERE $2::uuid IS NULL OR (tenant_id, hour) > ($2, $3::bigint)
GROUP BY 1, 2 HAVING bool_or(bare) ORDER BY 1, 2 LIMIT $4";

/// Hours with events that have no sequence, after one: count and hash of everything in them that the cloud has acknowledged.
pub async fn hours(
    pool: &pg::Pool,
    tenants: &Tenants,
    after: Option<(TenantId, i64)>,
) -> Result<Vec<HourState>, pg::Error> {
    let client = pool.get().await?;
    let (tenant, hour) = (after.map(|key| key.0.uuid()), after.map(|key| key.1));
    let rows = client.query(HOURS, &[&scope(tenants), &tenant, &hour, &MAX_HOURS]).await?;
    let each = rows.iter().filter_map(|row| {
        Some(HourState {
            tenant_id: TenantId::from_uuid(row.get(0)).ok()?,
            hour: row.get(1),
            count: row.get::<_, i64>(2).unsigned_abs(),
            hash: row.get(3),
            bare: row.get::<_, i64>(4).unsigned_abs(),
        })
    });
    Ok(each.collect())
}

const ACKED: &str = "SELECT id, updated_at FROM sync_outbox
WHERE tenant_id = $1 AND seq IS NULL AND status = 'acked' AND id > $2 AND id >= $3 AND id < $4
    AND (substr(id::text, 15, 1) = '7') = $5
ORDER BY id LIMIT $6";

/// Events of an hour that have no sequence, after one, and when the cloud acknowledged each.
pub async fn acked(
    pool: &pg::Pool,
    tenant: TenantId,
    hour: i64,
    after: Option<EventId>,
) -> Result<Vec<(EventId, Timestamp)>, pg::Error> {
    let client = pool.get().await?;
    let timed = hour != NO_HOUR;
    // An id of version 7 begins with 48 bits of milliseconds.
    let begin = |hour: i64| Uuid::from_u128((u128::from(hour.unsigned_abs()) * HOUR_MS) << 80);
    let (from, to) = match timed {
        true => (begin(hour), begin(hour.saturating_add(1))),
        false => (Uuid::nil(), Uuid::max()),
    };
    let after = after.map_or(Uuid::nil(), |id| id.uuid());
    let rows =
        client.query(ACKED, &[&tenant.uuid(), &after, &from, &to, &timed, &MAX_ACKED]).await?;
    let each =
        rows.iter().filter_map(|row| Some((EventId::from_uuid(row.get(0)).ok()?, row.get(1))));
    Ok(each.collect())
}

const UNKNOWN: &str = "SELECT u.id FROM unnest($2::uuid[]) AS u (id)
WHERE NOT EXISTS (SELECT FROM sync_outbox o WHERE o.id = u.id AND o.tenant_id = $1)
    AND NOT EXISTS (SELECT FROM outbox_archive a WHERE a.id = u.id AND a.tenant_id = $1)
ORDER BY 1";

/// Which of these events the site has never told of, as far as its outbox remembers.
pub async fn unknown(
    pool: &pg::Pool,
    tenant: TenantId,
    events: &[EventId],
) -> Result<Vec<EventId>, pg::Error> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.uuid()).collect();
    let rows = pool.get().await?.query(UNKNOWN, &[&tenant.uuid(), &ids]).await?;
    Ok(rows.iter().filter_map(|row| EventId::from_uuid(row.get(0)).ok()).collect())
}

const PUT_BACK: &str = "WITH picked AS (
    SELECT o.id, o.tenant_id, o.status, o.attempt_count, o.last_attempt_at, o.last_error_code,
        o.last_error_message, o.failed_at, o.dlq_reason, o.claimed_by, o.lease_expires_at
    FROM sync_outbox o
    WHERE o.tenant_id = $1 AND o.id = ANY($2) AND o.seq IS NULL AND o.status = 'acked'
    ORDER BY o.id FOR UPDATE OF o),
noted AS (
    INSERT INTO sync_audit_row (audit_id, outbox_id, tenant_id, status, attempt_count,
        last_attempt_at, last_error_code, last_error_message, failed_at, dlq_reason, claimed_by,
        lease_expires_at)
    SELECT $3, picked.* FROM picked),
changed AS (
    UPDATE sync_outbox o SET status = 'pending', attempt_count = 0,
        next_attempt_at = clock_timestamp(), updated_at = now(), last_attempt_at = NULL,
        last_error_code = NULL, last_error_message = NULL, claimed_by = NULL, claimed_at = NULL,
        lease_expires_at = NULL, lease_token = NULL
    FROM picked WHERE o.id = picked.id RETURNING 1)
SELECT count(*) FROM changed";

/// Sends events of a tenant again that the cloud acknowledged and lacks, at most [`MAX_ACKED`] of them. One transaction with its
/// audit; returns how many. The same again changes nothing more.
pub async fn put_back(
    pool: &pg::Pool,
    actor: &Actor,
    tenant: TenantId,
    events: &[EventId],
    dry_run: bool,
) -> Result<u64, pg::Error> {
    let limit = usize::try_from(MAX_ACKED).unwrap_or(usize::MAX);
    let ids: Vec<Uuid> = events.iter().take(limit).map(|event| event.uuid()).collect();
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let filter = actor.noted(json!({"tenant_id": tenant, "event_ids": ids}));
    let audit_id: i64 = transaction
        .query_one(
            "INSERT INTO sync_audit (action, via, actor, filter, rows)
             VALUES ('verify_repair', $1, $2, $3, 1) RETURNING id",
            &[&actor.via(), &actor.name(), &filter],
        )
        .await?
        .try_get(0)?;
    let put_back = transaction.query_one(PUT_BACK, &[&tenant.uuid(), &ids, &audit_id]).await?;
    let put_back: i64 = put_back.try_get(0)?;
    if dry_run || put_back == 0 {
        transaction.rollback().await?;
        return Ok(put_back.unsigned_abs());
    }
    let note = "UPDATE sync_audit SET rows = $2 WHERE id = $1";
    transaction.execute(note, &[&audit_id, &put_back]).await?;
    transaction.execute("SELECT pg_notify('sync_outbox', '')", &[]).await?;
    transaction.commit().await?;
    tracing::info!(%tenant, actor = actor.name(), put_back, "events without a sequence are sent again");
    Ok(put_back.unsigned_abs())
}
