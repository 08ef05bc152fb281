//! What ingestion accepted and no store has, and asking for it again.
//!
//! A broker that confirms a message and then loses it leaves an id that ingestion remembers, and nothing else: a second copy from the
//! site is a duplicate. [`unstored`] names such ids, hour by hour; [`ask_again`] notes them, and ingestion publishes a duplicate that
//! is noted. docs/spec/verify.md has the rules.

use std::time::Duration;

use event::id::{EventId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::dead_letters::audit::{self, Actor, Counted, Deed};

/// How old an accepted event must be before it counts as unstored, unless the asker says otherwise: until then it may be in the bus.
pub const GRACE: Duration = Duration::from_secs(600);
/// The most ids that are named of one hour.
pub const MAX_NAMED: usize = 1_000;
/// The most ids of one hour that are looked up in every row of the stores.
const MAX_SUSPECTS: i64 = 100_000;
/// The most ids that are asked for at once.
pub const MAX_ASKED: usize = 1_000;
/// How long after its hour an event is looked for first: it is seldom stored later.
const SOON: SignedDuration = SignedDuration::from_hours(1);

/// One hour of what ingestion accepted, by when it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredHour {
    /// Hours since 1970.
    pub hour: i64,
    /// Events that ingestion accepted in it, remembers, and that are old enough.
    pub remembered: u64,
    /// Of these, accepted before the cloud kept what is needed to tell.
    pub unchecked: u64,
    /// Of these, in no store, not on their way and not given up anywhere.
    pub unstored: u64,
    /// The first [`MAX_NAMED`] of them.
    pub event_ids: Vec<EventId>,
    /// Whether there may be more than could be counted.
    pub more: bool,
}

const COUNT: &str = "SELECT count(*), count(*) FILTER (WHERE first_seen_at < s.since)
FROM ingest_dedupe, (SELECT coalesce(max(since), '-infinity') AS since FROM stored_event_since) s
WHERE tenant_id = $1 AND first_seen_at >= $2 AND first_seen_at < $3";

/// A look at what was stored in the hour and soon after, so that rows of other times are not read.
const SUSPECTS: &str = "SELECT k.event_id FROM ingest_dedupe k
WHERE k.tenant_id = $1 AND k.first_seen_at >= $2 AND k.first_seen_at < $3
    AND k.first_seen_at >= (SELECT coalesce(max(since), '-infinity') FROM stored_event_since)
    AND NOT EXISTS (SELECT FROM telemetry_reading r WHERE r.tenant_id = $1
        AND r.stored_at >= $2 AND r.stored_at < $4 AND r.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM stored_event s
        WHERE s.tenant_id = $1 AND s.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM event_journal j WHERE j.tenant_id = $1
        AND j.stored_at >= $2 AND j.stored_at < $4 AND j.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM relay_outbox o
        WHERE o.tenant_id = $1 AND o.event_id = k.event_id)
ORDER BY k.event_id LIMIT $5";

/// What is left is looked up everywhere: in rows of any time, and among what was given up. What was asked for again a moment ago is on
/// its way from the site.
const UNSTORED: &str = "SELECT k.event_id FROM unnest($2::uuid[]) AS k (event_id)
WHERE NOT EXISTS (SELECT FROM telemetry_reading r
        WHERE r.tenant_id = $1 AND r.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM event_journal j
        WHERE j.tenant_id = $1 AND j.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM inference_result i
        WHERE i.tenant_id = $1 AND i.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM media_object m
        WHERE m.tenant_id = $1 AND m.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM weighvision_session w WHERE w.tenant_id = $1
        AND k.event_id IN (w.created_event_id, w.finalized_event_id, w.cancelled_event_id))
    AND NOT EXISTS (SELECT FROM sync_batch b WHERE b.tenant_id = $1
        AND k.event_id IN (b.sent_event_id, b.acked_event_id))
    AND NOT EXISTS (SELECT FROM stored_event s
        WHERE s.tenant_id = $1 AND s.event_id = k.event_id)
    AND NOT EXISTS (SELECT FROM ingest_again a
        WHERE a.tenant_id = $1 AND a.event_id = k.event_id AND a.asked_at >= $3)
    AND NOT EXISTS (SELECT FROM bus_dead_letter d WHERE d.message_id = k.event_id::text)
    AND NOT EXISTS (SELECT FROM relay_outbox o
        WHERE o.tenant_id = $1 AND o.event_id = k.event_id)
ORDER BY k.event_id";

/// What ingestion accepted in an hour, at least `grace` ago, and no store has. `None`: it remembers nothing of that hour.
pub async fn unstored(
    pool: &pg::Pool,
    tenant: TenantId,
    hour: i64,
    grace: Duration,
) -> Result<Option<StoredHour>, pg::Error> {
    let begin = |hour: i64| {
        let second = hour.saturating_mul(3_600);
        Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH)
    };
    let client = pool.get().await?;
    // The rows carry the database's clock, so that is asked how late it is.
    let now: Timestamp = client.query_one("SELECT now()", &[]).await?.try_get(0)?;
    let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
    let settled = now.checked_sub(grace).unwrap_or(Timestamp::UNIX_EPOCH);
    let (from, to) = (begin(hour), begin(hour.saturating_add(1)).min(settled));
    let id = tenant.uuid();
    let row = client.query_one(COUNT, &[&id, &from, &to]).await?;
    let remembered = row.try_get::<_, i64>(0)?.unsigned_abs();
    if remembered == 0 {
        return Ok(None);
    }
    let unchecked = row.try_get::<_, i64>(1)?.unsigned_abs();
    let soon = begin(hour.saturating_add(1)).checked_add(SOON).unwrap_or(Timestamp::MAX);
    let rows = client.query(SUSPECTS, &[&id, &from, &to, &soon, &MAX_SUSPECTS]).await?;
    let suspects: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let more = i64::try_from(suspects.len()).is_ok_and(|count| count == MAX_SUSPECTS);
    let mut lost: Vec<Uuid> = Vec::new();
    if !suspects.is_empty() {
        let rows = client.query(UNSTORED, &[&id, &suspects, &settled]).await?;
        lost = rows.iter().map(|row| row.get(0)).collect();
    }
    let named = lost.iter().filter_map(|id| EventId::from_uuid(*id).ok()).take(MAX_NAMED);
    let (event_ids, unstored) = (named.collect(), lost.len() as u64);
    Ok(Some(StoredHour { hour, remembered, unchecked, unstored, event_ids, more }))
}

const ASK: &str = "INSERT INTO ingest_again (tenant_id, event_id, asked_by)
SELECT $1, e, $3 FROM unnest($2::uuid[]) AS e
ORDER BY 2 ON CONFLICT (tenant_id, event_id) DO UPDATE SET asked_at = now()";

/// Notes events, at most [`MAX_ASKED`], that ingestion is to publish again when their site sends them again. Recorded in
/// `operator_audit` as `ledger.again`; a dry run counts alone.
pub async fn ask_again(
    pool: &pg::Pool,
    actor: &Actor,
    tenant: TenantId,
    events: &[EventId],
    dry_run: bool,
) -> Result<u64, pg::Error> {
    let client = pool.get().await?;
    let ids: Vec<Uuid> = events.iter().take(MAX_ASKED).map(|event| event.uuid()).collect();
    let parameters = json!({"tenant_id": tenant, "event_ids": ids});
    let deed = Deed { actor, action: "ledger.again", parameters, dry_run };
    let doing = |_| note(&client, actor, tenant, &ids, dry_run);
    Ok(audit::recorded(&client, &deed, doing).await?.1.matched)
}

async fn note(
    client: &pg::Client,
    actor: &Actor,
    tenant: TenantId,
    ids: &[Uuid],
    dry_run: bool,
) -> Result<Counted, pg::Error> {
    let changed = match dry_run {
        true => 0,
        false => client.execute(ASK, &[&tenant.uuid(), &ids, &actor.name()]).await?,
    };
    Ok(Counted { matched: ids.len() as u64, changed })
}
