//! `ledger_page`, `ledger_clone`, `ledger_block`, `ledger_tombstone`. The frontier's lock keeps
//! everyone else away from them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use event::id::EventId;
use event::ledger::Digest;
use jiff::Timestamp;
use pg::Transaction;
use uuid::Uuid;

use super::bigint;
use crate::ingest::page::Page;
use crate::ingest::plan::{State, Stream};
use crate::ingest::request::Tombstone;
use crate::ingest::write::Error;

/// The pages that are there.
pub(crate) async fn read_pages(
    transaction: &Transaction<'_>,
    wanted: &BTreeSet<(i64, u64)>,
) -> Result<BTreeMap<(i64, u64), Page>, Error> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let statement = transaction
        .prepare_cached(
            "SELECT p.frontier_id, p.page, p.ids
             FROM unnest($1::bigint[], $2::bigint[]) AS u (frontier_id, page)
             JOIN ledger_page p USING (frontier_id, page)",
        )
        .await?;
    let frontiers: Vec<i64> = wanted.iter().map(|(frontier, _)| *frontier).collect();
    let numbers: Vec<i64> = wanted.iter().map(|(_, page)| bigint(*page)).collect();
    let rows = transaction.query(&statement, &[&frontiers, &numbers]).await?;
    let pages = rows.iter().map(|row| {
        let page = Page::from_bytes(row.get(2)).unwrap_or_default();
        ((row.get(0), row.get::<_, i64>(1).unsigned_abs()), page)
    });
    Ok(pages.collect())
}

/// Writes the pages that changed.
pub(crate) async fn write_pages(
    transaction: &Transaction<'_>,
    pages: &BTreeMap<(i64, u64), Page>,
) -> Result<(), Error> {
    let changed: Vec<_> = pages.iter().filter(|(_, page)| page.changed).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_page (frontier_id, page, ids)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
             ON CONFLICT (frontier_id, page) DO UPDATE SET ids = excluded.ids",
        )
        .await?;
    let frontiers: Vec<i64> = changed.iter().map(|((frontier, _), _)| *frontier).collect();
    let numbers: Vec<i64> = changed.iter().map(|((_, page), _)| bigint(*page)).collect();
    let ids: Vec<Vec<u8>> = changed.iter().map(|(_, page)| page.to_bytes()).collect();
    transaction.execute(&statement, &[&frontiers, &numbers, &ids]).await?;
    Ok(())
}

/// Of these events, those that were accepted as clones before.
pub(crate) async fn find_clones(
    transaction: &Transaction<'_>,
    suspects: &[(i64, u64, EventId)],
) -> Result<HashSet<(i64, u64, EventId)>, Error> {
    let statement = transaction
        .prepare_cached(
            "SELECT c.frontier_id, c.seq, c.event_id
             FROM unnest($1::bigint[], $2::bigint[], $3::uuid[]) AS u (frontier_id, seq, event_id)
             JOIN ledger_clone c USING (frontier_id, seq, event_id)",
        )
        .await?;
    let (frontiers, seqs, events) = columns(suspects);
    let rows = transaction.query(&statement, &[&frontiers, &seqs, &events]).await?;
    let found = rows.iter().filter_map(|row| {
        let event = EventId::from_uuid(row.get(2)).ok()?;
        Some((row.get(0), row.get::<_, i64>(1).unsigned_abs(), event))
    });
    Ok(found.collect())
}

/// Remembers clones.
pub(crate) async fn write_clones(
    transaction: &Transaction<'_>,
    clones: &[(i64, u64, EventId)],
) -> Result<(), Error> {
    if clones.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_clone (frontier_id, seq, event_id)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::uuid[]) ON CONFLICT DO NOTHING",
        )
        .await?;
    let (frontiers, seqs, events) = columns(clones);
    transaction.execute(&statement, &[&frontiers, &seqs, &events]).await?;
    Ok(())
}

fn columns(clones: &[(i64, u64, EventId)]) -> (Vec<i64>, Vec<i64>, Vec<Uuid>) {
    let frontiers = clones.iter().map(|(frontier, _, _)| *frontier).collect();
    let seqs = clones.iter().map(|(_, seq, _)| bigint(*seq)).collect();
    (frontiers, seqs, clones.iter().map(|(_, _, event)| event.uuid()).collect())
}

struct BlockColumns<'a> {
    tenants: Vec<Uuid>,
    streams: Vec<&'a str>,
    epochs: Vec<Uuid>,
    blocks: Vec<i64>,
}

fn block_columns(keys: &BTreeSet<(Stream, u64)>) -> BlockColumns<'_> {
    BlockColumns {
        tenants: keys.iter().map(|((tenant, _, _), _)| tenant.uuid()).collect(),
        streams: keys.iter().map(|((_, stream, _), _)| stream.as_str()).collect(),
        epochs: keys.iter().map(|((_, _, epoch), _)| epoch.uuid()).collect(),
        blocks: keys.iter().map(|(_, block)| bigint(*block)).collect(),
    }
}

/// The blocks that are there.
pub(crate) async fn read_blocks(
    transaction: &Transaction<'_>,
    wanted: &BTreeSet<(Stream, u64)>,
) -> Result<BTreeMap<(Stream, u64), Digest>, Error> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let statement = transaction
        .prepare_cached(
            "SELECT (u.place - 1)::int, b.count, b.hash
             FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[]) WITH ORDINALITY
                 AS u (tenant_id, stream, epoch, block, place)
             JOIN ledger_block b USING (tenant_id, stream, epoch, block)",
        )
        .await?;
    let BlockColumns { tenants, streams, epochs, blocks } = block_columns(wanted);
    let rows = transaction.query(&statement, &[&tenants, &streams, &epochs, &blocks]).await?;
    let by_place: Vec<&(Stream, u64)> = wanted.iter().collect();
    let found = rows.iter().filter_map(|row| {
        let key = by_place.get(usize::try_from(row.get::<_, i32>(0)).ok()?)?;
        let hash: [u8; 16] = row.get::<_, &[u8]>(2).try_into().ok()?;
        Some(((*key).clone(), Digest::from_parts(row.get::<_, i64>(1).unsigned_abs(), hash)))
    });
    Ok(found.collect())
}

/// Writes the blocks that changed.
pub(crate) async fn write_blocks(
    transaction: &Transaction<'_>,
    state: &State,
) -> Result<(), Error> {
    if state.changed_blocks.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_block (tenant_id, stream, epoch, block, count, hash)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[],
                 $6::bytea[])
             ON CONFLICT (tenant_id, stream, epoch, block)
             DO UPDATE SET count = excluded.count, hash = excluded.hash",
        )
        .await?;
    let BlockColumns { tenants, streams, epochs, blocks } = block_columns(&state.changed_blocks);
    let digests: Vec<Digest> = state
        .changed_blocks
        .iter()
        .map(|key| state.blocks.get(key).copied().unwrap_or_default())
        .collect();
    let counts: Vec<i64> = digests.iter().map(|digest| bigint(digest.count)).collect();
    let hashes: Vec<Vec<u8>> = digests.iter().map(|d| d.hash_bytes().to_vec()).collect();
    transaction
        .execute(&statement, &[&tenants, &streams, &epochs, &blocks, &counts, &hashes])
        .await?;
    Ok(())
}

/// Writes what was given up. The same declaration again is the same row.
pub(crate) async fn write_tombstones(
    transaction: &Transaction<'_>,
    rows: &[&Tombstone],
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
                 first_at, last_at, reason, origin)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[],
                 $6::bigint[], $7::timestamptz[], $8::timestamptz[], $9::text[], $10::text[])
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let tenants: Vec<Uuid> = rows.iter().map(|row| row.tenant_id.uuid()).collect();
    let streams: Vec<&str> = rows.iter().map(|row| row.stream.as_str()).collect();
    let epochs: Vec<Uuid> = rows.iter().map(|row| row.epoch.uuid()).collect();
    let from: Vec<i64> = rows.iter().map(|row| bigint(row.range.from_seq)).collect();
    let to: Vec<i64> = rows.iter().map(|row| bigint(row.range.to_seq)).collect();
    let counts: Vec<i64> = rows.iter().map(|row| bigint(row.range.count())).collect();
    let first: Vec<Option<Timestamp>> = rows.iter().map(|row| row.range.first_at).collect();
    let last: Vec<Option<Timestamp>> = rows.iter().map(|row| row.range.last_at).collect();
    let reasons: Vec<&str> = rows.iter().map(|row| row.reason.as_str()).collect();
    let origins: Vec<&str> = rows.iter().map(|row| row.origin.as_str()).collect();
    transaction
        .execute(
            &statement,
            &[&tenants, &streams, &epochs, &from, &to, &counts, &first, &last, &reasons, &origins],
        )
        .await?;
    Ok(())
}
