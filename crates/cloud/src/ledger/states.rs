//! Frontiers, blocks and marks of streams.

use api::tokens::Tenants;
use event::id::{Epoch, NodeId, TenantId};
use event::ledger::{BlockState, Digest, Frontier, MarkState, RangeSet, StreamState};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use super::StreamName;
use crate::ingest::page::{PAGE_LEN, Page, page_of};

/// The most streams in a page.
pub const MAX_STREAMS: u32 = 200;
/// The most blocks in a page.
pub const MAX_BLOCKS: u32 = 10_000;
/// The most blocks whose marks are given at once.
pub const MAX_MARKED: usize = 64;
/// Pages of the ledger in a block.
const PAGES_IN_BLOCK: u64 = event::ledger::BLOCK_LEN / PAGE_LEN;

/// Which streams.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of this stream.
    pub stream: Option<NodeId>,
    /// After this one.
    pub after: Option<(Uuid, String, Uuid)>,
    /// The most; [`MAX_STREAMS`] if not said.
    pub limit: Option<u32>,
}

/// A page of streams.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Streams {
    /// In the order of tenant, stream and epoch.
    pub streams: Vec<StreamState>,
    /// What to go on after; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<String>,
}

/// The tenants as a parameter: null for all.
pub(super) fn scope(tenants: &Tenants) -> Option<Vec<Uuid>> {
    match tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(list.iter().map(|tenant| tenant.uuid()).collect()),
    }
}

const STREAMS: &str = "SELECT f.tenant_id, f.stream, f.epoch, f.received, f.lost, f.id, f.behind,
    ARRAY(SELECT unnest(ARRAY[t.from_seq, t.to_seq]) FROM ledger_tombstone t
          WHERE t.tenant_id = f.tenant_id AND t.stream = f.stream AND t.epoch = f.epoch
              AND t.reason IN ('quarantined', 'duplicate', 'kept_at_site'))
FROM ledger_frontier f
WHERE ($1::uuid[] IS NULL OR f.tenant_id = ANY($1)) AND ($2::text IS NULL OR f.stream = $2)
    AND ($3::uuid IS NULL OR (f.tenant_id, f.stream, f.epoch) > ($3, $4, $5::uuid))
ORDER BY f.tenant_id, f.stream, f.epoch LIMIT $6";

/// The streams of these tenants.
pub async fn streams(
    pool: &pg::Pool,
    tenants: &Tenants,
    wanted: &Wanted,
) -> Result<Streams, pg::Error> {
    let limit = wanted.limit.unwrap_or(MAX_STREAMS).clamp(1, MAX_STREAMS);
    let after = wanted.after.as_ref();
    let (tenant, stream, epoch) =
        (after.map(|key| key.0), after.map(|key| key.1.as_str()), after.map(|key| key.2));
    let client = pool.get().await?;
    let only = wanted.stream.as_ref().map(NodeId::as_str);
    let rows = client
        .query(STREAMS, &[&scope(tenants), &only, &tenant, &stream, &epoch, &i64::from(limit)])
        .await?;
    let mut page = Streams::default();
    if rows.len() == usize::try_from(limit).unwrap_or(usize::MAX)
        && let Some(last) = rows.last()
    {
        let key: (Uuid, String, Uuid) = (last.try_get(0)?, last.try_get(1)?, last.try_get(2)?);
        page.next_after = Some(format!("{},{},{}", key.0, key.1, key.2));
    }
    for row in &rows {
        let Some(mut state) = state(row) else { continue };
        if row.try_get(6)? {
            catch_up(&client, row.try_get(5)?, &mut state).await?;
        }
        page.streams.push(state);
    }
    Ok(page)
}

fn state(row: &Row) -> Option<StreamState> {
    let tenant = TenantId::from_uuid(row.get(0)).ok()?;
    let stream: NodeId = row.get::<_, String>(1).parse().ok()?;
    let epoch = Epoch::from_uuid(row.get(2)).ok()?;
    let set = |column| RangeSet::from_flat(&row.get::<_, Vec<i64>>(column)).ok();
    let frontier = Frontier::from_sets(set(3)?, set(4)?).ok()?;
    let mut state = StreamState::of(tenant, stream, epoch, &frontier);
    let flat: Vec<i64> = row.get(7);
    let kept: RangeSet = flat
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&[a, b]| (a.unsigned_abs(), b.unsigned_abs()))
        .collect();
    state.kept = kept.intersection(frontier.received()).ranges().to_vec();
    Some(state)
}

/// What the pages have and the sets had no room for.
async fn catch_up(
    client: &pg::Client,
    frontier: i64,
    state: &mut StreamState,
) -> Result<(), pg::Error> {
    let from = i64::try_from(page_of(state.acked)).unwrap_or(i64::MAX);
    let pages = "SELECT page, ids FROM ledger_page WHERE frontier_id = $1 AND page >= $2";
    let mut received: RangeSet = state.received.iter().copied().collect();
    for row in client.query(pages, &[&frontier, &from]).await? {
        let page = Page::from_bytes(row.try_get(1)?).unwrap_or_default();
        for seq in page.received(row.get::<_, i64>(0).unsigned_abs()) {
            received.insert(seq, seq);
        }
    }
    let lost: RangeSet = state.lost.iter().copied().collect();
    state.lost = lost.difference(&received).ranges().to_vec();
    state.received = received.ranges().to_vec();
    Ok(())
}

const BLOCKS: &str = "SELECT block, count, hash FROM ledger_block
WHERE tenant_id = $1 AND stream = $2 AND epoch = $3 AND block > $4 ORDER BY block LIMIT $5";

/// The blocks of a stream above `after`.
pub async fn blocks(
    pool: &pg::Pool,
    name: &StreamName,
    after: Option<u64>,
) -> Result<Vec<BlockState>, pg::Error> {
    let client = pool.get().await?;
    let (tenant, stream, epoch) = (name.tenant_id.uuid(), name.stream.as_str(), name.epoch.uuid());
    let after = after.map_or(-1, |block| i64::try_from(block).unwrap_or(i64::MAX));
    let limit = i64::from(MAX_BLOCKS);
    let rows = client.query(BLOCKS, &[&tenant, &stream, &epoch, &after, &limit]).await?;
    let each = rows.iter().filter_map(|row| {
        let hash: [u8; 16] = row.get::<_, &[u8]>(2).try_into().ok()?;
        let digest = Digest::from_parts(row.get::<_, i64>(1).unsigned_abs(), hash);
        let block = row.get::<_, i64>(0).unsigned_abs();
        Some(BlockState { block, count: digest.count, hash: digest.hash_text() })
    });
    Ok(each.collect())
}

const PAGES: &str = "SELECT p.page, p.ids FROM ledger_page p
JOIN ledger_frontier f ON f.id = p.frontier_id
WHERE f.tenant_id = $1 AND f.stream = $2 AND f.epoch = $3 AND p.page = ANY($4) ORDER BY p.page";

/// What came first under each sequence of some blocks, at most [`MAX_MARKED`].
pub async fn marks(
    pool: &pg::Pool,
    name: &StreamName,
    blocks: &[u64],
) -> Result<Vec<MarkState>, pg::Error> {
    let client = pool.get().await?;
    let pages: Vec<i64> = blocks
        .iter()
        .take(MAX_MARKED)
        .flat_map(|block| {
            let first = block.saturating_mul(PAGES_IN_BLOCK);
            first..first.saturating_add(PAGES_IN_BLOCK)
        })
        .map(|page| i64::try_from(page).unwrap_or(i64::MAX))
        .collect();
    let (tenant, stream, epoch) = (name.tenant_id.uuid(), name.stream.as_str(), name.epoch.uuid());
    let mut marks = Vec::new();
    for row in client.query(PAGES, &[&tenant, &stream, &epoch, &pages]).await? {
        let page = Page::from_bytes(row.try_get(1)?).unwrap_or_default();
        for seq in page.received(row.get::<_, i64>(0).unsigned_abs()) {
            marks.push(MarkState { seq, mark: format!("{:016x}", page.get(seq)) });
        }
    }
    Ok(marks)
}
