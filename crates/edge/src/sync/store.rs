//! What the forwarder writes beside the rows that it holds: `sync_state`, its own events, tombstones.
//!
//! None of it decides what becomes of an event. A write that fails is logged, and the next one
//! brings the table up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use event::farm::EventType;
use event::id::{EventId, TenantId};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::cloud::Tombstone;

/// The forwarder's own events leave when nothing else waits.
const OWN_PRIORITY: i32 = -10;
/// The most tombstones in one request: the cloud's limit.
const TOMBSTONES: i64 = 1_000;

/// What a request brought for one tenant. Its own events are not counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) acked: u64,
    pub(super) last_acked: Option<EventId>,
}

/// A request that was answered with 200.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) batch_id: &'a str,
    pub(super) cluster_id: &'a str,
    pub(super) trace_id: String,
    pub(super) sent_at: Timestamp,
    pub(super) answered_at: Timestamp,
    pub(super) tenants: BTreeMap<TenantId, Tally>,
}

#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) pool: pg::Pool,
}

const ADD_OWN: &str = "INSERT INTO sync_outbox
    (id, tenant_id, event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority)
SELECT id, tenant, type, at, $5, payload::jsonb, octet_length(payload), $7
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $6::text[])
    AS n(id, tenant, type, at, payload)";

// In the order of tenants, so that forwarders wait for each other and do not deadlock.
const CHECKPOINT: &str = "INSERT INTO sync_state
    (tenant_id, last_acked_event_id, last_acked_at, last_sent_batch_id)
SELECT tenant, acked, CASE WHEN acked IS NOT NULL THEN now() END, $3
FROM unnest($1::uuid[], $2::uuid[]) AS n(tenant, acked) ORDER BY tenant
ON CONFLICT (tenant_id) DO UPDATE SET
    last_acked_event_id = coalesce(excluded.last_acked_event_id, sync_state.last_acked_event_id),
    last_acked_at = coalesce(excluded.last_acked_at, sync_state.last_acked_at),
    last_sent_batch_id = excluded.last_sent_batch_id,
    consecutive_failures = 0, paused_until = NULL, last_failure = NULL";

const FAILED: &str = "INSERT INTO sync_state
    (tenant_id, consecutive_failures, paused_until, last_failure)
SELECT tenant, 1, now() + $2::float8 * interval '1 s', $3
FROM unnest($1::uuid[]) AS n(tenant) ORDER BY tenant
ON CONFLICT (tenant_id) DO UPDATE SET
    consecutive_failures = sync_state.consecutive_failures + 1,
    paused_until = greatest(sync_state.paused_until, excluded.paused_until),
    last_failure = excluded.last_failure";

const RECOVERED: &str = "UPDATE sync_state
SET consecutive_failures = 0, paused_until = NULL, last_failure = NULL
WHERE tenant_id IN (SELECT tenant_id FROM sync_state
    WHERE consecutive_failures > 0 OR paused_until IS NOT NULL ORDER BY tenant_id FOR UPDATE)";

// Bounded, so that a clock that jumped cannot stop the forwarder for long.
const PAUSE: &str = "SELECT coalesce(max(consecutive_failures), 0),
    coalesce(extract(epoch FROM least(max(paused_until) - now(), interval '1 h')), 0)::float8
FROM sync_state WHERE consecutive_failures > 0";

const UNSENT: &str = "SELECT tenant_id, stream, epoch, from_seq, to_seq, count, first_at, last_at,
    reason, origin
FROM ledger_tombstone WHERE sent_at IS NULL AND origin <> 'cloud' ORDER BY recorded_at LIMIT $1";

const TOLD: &str = "UPDATE ledger_tombstone t SET sent_at = now(), send_error = error
FROM unnest($1::text[], $2::uuid[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::text[])
    AS n(stream, epoch, from_seq, to_seq, reason, origin, error)
WHERE t.sent_at IS NULL AND (t.stream, t.epoch, t.from_seq, t.to_seq, t.reason, t.origin)
    = (n.stream, n.epoch, n.from_seq, n.to_seq, n.reason, n.origin)";

const BACKLOG: &str = "SELECT
    (SELECT count(*) FROM sync_outbox WHERE NOT finished AND priority > 0),
    (SELECT count(*) FROM sync_outbox WHERE NOT finished AND priority <= 0),
    greatest(0, extract(epoch FROM now() - (SELECT min(next_attempt_at) FROM sync_outbox
        WHERE NOT finished)))::float8,
    (SELECT extract(epoch FROM now() - max(last_acked_at)) FROM sync_state)::float8";

/// What waits or is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backlog {
    pub(super) live: u64,
    pub(super) bulk: u64,
    /// How long the oldest of them has been due.
    pub(super) oldest: Duration,
    /// How long ago any replica had an event acked; `None` when none ever was.
    pub(super) acked_ago: Option<Duration>,
}

impl Store {
    /// Notes a request that got through, and tells of it.
    pub(super) async fn sent(&self, sent: &Sent<'_>) -> Result<(), pg::Error> {
        let mut own = Own::default();
        for (tenant, tally) in &sent.tenants {
            // A tenant that the cloud takes nothing of would only get more dead letters.
            if tally.acked == 0 {
                continue;
            }
            let left = json!({"batch_id": sent.batch_id, "event_count": tally.sent,
                "edge_cluster_id": sent.cluster_id});
            own.add(*tenant, &EventType::SYNC_BATCH_SENT, sent.sent_at, &left);
            let back = json!({"batch_id": sent.batch_id, "event_count": tally.acked,
                "status": "acked"});
            own.add(*tenant, &EventType::SYNC_BATCH_ACKED, sent.answered_at, &back);
        }
        let tenants: Vec<Uuid> = sent.tenants.keys().map(|tenant| tenant.uuid()).collect();
        let acked: Vec<Option<Uuid>> =
            sent.tenants.values().map(|tally| tally.last_acked.map(EventId::uuid)).collect();
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if !own.ids.is_empty() {
            let Own { ids, tenants, types, at, payloads } = &own;
            let statement = transaction.prepare_cached(ADD_OWN).await?;
            transaction
                .execute(
                    &statement,
                    &[ids, tenants, types, at, &sent.trace_id, payloads, &OWN_PRIORITY],
                )
                .await?;
        }
        let statement = transaction.prepare_cached(CHECKPOINT).await?;
        transaction.execute(&statement, &[&tenants, &acked, &sent.batch_id]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Notes that the link went down under a request of these tenants.
    pub(super) async fn failed(
        &self,
        tenants: &[Uuid],
        pause: Duration,
        why: &str,
    ) -> Result<(), pg::Error> {
        let client = self.pool.get().await?;
        client.execute(FAILED, &[&tenants, &pause.as_secs_f64(), &why]).await?;
        Ok(())
    }

    /// How many failures in a row the forwarders met, and how long the cloud is left alone still.
    pub(super) async fn pause(&self) -> Result<(u32, Duration), pg::Error> {
        let row = self.pool.get().await?.query_one(PAUSE, &[]).await?;
        let failures = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or_default();
        let left = Duration::try_from_secs_f64(row.try_get(1)?).unwrap_or_default();
        Ok((failures, left))
    }

    /// Notes that the link is up again.
    pub(super) async fn recovered(&self) -> Result<(), pg::Error> {
        self.pool.get().await?.execute(RECOVERED, &[]).await?;
        Ok(())
    }

    /// Tombstones that the cloud has not been told of.
    pub(super) async fn unsent_tombstones(&self) -> Result<Vec<Tombstone>, pg::Error> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(UNSENT).await?;
        let rows = client.query(&statement, &[&TOMBSTONES]).await?;
        let tombstones = rows.iter().map(|row| {
            Ok(Tombstone {
                tenant_id: row.try_get(0)?,
                stream: row.try_get(1)?,
                epoch: row.try_get(2)?,
                from_seq: row.try_get(3)?,
                to_seq: row.try_get(4)?,
                count: row.try_get(5)?,
                first_at: row.try_get(6)?,
                last_at: row.try_get(7)?,
                reason: row.try_get(8)?,
                origin: row.try_get(9)?,
            })
        });
        tombstones.collect()
    }

    /// Notes that the cloud was told, and what it refused.
    pub(super) async fn told(
        &self,
        tombstones: &[(&Tombstone, Option<String>)],
    ) -> Result<(), pg::Error> {
        let client = self.pool.get().await?;
        let each = || tombstones.iter().map(|(tombstone, _)| *tombstone);
        let streams: Vec<&str> = each().map(|one| one.stream.as_str()).collect();
        let epochs: Vec<Uuid> = each().map(|one| one.epoch).collect();
        let from: Vec<i64> = each().map(|one| one.from_seq).collect();
        let to: Vec<i64> = each().map(|one| one.to_seq).collect();
        let reasons: Vec<&str> = each().map(|one| one.reason.as_str()).collect();
        let origins: Vec<&str> = each().map(|one| one.origin.as_str()).collect();
        let errors: Vec<Option<&str>> =
            tombstones.iter().map(|(_, error)| error.as_deref()).collect();
        client.execute(TOLD, &[&streams, &epochs, &from, &to, &reasons, &origins, &errors]).await?;
        Ok(())
    }

    /// Counts what waits. It reads the index of all of it: for now and then, not for every request.
    pub(super) async fn backlog(&self) -> Result<Backlog, pg::Error> {
        let row = self.pool.get().await?.query_one(BACKLOG, &[]).await?;
        let count = |n| Ok::<_, pg::Error>(u64::try_from(row.try_get::<_, i64>(n)?).unwrap_or(0));
        let seconds = |n| {
            let found: Option<f64> = row.try_get(n)?;
            Ok::<_, pg::Error>(found.and_then(|text| Duration::try_from_secs_f64(text).ok()))
        };
        let (oldest, acked_ago) = (seconds(2)?.unwrap_or_default(), seconds(3)?);
        Ok(Backlog { live: count(0)?, bulk: count(1)?, oldest, acked_ago })
    }
}

/// Columns of the forwarder's own events.
#[derive(Default)]
struct Own {
    ids: Vec<Uuid>,
    tenants: Vec<Uuid>,
    types: Vec<String>,
    at: Vec<Timestamp>,
    payloads: Vec<String>,
}

impl Own {
    fn add(
        &mut self,
        tenant: TenantId,
        event: &EventType,
        at: Timestamp,
        payload: &serde_json::Value,
    ) {
        self.ids.push(EventId::mint().uuid());
        self.tenants.push(tenant.uuid());
        self.types.push(event.as_str().to_owned());
        self.at.push(at);
        self.payloads.push(payload.to_string());
    }
}
