//! Changes of the ledger and the outbox after which the tiers agree, each with its audit.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use event::id::{NodeId, TenantId};
use event::ledger::{FrontierError, MAX_SEQ, RangeSet, Ranges, Repair, Repaired};
use pg::Transaction;
use serde_json::json;
use uuid::Uuid;

use crate::ingress::{WriteError, rows};
use crate::sync::admin::Actor;

/// The most ranges of each kind in one repair.
pub const MAX_REPAIR_RANGES: usize = 10_000;
/// The most outbox rows that one repair puts back.
pub const MAX_RESENT_ROWS: i64 = 100_000;

/// Why a repair was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such node among these tenants.
    #[error("there is no node {0}: enrol it first, as holdfast edge enroll does")]
    UnknownNode(NodeId),
    /// A list is not one of ranges.
    #[error("{0} is not a list of at most {MAX_REPAIR_RANGES} ascending ranges of sequences")]
    Ranges(&'static str),
    /// The ledger cannot take it.
    #[error(transparent)]
    Frontier(#[from] FrontierError),
    /// The ledger's row is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Error {
        match error {
            WriteError::Database(error) => Error::Database(error),
            other => Error::Damaged(other.to_string()),
        }
    }
}

/// Does what a comparison asks for, in one transaction.
pub async fn repair(
    pool: &pg::Pool,
    tenants: &Tenants,
    actor: &Actor,
    what: &Repair,
) -> Result<Repaired, Error> {
    for (name, ranges) in [
        ("resend", &what.resend),
        ("adopt", &what.adopt),
        ("adopt_lost", &what.adopt_lost),
        ("resync", &what.resync),
        ("retell", &what.retell),
    ] {
        check(name, ranges)?;
    }
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let owner = "SELECT tenant_id FROM nodes WHERE node_id = $1";
    let owner = transaction.query_opt(owner, &[&what.stream.as_str()]).await?;
    let tenant = owner
        .and_then(|row| TenantId::from_uuid(row.get(0)).ok())
        .filter(|tenant| tenants.allow(*tenant))
        .ok_or_else(|| Error::UnknownNode(what.stream.clone()))?;

    let stream = (what.stream.clone(), what.epoch);
    let streams = BTreeMap::from([(stream.clone(), tenant)]);
    let mut accounts = rows::lock_frontiers(&transaction, &streams).await?;
    let account = accounts.entry(stream).or_default();
    let mut done = Repaired { dry_run: what.dry_run, ..Repaired::default() };
    let (mut adopted, mut lost) = (RangeSet::new(), RangeSet::new());
    for &(from, to) in &what.adopt {
        for (from, to) in account.frontier.received().clone().missing(from, to) {
            done.adopted += account.frontier.observe_range(from, to)?;
            adopted.insert(from, to);
        }
    }
    for &(from, to) in &what.adopt_lost {
        let newly = account.frontier.declare_lost(from, to)?;
        if newly > 0 {
            done.adopted_lost += newly;
            lost.insert(from, to);
        }
    }
    account.changed = done.adopted + done.adopted_lost > 0;
    let asked = unaccounted(&what.resend, account.frontier.received(), account.frontier.lost());
    done.asked = asked.count();

    let place = Place { tenant, stream: what.stream.as_str(), epoch: what.epoch.uuid() };
    bury(&transaction, &place, &adopted, "held_by_cloud", "edge").await?;
    bury(&transaction, &place, &lost, "lost", "cloud").await?;
    request(&transaction, &place, &asked, actor.name()).await?;
    rows::write_frontiers(&transaction, &accounts).await?;
    let audit_id: i64 = transaction
        .query_one(
            "INSERT INTO sync_audit (action, via, actor, filter, rows)
             VALUES ('verify_repair', $1, $2, $3, 1) RETURNING id",
            &[&actor.via(), &actor.name(), &actor.noted(json!(what))],
        )
        .await?
        .try_get(0)?;
    resync(&transaction, &place, what, audit_id, &mut done).await?;
    let changes = i64::try_from(done.changes()).unwrap_or(i64::MAX);
    if what.dry_run || changes == 0 {
        transaction.rollback().await?;
        return Ok(done);
    }
    let note = "UPDATE sync_audit SET rows = $2 WHERE id = $1";
    transaction.execute(note, &[&audit_id, &changes]).await?;
    transaction.execute("SELECT pg_notify('sync_outbox', '')", &[]).await?;
    transaction.commit().await?;
    done.audit_id = Some(audit_id);
    tracing::info!(stream = %what.stream, actor = actor.name(), ?done, "the ledger was repaired");
    Ok(done)
}

fn check(name: &'static str, ranges: &Ranges) -> Result<(), Error> {
    let mut lowest = 1;
    for &(from, to) in ranges {
        if from < lowest || to < from || to > MAX_SEQ {
            return Err(Error::Ranges(name));
        }
        lowest = to.saturating_add(1);
    }
    match ranges.len() <= MAX_REPAIR_RANGES {
        true => Ok(()),
        false => Err(Error::Ranges(name)),
    }
}

/// Of these ranges, what is neither received nor lost.
pub(super) fn unaccounted(ranges: &Ranges, received: &RangeSet, lost: &RangeSet) -> RangeSet {
    let wanted: RangeSet = ranges.iter().copied().collect();
    wanted.difference(received).difference(lost)
}

struct Place<'a> {
    tenant: TenantId,
    stream: &'a str,
    epoch: Uuid,
}

fn columns(ranges: &[(u64, u64)]) -> (Vec<i64>, Vec<i64>) {
    let bigint = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    ranges.iter().map(|&(from, to)| (bigint(from), bigint(to))).unzip()
}

/// Writes tombstones that the cloud need not be told of: it is where they come from.
async fn bury(
    transaction: &Transaction<'_>,
    place: &Place<'_>,
    ranges: &RangeSet,
    reason: &str,
    origin: &str,
) -> Result<(), Error> {
    let (from, to) = columns(ranges.ranges());
    transaction
        .execute(
            "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
                 reason, origin, sent_at)
             SELECT $1, $2, $3, a, b, b - a + 1, $6, $7, now()
             FROM unnest($4::bigint[], $5::bigint[]) AS r(a, b) ON CONFLICT DO NOTHING",
            &[&place.tenant.uuid(), &place.stream, &place.epoch, &from, &to, &reason, &origin],
        )
        .await?;
    Ok(())
}

async fn request(
    transaction: &Transaction<'_>,
    place: &Place<'_>,
    ranges: &RangeSet,
    by: &str,
) -> Result<(), Error> {
    let (from, to) = columns(ranges.ranges());
    transaction
        .execute(
            "INSERT INTO ledger_resend (stream, epoch, from_seq, to_seq, requested_by)
             SELECT $1, $2, a, b, $5 FROM unnest($3::bigint[], $4::bigint[]) AS r(a, b)
             ON CONFLICT (stream, epoch, from_seq, to_seq) DO UPDATE SET closed_at = NULL
             WHERE ledger_resend.closed_at IS NOT NULL",
            &[&place.stream, &place.epoch, &from, &to, &by],
        )
        .await?;
    Ok(())
}

const PUT_BACK: &str = "WITH picked AS (
    SELECT o.id, o.tenant_id, o.status, o.attempt_count, o.last_attempt_at, o.last_error_code,
        o.last_error_message, o.failed_at, o.dlq_reason, o.claimed_by, o.lease_expires_at
    FROM sync_outbox o JOIN unnest($3::bigint[], $4::bigint[]) AS r(a, b)
        ON o.seq BETWEEN r.a AND r.b
    WHERE o.stream = $1 AND o.epoch = $2 AND o.status = 'acked'
    ORDER BY o.id LIMIT $6 FOR UPDATE OF o SKIP LOCKED),
noted AS (
    INSERT INTO sync_audit_row (audit_id, outbox_id, tenant_id, status, attempt_count,
        last_attempt_at, last_error_code, last_error_message, failed_at, dlq_reason, claimed_by,
        lease_expires_at)
    SELECT $5, picked.* FROM picked),
changed AS (
    UPDATE sync_outbox o SET status = 'pending', attempt_count = 0,
        next_attempt_at = clock_timestamp(), updated_at = now(), last_attempt_at = NULL,
        last_error_code = NULL, last_error_message = NULL, claimed_by = NULL, claimed_at = NULL,
        lease_expires_at = NULL, lease_token = NULL
    FROM picked WHERE o.id = picked.id RETURNING 1)
SELECT count(*) FROM changed";

/// The trace is not in the store; the rest of a reading is.
const REBUILD: &str = "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id,
    event_type, occurred_at, payload_json, payload_size_bytes, priority, stream, epoch, seq)
SELECT t.id, t.tenant_id, t.farm_id, t.barn_id, t.device_id, 'telemetry.ingested', t.occurred_at,
    p.payload, octet_length(p.payload::text), 0, t.stream, t.epoch, t.seq
FROM telemetry_raw t
JOIN unnest($3::bigint[], $4::bigint[]) AS r(a, b) ON t.seq BETWEEN r.a AND r.b
CROSS JOIN LATERAL (SELECT jsonb_strip_nulls(jsonb_build_object('metric_type', t.metric_type,
    'metric_value', t.metric_value, 'unit', t.unit, 'quality', t.quality)) AS payload) p
WHERE t.stream = $1 AND t.epoch = $2 AND NOT EXISTS (SELECT FROM sync_outbox o WHERE o.id = t.id)
LIMIT $5
ON CONFLICT DO NOTHING";

const RETELL: &str = "UPDATE ledger_tombstone t SET sent_at = NULL, send_error = NULL
FROM unnest($3::bigint[], $4::bigint[]) AS r(a, b)
WHERE t.stream = $1 AND t.epoch = $2 AND t.from_seq <= r.b AND t.to_seq >= r.a
    AND t.sent_at IS NOT NULL AND t.origin <> 'cloud' AND t.reason <> 'held_by_cloud'";

/// Sends events and tombstones to the cloud again.
async fn resync(
    transaction: &Transaction<'_>,
    place: &Place<'_>,
    what: &Repair,
    audit_id: i64,
    done: &mut Repaired,
) -> Result<(), Error> {
    let (stream, epoch, limit) = (place.stream, place.epoch, MAX_RESENT_ROWS);
    if !what.retell.is_empty() {
        let (from, to) = columns(&what.retell);
        done.retold = transaction.execute(RETELL, &[&stream, &epoch, &from, &to]).await?;
    }
    if what.resync.is_empty() {
        return Ok(());
    }
    let (from, to) = columns(&what.resync);
    let put_back = transaction
        .query_one(PUT_BACK, &[&stream, &epoch, &from, &to, &audit_id, &limit])
        .await?
        .get::<_, i64>(0);
    done.rebuilt = transaction.execute(REBUILD, &[&stream, &epoch, &from, &to, &limit]).await?;
    done.resent = put_back.unsigned_abs() + done.rebuilt;
    Ok(())
}
