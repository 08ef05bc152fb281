//! `ledger_frontier`, `ledger_block`, `ledger_tombstone`.

use std::collections::BTreeMap;

use event::id::{Epoch, TenantId};
use event::ledger::{Digest, Frontier, RangeSet};
use event::wire::Gap;
use jiff::Timestamp;
use pg::Transaction;
use tokio_postgres::Row;
use uuid::Uuid;

use super::bigint;
use crate::ingress::check::Checked;
use crate::ingress::plan::{Account, Kept, Stream};
use crate::ingress::write::Error;

/// Makes the rows that are missing and locks all of them. From here on the transaction is alone
/// with its streams.
pub(crate) async fn lock_frontiers(
    transaction: &Transaction<'_>,
    streams: &BTreeMap<Stream, TenantId>,
) -> Result<BTreeMap<Stream, Account>, Error> {
    let make = transaction
        .prepare_cached(
            "INSERT INTO ledger_frontier (stream, epoch, tenant_id)
             SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[])
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let lock = transaction
        .prepare_cached(
            "SELECT f.received, f.lost, f.stored_count, f.quarantined_count, (u.place - 1)::int,
                 f.kept
             FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS u (stream, epoch, place)
             JOIN ledger_frontier f USING (stream, epoch)
             ORDER BY u.place FOR UPDATE OF f",
        )
        .await?;
    let names: Vec<&str> = streams.keys().map(|(node, _)| node.as_str()).collect();
    let epochs: Vec<Uuid> = streams.keys().map(|(_, epoch)| epoch.uuid()).collect();
    let tenants: Vec<Uuid> = streams.values().map(|tenant| tenant.uuid()).collect();
    transaction.execute(&make, &[&names, &epochs, &tenants]).await?;
    let rows = transaction.query(&lock, &[&names, &epochs]).await?;
    let mut accounts = BTreeMap::new();
    let by_place: Vec<&Stream> = streams.keys().collect();
    for row in &rows {
        let place = usize::try_from(row.get::<_, i32>(4)).unwrap_or(usize::MAX);
        if let Some(stream) = by_place.get(place) {
            accounts.insert((*stream).clone(), account(stream, row)?);
        }
    }
    Ok(accounts)
}

fn account(stream: &Stream, row: &Row) -> Result<Account, Error> {
    let damaged =
        |problem: String| Error::Damaged { stream: stream.0.clone(), epoch: stream.1, problem };
    let set = |column| {
        let flat: Vec<i64> = row.get(column);
        RangeSet::from_flat(&flat).map_err(|error| damaged(error.to_string()))
    };
    let frontier =
        Frontier::from_sets(set(0)?, set(1)?).map_err(|error| damaged(error.to_string()))?;
    Ok(Account {
        frontier,
        stored: row.get::<_, i64>(2).unsigned_abs(),
        quarantined: row.get::<_, i64>(3).unsigned_abs(),
        kept: set(5)?,
        changed: false,
    })
}

/// Writes the frontiers that changed.
pub(crate) async fn write_frontiers(
    transaction: &Transaction<'_>,
    accounts: &BTreeMap<Stream, Account>,
) -> Result<(), Error> {
    // Ranges differ in number, and Postgres has no ragged arrays: one statement a stream.
    let statement = transaction
        .prepare_cached(
            "UPDATE ledger_frontier SET acked = $3, received = $4, lost = $5, received_count = $6,
                 lost_count = $7, stored_count = $8, quarantined_count = $9, kept = $10,
                 updated_at = now()
             WHERE stream = $1 AND epoch = $2",
        )
        .await?;
    for ((node, epoch), account) in accounts.iter().filter(|(_, account)| account.changed) {
        let (received, lost) = (account.frontier.received(), account.frontier.lost());
        transaction
            .execute(
                &statement,
                &[
                    &node.as_str(),
                    &epoch.uuid(),
                    &bigint(account.frontier.acked()),
                    &received.to_flat(),
                    &lost.to_flat(),
                    &bigint(received.count()),
                    &bigint(lost.count()),
                    &bigint(account.stored),
                    &bigint(account.quarantined),
                    &account.kept.to_flat(),
                ],
            )
            .await?;
    }
    Ok(())
}

/// Adds to the blocks. The frontier's lock keeps everyone else away from them.
pub(crate) async fn write_blocks(
    transaction: &Transaction<'_>,
    blocks: &BTreeMap<(Stream, u64), Digest>,
) -> Result<(), Error> {
    if blocks.is_empty() {
        return Ok(());
    }
    let read = transaction
        .prepare_cached(
            "SELECT (u.place - 1)::int, b.count, b.hash
             FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY
                 AS u (stream, epoch, block, place)
             JOIN ledger_block b USING (stream, epoch, block)",
        )
        .await?;
    let write = transaction
        .prepare_cached(
            "INSERT INTO ledger_block (stream, epoch, block, count, hash)
             SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[])
             ON CONFLICT (stream, epoch, block)
             DO UPDATE SET count = excluded.count, hash = excluded.hash",
        )
        .await?;
    let names: Vec<&str> = blocks.keys().map(|((node, _), _)| node.as_str()).collect();
    let epochs: Vec<Uuid> = blocks.keys().map(|((_, epoch), _)| epoch.uuid()).collect();
    let numbers: Vec<i64> = blocks.keys().map(|(_, block)| bigint(*block)).collect();
    let mut digests: Vec<Digest> = blocks.values().copied().collect();
    for row in transaction.query(&read, &[&names, &epochs, &numbers]).await? {
        let place = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        let hash: [u8; 16] = row.get::<_, &[u8]>(2).try_into().unwrap_or_default();
        let before = Digest::from_parts(row.get::<_, i64>(1).unsigned_abs(), hash);
        if let Some(digest) = digests.get_mut(place) {
            digest.combine(before);
        }
    }
    let counts: Vec<i64> = digests.iter().map(|digest| bigint(digest.count)).collect();
    let hashes: Vec<[u8; 16]> = digests.iter().map(|digest| digest.hash_bytes()).collect();
    let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 16]>::as_slice).collect();
    transaction.execute(&write, &[&names, &epochs, &numbers, &counts, &hashes]).await?;
    Ok(())
}

/// Writes what nodes gave up. The same declaration again is the same row.
pub(crate) async fn write_tombstones(
    transaction: &Transaction<'_>,
    gaps: &[(&Checked, Epoch, &Gap)],
) -> Result<(), Error> {
    let rows: Vec<_> = gaps
        .iter()
        .filter_map(|(message, epoch, gap)| {
            let entry = message.entry.as_ref()?;
            Some((entry.tenant_id.uuid(), entry.node_id.as_str(), epoch.uuid(), *gap))
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
                 first_at, last_at, reason, origin)
             SELECT *, 'node' FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[],
                 $5::bigint[], $6::bigint[], $7::timestamptz[], $8::timestamptz[], $9::text[])
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let tenants: Vec<Uuid> = rows.iter().map(|row| row.0).collect();
    let streams: Vec<&str> = rows.iter().map(|row| row.1).collect();
    let epochs: Vec<Uuid> = rows.iter().map(|row| row.2).collect();
    let from: Vec<i64> = rows.iter().map(|row| bigint(row.3.from_seq)).collect();
    let to: Vec<i64> = rows.iter().map(|row| bigint(row.3.to_seq)).collect();
    let counts: Vec<i64> = rows.iter().map(|row| bigint(row.3.count)).collect();
    let first: Vec<Option<Timestamp>> = rows.iter().map(|row| row.3.first_at).collect();
    let last: Vec<Option<Timestamp>> = rows.iter().map(|row| row.3.last_at).collect();
    let reasons: Vec<&str> = rows.iter().map(|row| row.3.reason.as_str()).collect();
    transaction
        .execute(
            &statement,
            &[&tenants, &streams, &epochs, &from, &to, &counts, &first, &last, &reasons],
        )
        .await?;
    Ok(())
}

/// Tells the cloud, by way of the tombstones, of sequences that no event will show it.
pub(crate) async fn write_kept(
    transaction: &Transaction<'_>,
    kept: &BTreeMap<(TenantId, Stream, Kept), RangeSet>,
) -> Result<(), Error> {
    let rows: Vec<_> = kept
        .iter()
        .flat_map(|(key, ranges)| ranges.ranges().iter().map(move |range| (key, *range)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
                 reason, origin)
             SELECT tenant, stream, epoch, from_seq, to_seq, to_seq - from_seq + 1, reason, 'edge'
             FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[],
                 $6::text[]) AS n(tenant, stream, epoch, from_seq, to_seq, reason)
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let tenants: Vec<Uuid> = rows.iter().map(|((tenant, ..), _)| tenant.uuid()).collect();
    let streams: Vec<&str> = rows.iter().map(|((_, stream, _), _)| stream.0.as_str()).collect();
    let epochs: Vec<Uuid> = rows.iter().map(|((_, stream, _), _)| stream.1.uuid()).collect();
    let from: Vec<i64> = rows.iter().map(|(_, (from, _))| bigint(*from)).collect();
    let to: Vec<i64> = rows.iter().map(|(_, (_, to))| bigint(*to)).collect();
    let reasons: Vec<&str> = rows.iter().map(|((.., why), _)| why.as_str()).collect();
    transaction.execute(&statement, &[&tenants, &streams, &epochs, &from, &to, &reasons]).await?;
    Ok(())
}
