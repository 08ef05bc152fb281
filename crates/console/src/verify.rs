//! One look at every stream of a site and of the cloud, in the order that keeps data in motion from looking missing.
//!
//! The rules are [`event::ledger`]'s; this asks in the right order. `holdfast verify` and the page both stand on it: a [`Tier`] is a database for
//! the one and an API for the other. docs/spec/verify.md says what is compared.

use std::collections::BTreeMap;

use event::id::{Epoch, NodeId, TenantId};
use event::ledger::{
    self, BlockState, Finding, MarkState, NodeView, Place, RangeSet, Ranges, Repaired, StreamState,
    block_range,
};
use serde::Serialize;

/// Blocks that are looked at mark by mark, of one stream.
const LOOKED_AT: usize = 64;

/// A tier whose ledger can be asked.
pub trait Tier: Sync {
    /// Why it cannot.
    type Error: Send;

    /// Every stream of a tenant (or of all that may be seen), or one.
    fn streams(
        &self,
        tenant: Option<TenantId>,
        stream: Option<&NodeId>,
    ) -> impl Future<Output = Result<Vec<StreamState>, Self::Error>> + Send;

    /// The blocks of a stream.
    fn blocks(
        &self,
        of: &StreamState,
    ) -> impl Future<Output = Result<Vec<BlockState>, Self::Error>> + Send;

    /// What is stored under the sequences of some blocks.
    fn marks(
        &self,
        of: &StreamState,
        blocks: &[u64],
    ) -> impl Future<Output = Result<Vec<MarkState>, Self::Error>> + Send;

    /// The edge's blocks, counted again from its rows.
    fn recount(
        &self,
        of: &StreamState,
    ) -> impl Future<Output = Result<Vec<BlockState>, Self::Error>> + Send;

    /// What became of sequences that the edge received.
    fn places(
        &self,
        of: &StreamState,
        range: (u64, u64),
    ) -> impl Future<Output = Result<Vec<Place>, Self::Error>> + Send;
}

/// The tiers that are compared.
#[derive(Debug)]
pub struct Tiers<'a, T> {
    /// The site.
    pub edge: &'a T,
    /// The cloud, where it is asked.
    pub cloud: Option<&'a T>,
}

/// What one tier has of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct Held {
    /// The highest sequence up to which nothing is missing.
    pub acked: u64,
    /// Sequences that are here.
    pub received: u64,
    /// Sequences that were declared lost.
    pub lost: u64,
    /// Of those that are here, the ones that have no event of their own.
    pub kept: u64,
}

/// A stream, and what is the matter with it.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The stream.
    pub stream: NodeId,
    /// The life of its spool.
    pub epoch: Epoch,
    /// The node's last words about it.
    pub node: Option<NodeView>,
    /// What the edge has.
    pub edge: Held,
    /// What the cloud has, where it was asked.
    pub cloud: Option<Held>,
    /// Blocks of the edge.
    pub blocks: u64,
    /// What is not as it should be, and what is on its way.
    pub findings: Vec<Finding>,
    /// Sequences that could not be compared by hash, because the edge's rows are gone.
    pub unchecked: u64,
    /// What a repair did.
    pub repaired: Option<Repaired>,
    /// The edge's words, for a repair.
    #[serde(skip)]
    pub state: StreamState,
}

impl StreamReport {
    /// Findings that are not just data in motion.
    pub fn wrong(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.kind.is_moving())
    }
}

/// Which streams, and how thoroughly.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Of one tenant.
    pub tenant: Option<TenantId>,
    /// Of one node.
    pub stream: Option<NodeId>,
    /// Whether the edge's blocks are counted again from its rows.
    pub deep: bool,
}

type Key = (TenantId, NodeId, Epoch);

fn by_key(states: Vec<StreamState>) -> BTreeMap<Key, StreamState> {
    let each = states.into_iter();
    each.map(|one| ((one.tenant_id, one.stream.clone(), one.epoch), one)).collect()
}

/// Compares every stream; `progress` hears how many are done, of how many.
pub async fn check<T: Tier>(
    tiers: &Tiers<'_, T>,
    scope: &Scope,
    progress: impl Fn(usize, usize) + Send,
) -> Result<Vec<StreamReport>, T::Error> {
    let edge = tiers.edge.streams(scope.tenant, scope.stream.as_ref()).await?;
    let mut tenants: Vec<TenantId> = edge.iter().map(|one| one.tenant_id).collect();
    tenants.extend(scope.tenant);
    tenants.sort_unstable();
    tenants.dedup();
    let before = by_key(edge);
    let cloud = match tiers.cloud {
        Some(cloud) => {
            let mut found = Vec::new();
            for tenant in tenants {
                found.extend(cloud.streams(Some(tenant), scope.stream.as_ref()).await?);
            }
            Some(by_key(found))
        }
        None => None,
    };
    let mut keys: Vec<Key> = before.keys().cloned().collect();
    let foreign = cloud.iter().flat_map(|states| states.keys());
    keys.extend(foreign.filter(|key| !before.contains_key(*key)).cloned());
    keys.sort_unstable();
    let mut reports = Vec::with_capacity(keys.len());
    for key in &keys {
        let unknown = || StreamState::unknown(key.0, key.1.clone(), key.2);
        let here = before.get(key).cloned().unwrap_or_else(unknown);
        let there = cloud.as_ref().map(|states| states.get(key).cloned().unwrap_or_else(unknown));
        reports.push(one(tiers, scope, here, there).await?);
        progress(reports.len(), keys.len());
    }
    Ok(reports)
}

async fn one<T: Tier>(
    tiers: &Tiers<'_, T>,
    scope: &Scope,
    before: StreamState,
    mut cloud: Option<StreamState>,
) -> Result<StreamReport, T::Error> {
    let mut places = Vec::new();
    let mut after = before.clone();
    let quiet = cloud.as_ref().is_none_or(|cloud| {
        cloud.accounted() == before.accounted() && cloud.received == before.received
    });
    if !quiet && let (Some(tier), Some(first)) = (tiers.cloud, &cloud) {
        if let Some(range) = ledger::unsettled(&before, first) {
            places = tiers.edge.places(&before, range).await?;
        }
        let again = tier.streams(Some(before.tenant_id), Some(&before.stream)).await?;
        cloud = again.into_iter().find(|one| one.epoch == before.epoch).or(cloud);
        let again = tiers.edge.streams(Some(before.tenant_id), Some(&before.stream)).await?;
        after = again.into_iter().find(|one| one.epoch == before.epoch).unwrap_or(after);
    }
    let said =
        ledger::Tiers { before: &before, places: &places, cloud: cloud.as_ref(), after: &after };
    let mut findings = ledger::compare(&said);
    let mut unchecked = 0;
    let blocks = tiers.edge.blocks(&before).await?;
    if let (Some(tier), Some(cloud)) = (tiers.cloud, &cloud) {
        let theirs = tier.blocks(cloud).await?;
        let mut differing = ledger::differing_blocks(&blocks, &theirs);
        let explained: RangeSet = findings
            .iter()
            .map(|one| (one.from, one.to))
            .chain(after.kept.iter().copied())
            .collect();
        for block in differing.split_off(differing.len().min(LOOKED_AT)) {
            let (from, to) = block_range(block).into_inner();
            unchecked += explained.missing(from, to).map(|(a, b)| b - a + 1).sum::<u64>();
        }
        if !differing.is_empty() {
            let ours = tiers.edge.marks(&before, &differing).await?;
            let theirs = tier.marks(cloud, &differing).await?;
            let (differ, not_there) = ledger::compare_marks(&ours, &theirs, &explained);
            findings.extend(differ);
            unchecked += not_there;
        }
    }
    if scope.deep {
        let rows = tiers.edge.recount(&before).await?;
        let (tampered, gone) = ledger::tampered(&blocks, &rows);
        findings.extend(tampered);
        unchecked += gone;
    }
    findings.sort_unstable_by_key(|finding| (finding.from, finding.kind));
    Ok(StreamReport {
        tenant_id: before.tenant_id,
        stream: before.stream.clone(),
        epoch: before.epoch,
        node: after.node.clone(),
        edge: held(&after),
        cloud: cloud.as_ref().map(held),
        blocks: blocks.len() as u64,
        findings,
        unchecked,
        repaired: None,
        state: after,
    })
}

fn held(state: &StreamState) -> Held {
    let count = |ranges: &Ranges| ranges.iter().copied().collect::<RangeSet>().count();
    Held {
        acked: state.acked,
        received: count(&state.received),
        lost: count(&state.lost),
        kept: count(&state.kept),
    }
}
