//! `ledger_frontier`.

use std::collections::{BTreeMap, BTreeSet};

use event::id::{Epoch, NodeId, TenantId};
use event::ledger::{Frontier, RangeSet};
use pg::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::bigint;
use crate::ingest::page::{Page, page_of};
use crate::ingest::plan::{Account, Stream, absorb};
use crate::ingest::write::Error;

/// Pages that a frontier which is behind looks at in one step.
const CATCH_UP_PAGES: i64 = 256;
/// Steps in one transaction; the next one goes on.
const CATCH_UP_STEPS: usize = 16;

/// Makes the rows that are missing and locks all of them. From here on the transaction is alone
/// with its streams.
pub(crate) async fn lock_frontiers(
    transaction: &Transaction<'_>,
    streams: &BTreeSet<Stream>,
) -> Result<BTreeMap<Stream, Account>, Error> {
    if streams.is_empty() {
        return Ok(BTreeMap::new());
    }
    let make = transaction
        .prepare_cached(
            "INSERT INTO ledger_frontier (tenant_id, stream, epoch)
             SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS u (tenant_id, stream, epoch)
             WHERE NOT EXISTS (SELECT FROM ledger_frontier f
                               WHERE (f.tenant_id, f.stream, f.epoch)
                                   = (u.tenant_id, u.stream, u.epoch))
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let lock = transaction
        .prepare_cached(
            "SELECT f.id, f.received, f.lost, f.accepted_count, f.cloned_count, f.behind,
                    f.stream, f.epoch, (u.place - 1)::int
             FROM unnest($1::uuid[], $2::text[], $3::uuid[]) WITH ORDINALITY
                 AS u (tenant_id, stream, epoch, place)
             JOIN ledger_frontier f USING (tenant_id, stream, epoch)
             ORDER BY u.place FOR UPDATE OF f",
        )
        .await?;
    let tenants: Vec<Uuid> = streams.iter().map(|stream| stream.0.uuid()).collect();
    let names: Vec<&str> = streams.iter().map(|stream| stream.1.as_str()).collect();
    let epochs: Vec<Uuid> = streams.iter().map(|stream| stream.2.uuid()).collect();
    let values: [&(dyn ToSql + Sync); 3] = [&tenants, &names, &epochs];
    // Sent together, in this order.
    let (_, rows) = tokio::try_join!(
        biased;
        transaction.execute(&make, &values),
        transaction.query(&lock, &values),
    )?;
    let by_place: Vec<&Stream> = streams.iter().collect();
    let mut accounts = BTreeMap::new();
    for row in &rows {
        let place = usize::try_from(row.get::<_, i32>(8)).unwrap_or(usize::MAX);
        if let Some(stream) = by_place.get(place) {
            accounts.insert((*stream).clone(), account(row)?);
        }
    }
    Ok(accounts)
}

/// Locks one frontier that is behind and that nobody is at work on.
pub(crate) async fn lock_behind(
    transaction: &Transaction<'_>,
    after: i64,
) -> Result<Option<(Stream, Account)>, Error> {
    let statement = transaction
        .prepare_cached(
            "SELECT id, received, lost, accepted_count, cloned_count, behind, stream, epoch,
                    tenant_id
             FROM ledger_frontier WHERE behind AND id > $1 ORDER BY id LIMIT 1
             FOR UPDATE SKIP LOCKED",
        )
        .await?;
    let Some(row) = transaction.query_opt(&statement, &[&after]).await? else {
        return Ok(None);
    };
    let (stream, epoch): (String, Uuid) = (row.get(6), row.get(7));
    let names: Option<Stream> = (|| {
        let tenant = TenantId::from_uuid(row.get(8)).ok()?;
        Some((tenant, stream.parse::<NodeId>().ok()?, Epoch::from_uuid(epoch).ok()?))
    })();
    let problem = "its names break their grammar".to_owned();
    let names = names.ok_or(Error::Damaged { stream, epoch, problem })?;
    Ok(Some((names, account(&row)?)))
}

fn account(row: &Row) -> Result<Account, Error> {
    let damaged =
        |problem: String| Error::Damaged { stream: row.get(6), epoch: row.get(7), problem };
    let set = |column| {
        let flat: Vec<i64> = row.get(column);
        RangeSet::from_flat(&flat).map_err(|error| damaged(error.to_string()))
    };
    let frontier =
        Frontier::from_sets(set(1)?, set(2)?).map_err(|error| damaged(error.to_string()))?;
    Ok(Account {
        id: row.get(0),
        frontier,
        accepted: row.get::<_, i64>(3).unsigned_abs(),
        cloned: row.get::<_, i64>(4).unsigned_abs(),
        behind: row.get(5),
        changed: false,
    })
}

/// Gives a frontier that is behind what its pages have, as far as there is room.
pub(crate) async fn catch_up(
    transaction: &Transaction<'_>,
    account: &mut Account,
) -> Result<(), Error> {
    let statement = transaction
        .prepare_cached(
            "SELECT page, ids FROM ledger_page WHERE frontier_id = $1 AND page >= $2
             ORDER BY page LIMIT $3",
        )
        .await?;
    let mut from = page_of(account.frontier.acked());
    for _ in 0..CATCH_UP_STEPS {
        let rows =
            transaction.query(&statement, &[&account.id, &bigint(from), &CATCH_UP_PAGES]).await?;
        let pages: Vec<(u64, Page)> = rows
            .iter()
            .map(|row| {
                let page = Page::from_bytes(row.get(1)).unwrap_or_default();
                (row.get::<_, i64>(0).unsigned_abs(), page)
            })
            .collect();
        let last = pages.len() < usize::try_from(CATCH_UP_PAGES).unwrap_or(usize::MAX);
        let next = pages.last().map_or(from, |(page, _)| page + 1);
        if !absorb(account, pages, last) {
            return Ok(());
        }
        from = next;
    }
    Ok(())
}

/// Writes the frontiers that changed.
pub(crate) async fn write_frontiers(
    transaction: &Transaction<'_>,
    accounts: &BTreeMap<Stream, Account>,
) -> Result<(), Error> {
    let changed: Vec<&Account> = accounts.values().filter(|account| account.changed).collect();
    if changed.is_empty() {
        return Ok(());
    }
    // Ranges differ in number, and Postgres has no ragged arrays: they travel as text.
    let statement = transaction
        .prepare_cached(
            "UPDATE ledger_frontier f SET acked = u.acked, received = u.received::bigint[],
                 lost = u.lost::bigint[], received_count = u.received_count,
                 lost_count = u.lost_count, accepted_count = u.accepted,
                 cloned_count = u.cloned, behind = u.behind, updated_at = now()
             FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[],
                 $6::bigint[], $7::bigint[], $8::bigint[], $9::bool[])
                 AS u (id, acked, received, lost, received_count, lost_count, accepted, cloned,
                       behind)
             WHERE f.id = u.id",
        )
        .await?;
    let each = || changed.iter().map(|account| &account.frontier);
    let ids: Vec<i64> = changed.iter().map(|account| account.id).collect();
    let acked: Vec<i64> = each().map(|frontier| bigint(frontier.acked())).collect();
    let received: Vec<String> = each().map(|frontier| literal(frontier.received())).collect();
    let lost: Vec<String> = each().map(|frontier| literal(frontier.lost())).collect();
    let received_count: Vec<i64> = each().map(|f| bigint(f.received().count())).collect();
    let lost_count: Vec<i64> = each().map(|f| bigint(f.lost().count())).collect();
    let accepted: Vec<i64> = changed.iter().map(|account| bigint(account.accepted)).collect();
    let cloned: Vec<i64> = changed.iter().map(|account| bigint(account.cloned)).collect();
    let behind: Vec<bool> = changed.iter().map(|account| account.behind).collect();
    transaction
        .execute(
            &statement,
            &[
                &ids,
                &acked,
                &received,
                &lost,
                &received_count,
                &lost_count,
                &accepted,
                &cloned,
                &behind,
            ],
        )
        .await?;
    Ok(())
}

/// An array of numbers as Postgres writes it.
fn literal(set: &RangeSet) -> String {
    let numbers: Vec<String> = set.to_flat().iter().map(i64::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}
