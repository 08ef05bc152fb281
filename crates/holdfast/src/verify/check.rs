//! One look at every stream, in the order that keeps data in motion from looking missing.

use std::collections::BTreeMap;

use event::id::{Epoch, NodeId, TenantId};
use event::ledger::{
    self, Finding, FindingKind, NodeView, RangeSet, Repaired, StreamState, block_range,
};
use serde::Serialize;

use super::tier::{Tier, Tiers};

/// Blocks that are looked at mark by mark, of one stream.
const LOOKED_AT: usize = 64;

/// What one tier has of a stream.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Held {
    pub(super) acked: u64,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) kept: u64,
}

/// A stream, and what is the matter with it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StreamReport {
    pub(super) tenant_id: TenantId,
    pub(super) stream: NodeId,
    pub(super) epoch: Epoch,
    pub(super) node: Option<NodeView>,
    pub(super) edge: Held,
    pub(super) cloud: Option<Held>,
    pub(super) blocks: u64,
    pub(super) findings: Vec<Finding>,
    /// Sequences that could not be compared by hash, because the edge's rows are gone.
    pub(super) unchecked: u64,
    pub(super) repaired: Option<Repaired>,
    /// The edge's words, for the repair.
    #[serde(skip)]
    pub(super) state: StreamState,
}

impl StreamReport {
    /// Findings that are not just data in motion.
    pub(super) fn wrong(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.kind.is_moving())
    }
}

/// Which streams, and how thoroughly.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) tenant: Option<TenantId>,
    pub(super) stream: Option<NodeId>,
    pub(super) deep: bool,
}

type Key = (TenantId, NodeId, Epoch);

fn by_key(states: Vec<StreamState>) -> BTreeMap<Key, StreamState> {
    let each = states.into_iter();
    each.map(|one| ((one.tenant_id, one.stream.clone(), one.epoch), one)).collect()
}

/// Compares every stream.
pub(super) async fn check(tiers: &Tiers, scope: &Scope) -> anyhow::Result<Vec<StreamReport>> {
    let edge = tiers.edge.streams(scope.tenant, scope.stream.as_ref()).await?;
    let mut tenants: Vec<TenantId> = edge.iter().map(|one| one.tenant_id).collect();
    tenants.extend(scope.tenant);
    tenants.sort_unstable();
    tenants.dedup();
    let before = by_key(edge);
    let cloud = match &tiers.cloud {
        Some(cloud) => Some(by_key(in_cloud(cloud, &tenants, scope).await?)),
        None => None,
    };
    let mut keys: Vec<Key> = before.keys().cloned().collect();
    let foreign = cloud.iter().flat_map(|states| states.keys());
    keys.extend(foreign.filter(|key| !before.contains_key(*key)).cloned());
    keys.sort_unstable();
    let mut reports = Vec::new();
    for key in keys {
        let unknown = || StreamState::unknown(key.0, key.1.clone(), key.2);
        let here = before.get(&key).cloned().unwrap_or_else(unknown);
        let there = cloud.as_ref().map(|states| states.get(&key).cloned().unwrap_or_else(unknown));
        reports.push(one(tiers, scope, here, there).await?);
    }
    Ok(reports)
}

async fn in_cloud(
    cloud: &Tier,
    tenants: &[TenantId],
    scope: &Scope,
) -> anyhow::Result<Vec<StreamState>> {
    let mut found = Vec::new();
    for tenant in tenants {
        found.extend(cloud.streams(Some(*tenant), scope.stream.as_ref()).await?);
    }
    Ok(found)
}

async fn one(
    tiers: &Tiers,
    scope: &Scope,
    before: StreamState,
    mut cloud: Option<StreamState>,
) -> anyhow::Result<StreamReport> {
    let mut places = Vec::new();
    let mut after = before.clone();
    let quiet = cloud.as_ref().is_none_or(|cloud| {
        cloud.accounted() == before.accounted() && cloud.received == before.received
    });
    if !quiet && let (Some(tier), Some(first)) = (&tiers.cloud, &cloud) {
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
    if let (Some(tier), Some(cloud)) = (&tiers.cloud, &cloud) {
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
    let count = |ranges: &ledger::Ranges| ranges.iter().copied().collect::<RangeSet>().count();
    Held {
        acked: state.acked,
        received: count(&state.received),
        lost: count(&state.lost),
        kept: count(&state.kept),
    }
}

/// Whether a repair may close it.
pub(super) fn can_be_closed(finding: &Finding) -> bool {
    matches!(
        finding.kind,
        FindingKind::MissingAtEdge
            | FindingKind::LostAtEdge
            | FindingKind::MissingAtCloud
            | FindingKind::Untold
    )
}
