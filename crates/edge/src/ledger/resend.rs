//! Asking nodes again, until nothing of what a repair asked for is missing; and acknowledging again what a node does not know to be
//! accounted for.
//!
//! Promise: a request is repeated while the edge runs and has a broker, and is closed once every sequence of it is received
//! or lost. One replica asks at a time. It fails quietly: the next look tries again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use event::id::{Epoch, NodeId};
use event::ledger::{Frontier, RangeSet};
use event::wire::{Ack, Command, MAX_COMMAND_RANGES};
use uuid::Uuid;

use super::repair::unaccounted;
use crate::ingress::acknowledge::Uplink;
use crate::signal::Signal;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests looked at in one round; the rest follow as these are closed.
const REQUESTS: i64 = 1_000;

const OPEN: &str = "SELECT r.stream, r.epoch, r.from_seq, r.to_seq, f.received, f.lost,
    coalesce(r.asked_at < now() - interval '10 s', true)
FROM ledger_resend r JOIN ledger_frontier f USING (stream, epoch)
WHERE r.closed_at IS NULL ORDER BY r.stream, r.epoch, r.from_seq LIMIT $1
FOR UPDATE OF r SKIP LOCKED";

const ASKED: &str = "UPDATE ledger_resend SET asked_at = now(), asked_times = asked_times + 1
WHERE stream = $1 AND epoch = $2 AND closed_at IS NULL";

const CLOSE: &str = "UPDATE ledger_resend SET closed_at = now()
WHERE stream = $1 AND epoch = $2 AND from_seq = $3 AND to_seq = $4";

// A batch is acknowledged when it comes. A repair that closes a hole below what a node holds comes with no batch, and a node that
// samples nothing more would wait for ever. Who says so little after the frontier was last written has missed an ack.
const BEHIND: &str = "SELECT n.node_id, f.epoch, f.received, f.lost
FROM nodes n JOIN ledger_frontier f ON f.stream = n.node_id AND f.epoch::text = n.status->>'epoch'
WHERE n.status_at > now() - interval '3 s' AND f.updated_at < n.status_at
    AND (n.status->>'acked')::bigint < f.acked
ORDER BY n.node_id LIMIT $1";

/// Runs until told to stop.
pub(crate) async fn run(pool: pg::Pool, uplink: Arc<Uplink>, mut stop: Signal) {
    loop {
        tokio::select! {
            () = stop.heard() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if let Err(error) = look(&pool, &uplink).await {
            tracing::warn!(%error, "nodes could not be asked for what is missing");
        }
        if let Err(error) = acknowledge_again(&pool, &uplink).await {
            tracing::warn!(%error, "nodes could not be acknowledged again");
        }
    }
}

/// Publishes the ack of every node that is behind.
async fn acknowledge_again(pool: &pg::Pool, uplink: &Uplink) -> Result<(), pg::Error> {
    let rows = pool.get().await?.query(BEHIND, &[&REQUESTS]).await?;
    let acks = rows.iter().filter_map(|row| {
        let node: NodeId = row.get::<_, String>(0).parse().ok()?;
        let epoch = Epoch::from_uuid(row.get(1)).ok()?;
        let set = |column| RangeSet::from_flat(&row.get::<_, Vec<i64>>(column)).ok();
        let frontier = Frontier::from_sets(set(2)?, set(3)?).ok()?;
        Some((node, Ack::of(epoch, &frontier)))
    });
    uplink.publish(&acks.collect::<Vec<_>>());
    Ok(())
}

async fn look(pool: &pg::Pool, uplink: &Uplink) -> Result<(), pg::Error> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let rows = transaction.query(OPEN, &[&REQUESTS]).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let mut wanted: BTreeMap<(String, Uuid), (RangeSet, bool)> = BTreeMap::new();
    for row in &rows {
        let key: (String, Uuid) = (row.get(0), row.get(1));
        let (from, to): (i64, i64) = (row.get(2), row.get(3));
        let set = |column| RangeSet::from_flat(&row.get::<_, Vec<i64>>(column)).unwrap_or_default();
        let range = vec![(from.unsigned_abs(), to.unsigned_abs())];
        let missing = unaccounted(&range, &set(4), &set(5));
        if missing.is_empty() {
            transaction.execute(CLOSE, &[&key.0, &key.1, &from, &to]).await?;
            continue;
        }
        let (ranges, due) = wanted.entry(key).or_default();
        *ranges = ranges.union(&missing);
        *due |= row.get::<_, bool>(6);
    }
    for ((stream, epoch), (ranges, due)) in wanted {
        let (Ok(node), Ok(own)) = (stream.parse::<NodeId>(), Epoch::from_uuid(epoch)) else {
            continue;
        };
        let resend: Vec<_> = ranges.ranges().iter().copied().take(MAX_COMMAND_RANGES).collect();
        let command = Command { epoch: own, resend };
        if due && uplink.command(&node, &command) {
            tracing::info!(%node, sequences = ranges.count(), "asked the node to send again");
            transaction.execute(ASKED, &[&stream, &epoch]).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}
