//! Giving sequences up: tombstones, and the edge's own frontier and blocks.
//!
//! Promise: after [`give_up`] the sequences are lost and no longer received, stored or in a block, in the transaction that
//! removes their events. The caller holds the frontiers' locks ([`lock`]), which it takes before any row of the outbox, as
//! ingress does.

use std::collections::{BTreeMap, BTreeSet};

use event::id::EventId;
use event::ledger::{Digest, MAX_RANGES, RangeSet, block_of};
use jiff::Timestamp;
use tokio_postgres::Transaction;
use uuid::Uuid;

use super::{Error, count};

/// A stream and its epoch.
pub(super) type Stream = (String, Uuid);

/// An event that has ledger coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) seq: u64,
    pub(super) event_id: Uuid,
    pub(super) at: Timestamp,
}

/// A frontier that is locked.
#[derive(Debug, Clone)]
pub(super) struct Locked {
    tenant: Uuid,
    received: RangeSet,
    lost: RangeSet,
}

impl Locked {
    /// Whether the ledger still takes new records after these sequences were given up: every one may split a range, and
    /// ingress refuses what does not fit.
    pub(super) fn has_room(&self, seqs: impl Iterator<Item = u64>) -> bool {
        let mut after = self.clone();
        for seq in seqs {
            after.take(seq);
        }
        after.received.len() + after.lost.len() <= MAX_RANGES / 2
    }

    /// Moves a sequence; false when it was not received.
    fn take(&mut self, seq: u64) -> bool {
        let ours = self.received.remove(seq, seq) == 1;
        if ours {
            self.lost.insert(seq, seq);
        }
        ours
    }
}

/// Locks frontiers, in the order that ingress uses.
pub(super) async fn lock(
    transaction: &Transaction<'_>,
    streams: &BTreeSet<Stream>,
) -> Result<BTreeMap<Stream, Locked>, Error> {
    let names: Vec<&str> = streams.iter().map(|(stream, _)| stream.as_str()).collect();
    let epochs: Vec<Uuid> = streams.iter().map(|(_, epoch)| *epoch).collect();
    let rows = transaction
        .query(
            "SELECT f.stream, f.epoch, f.tenant_id, f.received, f.lost
             FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS u (stream, epoch, place)
             JOIN ledger_frontier f USING (stream, epoch)
             ORDER BY u.place FOR UPDATE OF f",
            &[&names, &epochs],
        )
        .await?;
    let mut locked = BTreeMap::new();
    for row in &rows {
        let stream: String = row.try_get(0)?;
        let set = |column: usize| {
            let flat: Vec<i64> = row.try_get(column)?;
            RangeSet::from_flat(&flat).map_err(|error| Error::Ledger {
                stream: stream.clone(),
                problem: error.to_string(),
            })
        };
        let one = Locked { tenant: row.try_get(2)?, received: set(3)?, lost: set(4)? };
        locked.insert((stream.clone(), row.try_get(1)?), one);
    }
    Ok(locked)
}

/// Gives up events of a stream whose frontier is locked.
pub(super) async fn give_up(
    transaction: &Transaction<'_>,
    (stream, epoch): &Stream,
    mut frontier: Locked,
    places: &[Place],
    reason: &str,
) -> Result<(), Error> {
    let mut blocks: BTreeMap<u64, Digest> = BTreeMap::new();
    let mut given_up: Vec<Place> = Vec::with_capacity(places.len());
    for place in places {
        // A clone's event has a sequence that another event has: it is given up once.
        if frontier.take(place.seq) {
            given_up.push(*place);
            if let Ok(id) = EventId::from_uuid(place.event_id) {
                blocks.entry(block_of(place.seq)).or_default().add(place.seq, id);
            }
        }
    }
    declare(transaction, frontier.tenant, stream, *epoch, &given_up, reason).await?;
    transaction
        .execute(
            "UPDATE ledger_frontier SET received = $3, lost = $4, received_count = $5, lost_count = $6,
                 stored_count = greatest(stored_count - $7, 0), updated_at = now()
             WHERE stream = $1 AND epoch = $2",
            &[
                stream,
                epoch,
                &frontier.received.to_flat(),
                &frontier.lost.to_flat(),
                &bigint(frontier.received.count()),
                &bigint(frontier.lost.count()),
                &bigint(places.len() as u64),
            ],
        )
        .await?;
    take_from_blocks(transaction, stream, *epoch, &blocks).await
}

async fn take_from_blocks(
    transaction: &Transaction<'_>,
    stream: &str,
    epoch: Uuid,
    blocks: &BTreeMap<u64, Digest>,
) -> Result<(), Error> {
    let numbers: Vec<i64> = blocks.keys().map(|block| bigint(*block)).collect();
    let rows = transaction
        .query(
            "SELECT block, count, hash FROM ledger_block
             WHERE stream = $1 AND epoch = $2 AND block = ANY($3)",
            &[&stream, &epoch, &numbers],
        )
        .await?;
    for row in &rows {
        let block: i64 = row.try_get(0)?;
        let hash: &[u8] = row.try_get(2)?;
        let before =
            Digest::from_parts(count(row.try_get(1)?), hash.try_into().unwrap_or_default());
        let Some(gone) = blocks.get(&count(block)) else {
            continue;
        };
        let left = Digest {
            count: before.count.saturating_sub(gone.count),
            hash: before.hash.wrapping_sub(gone.hash),
        };
        // An empty block has no row.
        if left.count == 0 {
            let text = "DELETE FROM ledger_block WHERE stream = $1 AND epoch = $2 AND block = $3";
            transaction.execute(text, &[&stream, &epoch, &block]).await?;
        } else {
            let text = "UPDATE ledger_block SET count = $4, hash = $5
                WHERE stream = $1 AND epoch = $2 AND block = $3";
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&stream, &epoch, &block, &bigint(left.count), &&left.hash_bytes()[..]];
            transaction.execute(text, &values).await?;
        }
    }
    Ok(())
}

// One that ended right before, that the cloud was not told of yet: both become one.
const BEFORE: &str = "DELETE FROM ledger_tombstone WHERE tenant_id = $1 AND stream = $2 AND epoch = $3
    AND to_seq = $4 AND reason = $5 AND origin = 'edge' AND sent_at IS NULL RETURNING from_seq, first_at";

const DECLARE: &str =
    "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
    first_at, last_at, reason, origin)
VALUES ($1, $2, $3, $4, $5, $5::int8 - $4::int8 + 1, $6, $7, $8, 'edge') ON CONFLICT DO NOTHING";

/// Writes tombstones for events of a stream.
pub(super) async fn declare(
    transaction: &Transaction<'_>,
    tenant: Uuid,
    stream: &str,
    epoch: Uuid,
    places: &[Place],
    reason: &str,
) -> Result<(), Error> {
    let times: BTreeMap<u64, Timestamp> =
        places.iter().map(|place| (place.seq, place.at)).collect();
    let ranges: RangeSet = times.keys().map(|seq| (*seq, *seq)).collect();
    for &(from, to) in ranges.ranges() {
        let within = || times.range(from..=to).map(|(_, at)| *at);
        let (mut first_at, last_at) = (within().min(), within().max());
        let mut from = bigint(from);
        let before = transaction
            .query_opt(BEFORE, &[&tenant, &stream, &epoch, &(from - 1), &reason])
            .await?;
        if let Some(row) = before {
            from = row.try_get(0)?;
            let earlier: Option<Timestamp> = row.try_get(1)?;
            first_at = match (first_at, earlier) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [&tenant, &stream, &epoch, &from, &bigint(to), &first_at, &last_at, &reason];
        transaction.execute(DECLARE, &values).await?;
    }
    Ok(())
}

fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
