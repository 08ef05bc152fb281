//! What the edge has of its streams: frontiers, blocks, marks, places.
//!
//! Marks, places and recounted blocks read the tables of events, which have no index by sequence: ingest would pay for it
//! with every row, and these are asked for seldom.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::ledger::{
    BlockState, Digest, Frontier, MarkState, NodeView, Place, PlaceKind, RangeSet, StreamState,
    block_of,
};
use futures_util::TryStreamExt as _;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::StreamName;
use crate::sync::admin::scope;

/// The most streams in a page.
pub const MAX_STREAMS: u32 = 200;
/// The most blocks in a page.
pub const MAX_BLOCKS: u32 = 10_000;
/// The most blocks whose marks are given at once.
pub const MAX_MARKED: usize = 64;
/// The most places that are named at once.
const MAX_PLACES: i64 = 100_000;

/// Which streams.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of this tenant.
    pub tenant_id: Option<TenantId>,
    /// Of this stream.
    pub stream: Option<NodeId>,
    /// After this one.
    pub after: Option<(String, Uuid)>,
    /// The most; [`MAX_STREAMS`] if not said.
    pub limit: Option<u32>,
}

/// A page of streams.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Streams {
    /// In the order of stream and epoch.
    pub streams: Vec<StreamState>,
    /// What to go on after; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<String>,
}

const STREAMS: &str = "SELECT f.tenant_id, f.stream, f.epoch, f.received, f.lost, n.status,
    ARRAY(SELECT unnest(ARRAY[t.from_seq, t.to_seq]) FROM ledger_tombstone t
          WHERE t.stream = f.stream AND t.epoch = f.epoch
              AND t.reason IN ('quarantined', 'duplicate', 'held_by_cloud', 'kept_at_site')) || f.kept
FROM ledger_frontier f LEFT JOIN nodes n ON n.node_id = f.stream
WHERE ($1::uuid[] IS NULL OR f.tenant_id = ANY($1)) AND ($2::uuid IS NULL OR f.tenant_id = $2)
    AND ($3::text IS NULL OR f.stream = $3)
    AND ($4::text IS NULL OR (f.stream, f.epoch) > ($4, $5::uuid))
ORDER BY f.stream, f.epoch LIMIT $6";

/// The streams of these tenants.
pub async fn streams(
    pool: &pg::Pool,
    tenants: &Tenants,
    wanted: &Wanted,
) -> Result<Streams, pg::Error> {
    let limit = wanted.limit.unwrap_or(MAX_STREAMS).clamp(1, MAX_STREAMS);
    let (after, epoch) = match &wanted.after {
        Some((stream, epoch)) => (Some(stream), Some(epoch)),
        None => (None, None),
    };
    let client = pool.get().await?;
    let tenant = wanted.tenant_id.map(TenantId::uuid);
    let stream = wanted.stream.as_ref().map(NodeId::as_str);
    let rows = client
        .query(STREAMS, &[&scope(tenants), &tenant, &stream, &after, &epoch, &i64::from(limit)])
        .await?;
    let mut page = Streams::default();
    if rows.len() == usize::try_from(limit).unwrap_or(usize::MAX)
        && let Some(last) = rows.last()
    {
        let (stream, epoch): (String, Uuid) = (last.try_get(1)?, last.try_get(2)?);
        page.next_after = Some(format!("{stream},{epoch}"));
    }
    // A row that ingress did not write is not shown: ingress refuses the stream and says so.
    page.streams = rows.iter().filter_map(state).collect();
    Ok(page)
}

fn state(row: &Row) -> Option<StreamState> {
    let stream: NodeId = row.get::<_, String>(1).parse().ok()?;
    let epoch = Epoch::from_uuid(row.get(2)).ok()?;
    let tenant = TenantId::from_uuid(row.get(0)).ok()?;
    let set = |column| RangeSet::from_flat(&row.get::<_, Vec<i64>>(column)).ok();
    let frontier = Frontier::from_sets(set(3)?, set(4)?).ok()?;
    let mut state = StreamState::of(tenant, stream, epoch, &frontier);
    let flat: Vec<i64> = row.get(6);
    let kept: RangeSet = flat
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&[a, b]| (a.unsigned_abs(), b.unsigned_abs()))
        .collect();
    state.kept = kept.intersection(frontier.received()).ranges().to_vec();
    state.node = row.get::<_, Option<Value>>(5).and_then(|status| node(&status, epoch));
    Some(state)
}

/// What a node said of this life of its spool.
fn node(status: &Value, epoch: Epoch) -> Option<NodeView> {
    let own = status["epoch"].as_str()? == epoch.to_string();
    own.then_some(())?;
    Some(NodeView {
        head: status["head"].as_u64()?,
        acked: status["acked"].as_u64()?,
        oldest: status["oldest"].as_u64()?,
        online: status["state"] == "online",
        at: status["at"].as_str().and_then(|at| at.parse().ok()),
    })
}

const BLOCKS: &str = "SELECT b.block, b.count, b.hash FROM ledger_block b
JOIN ledger_frontier f USING (stream, epoch)
WHERE b.stream = $2 AND b.epoch = $3 AND ($1::uuid[] IS NULL OR f.tenant_id = ANY($1))
    AND b.block > $4 ORDER BY b.block LIMIT $5";

/// The blocks of a stream above `after`, as the ledger counted them.
pub async fn blocks(
    pool: &pg::Pool,
    tenants: &Tenants,
    name: &StreamName,
    after: Option<u64>,
) -> Result<Vec<BlockState>, pg::Error> {
    let client = pool.get().await?;
    let (stream, epoch) = (name.stream.as_str(), name.epoch.uuid());
    let after = after.map_or(-1, |block| i64::try_from(block).unwrap_or(i64::MAX));
    let limit = i64::from(MAX_BLOCKS);
    let rows = client.query(BLOCKS, &[&scope(tenants), &stream, &epoch, &after, &limit]).await?;
    let each = rows.iter().filter_map(|row| {
        let hash: [u8; 16] = row.get::<_, &[u8]>(2).try_into().ok()?;
        let digest = Digest::from_parts(row.get::<_, i64>(1).unsigned_abs(), hash);
        Some(block_state(row.get::<_, i64>(0).unsigned_abs(), digest))
    });
    Ok(each.collect())
}

fn block_state(block: u64, digest: Digest) -> BlockState {
    BlockState { block, count: digest.count, hash: digest.hash_text() }
}

/// Rows of either table under a sequence; an event that is in both is one.
const ROWS: &str = "SELECT o.seq, o.id FROM sync_outbox o
WHERE o.stream = $2 AND o.epoch = $3 AND ($1::uuid[] IS NULL OR o.tenant_id = ANY($1))
    AND ($4::bigint[] IS NULL OR o.seq / 1024 = ANY($4))
UNION
SELECT t.seq, t.id FROM telemetry_raw t
WHERE t.stream = $2 AND t.epoch = $3 AND ($1::uuid[] IS NULL OR t.tenant_id = ANY($1))
    AND ($4::bigint[] IS NULL OR t.seq / 1024 = ANY($4))";

/// Gives every row of a stream, or of some of its blocks, to `each`, in no order. A stream may have millions: they go by.
async fn rows(
    pool: &pg::Pool,
    tenants: &Tenants,
    name: &StreamName,
    blocks: Option<&[u64]>,
    mut each: impl FnMut(u64, Digest),
) -> Result<(), pg::Error> {
    let client = pool.get().await?;
    let (stream, epoch) = (name.stream.as_str(), name.epoch.uuid());
    let blocks: Option<Vec<i64>> =
        blocks.map(|list| list.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect());
    let tenants = scope(tenants);
    let parameters: [&(dyn ToSql + Sync); 4] = [&tenants, &stream, &epoch, &blocks];
    let mut found = std::pin::pin!(client.query_raw(ROWS, parameters).await?);
    while let Some(row) = found.try_next().await? {
        let seq = row.get::<_, i64>(0).unsigned_abs();
        if let Ok(id) = EventId::from_uuid(row.get(1)) {
            let mut digest = Digest::new();
            digest.add(seq, id);
            each(seq, digest);
        }
    }
    Ok(())
}

/// What is stored under each sequence of some blocks, at most [`MAX_MARKED`].
pub async fn marks(
    pool: &pg::Pool,
    tenants: &Tenants,
    name: &StreamName,
    blocks: &[u64],
) -> Result<Vec<MarkState>, pg::Error> {
    let blocks = &blocks[..blocks.len().min(MAX_MARKED)];
    let mut found = Vec::new();
    rows(pool, tenants, name, Some(blocks), |seq, digest| {
        found.push(MarkState { seq, mark: format!("{:016x}", digest.mark()) });
    })
    .await?;
    found.sort_by_key(|one| one.seq);
    Ok(found)
}

/// The blocks of a stream, counted again from the rows.
pub async fn recount(
    pool: &pg::Pool,
    tenants: &Tenants,
    name: &StreamName,
) -> Result<Vec<BlockState>, pg::Error> {
    let mut blocks: BTreeMap<u64, Digest> = BTreeMap::new();
    rows(pool, tenants, name, None, |seq, digest| {
        blocks.entry(block_of(seq)).or_default().combine(digest);
    })
    .await?;
    Ok(blocks.into_iter().map(|(block, digest)| block_state(block, digest)).collect())
}

/// Runs of sequences in one place. A stored event without an outbox row is `raw`.
const PLACES: &str = "WITH found AS (
    SELECT o.seq, CASE o.status WHEN 'acked' THEN 'acked' WHEN 'dlq' THEN 'dlq'
        WHEN 'failed' THEN 'failed' ELSE 'pending' END AS place
    FROM sync_outbox o
    WHERE o.stream = $2 AND o.epoch = $3 AND o.seq BETWEEN $4 AND $5
        AND ($1::uuid[] IS NULL OR o.tenant_id = ANY($1))
    UNION
    SELECT t.seq, 'raw' FROM telemetry_raw t
    WHERE t.stream = $2 AND t.epoch = $3 AND t.seq BETWEEN $4 AND $5
        AND ($1::uuid[] IS NULL OR t.tenant_id = ANY($1))
        AND NOT EXISTS (SELECT FROM sync_outbox o WHERE o.id = t.id)),
runs AS (SELECT seq, place, seq - row_number() OVER (PARTITION BY place ORDER BY seq) AS run
         FROM found)
SELECT place, min(seq), max(seq) FROM runs GROUP BY place, run ORDER BY 2 LIMIT $6";

/// What became of sequences that were received.
pub async fn places(
    pool: &pg::Pool,
    tenants: &Tenants,
    name: &StreamName,
    (from, to): (u64, u64),
) -> Result<Vec<Place>, pg::Error> {
    let client = pool.get().await?;
    let (stream, epoch) = (name.stream.as_str(), name.epoch.uuid());
    let bound = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
    let (from, to) = (bound(from), bound(to));
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&scope(tenants), &stream, &epoch, &from, &to, &MAX_PLACES];
    let rows = client.query(PLACES, &parameters).await?;
    let each = rows.iter().map(|row| Place {
        place: match row.get(0) {
            "acked" => PlaceKind::Acked,
            "dlq" => PlaceKind::Dlq,
            "failed" => PlaceKind::Failed,
            "raw" => PlaceKind::Raw,
            _ => PlaceKind::Pending,
        },
        from: row.get::<_, i64>(1).unsigned_abs(),
        to: row.get::<_, i64>(2).unsigned_abs(),
    });
    Ok(each.collect())
}
