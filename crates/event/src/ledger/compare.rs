//! Holding what node, edge and cloud have of a stream against each other. Pure.
//!
//! The table in docs/spec/verify.md is the contract. The tiers are asked one after the other while data moves, so the
//! caller reads the edge before and after the cloud: what the edge had before must be in the cloud or on its way,
//! what the cloud has must be at the edge after.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    BlockState, MarkState, Place, PlaceKind, RangeSet, Ranges, Repair, StreamState, block_range,
};

/// What is the matter with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// In the node's spool; the node sends it by itself.
    Spooled,
    /// The node takes it for acknowledged, and the edge does not have it.
    MissingAtEdge,
    /// Lost at the edge, and in the cloud.
    LostAtEdge,
    /// Waits for the cloud.
    OnItsWay,
    /// A dead letter of the edge.
    DeadLetter,
    /// The edge takes it for acknowledged, and the cloud does not have it.
    MissingAtCloud,
    /// The cloud was not told what became of it.
    Untold,
    /// The cloud does not have it, and the edge's rows are gone.
    Gone,
    /// The two tiers have different events.
    Differs,
    /// The edge's rows are not those that its ledger counted.
    Tampered,
}

impl FindingKind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::Spooled => "spooled",
            FindingKind::MissingAtEdge => "missing_at_edge",
            FindingKind::LostAtEdge => "lost_at_edge",
            FindingKind::OnItsWay => "on_its_way",
            FindingKind::DeadLetter => "dead_letter",
            FindingKind::MissingAtCloud => "missing_at_cloud",
            FindingKind::Untold => "untold",
            FindingKind::Gone => "gone",
            FindingKind::Differs => "differs",
            FindingKind::Tampered => "tampered",
        }
    }

    /// Whether it is data in motion and nothing is wrong.
    pub fn is_moving(self) -> bool {
        matches!(self, FindingKind::Spooled | FindingKind::OnItsWay)
    }
}

/// Who still has a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBy {
    /// The node's spool, as far as its status tells.
    Node,
    /// The edge.
    Edge,
    /// The cloud.
    Cloud,
    /// Both tiers, each its own.
    Both,
    /// Nobody: the cloud knows that it was lost.
    KnownLost,
    /// Nobody.
    Nobody,
}

impl HeldBy {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            HeldBy::Node => "node",
            HeldBy::Edge => "edge",
            HeldBy::Cloud => "cloud",
            HeldBy::Both => "both",
            HeldBy::KnownLost => "known_lost",
            HeldBy::Nobody => "nobody",
        }
    }
}

/// One range with what is the matter with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What is the matter.
    pub kind: FindingKind,
    /// The first sequence.
    pub from: u64,
    /// The last sequence.
    pub to: u64,
    /// Who still has it.
    pub held_by: HeldBy,
}

impl Finding {
    /// How many sequences.
    pub fn count(&self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }
}

/// The tiers' words on one stream, in the order in which they were asked.
#[derive(Debug, Clone, Copy)]
pub struct Tiers<'a> {
    /// The edge, first.
    pub before: &'a StreamState,
    /// What became of what the edge had received.
    pub places: &'a [Place],
    /// The cloud; `None` if it was not asked.
    pub cloud: Option<&'a StreamState>,
    /// The edge once more.
    pub after: &'a StreamState,
}

/// Everything that is the matter with a stream, as far as frontiers tell.
pub fn compare(tiers: &Tiers<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let set = |ranges: &Ranges| ranges.iter().copied().collect::<RangeSet>();
    let cloud_received = tiers.cloud.map(|cloud| set(&cloud.received)).unwrap_or_default();
    let cloud_lost = tiers.cloud.map(|cloud| set(&cloud.lost)).unwrap_or_default();
    missing_at_edge(tiers, &cloud_received, &cloud_lost, &mut findings);
    if let Some(cloud) = tiers.cloud {
        let lost = set(&tiers.after.lost).intersection(&cloud_received);
        put(&mut findings, FindingKind::LostAtEdge, HeldBy::Cloud, &lost);
        missing_at_cloud(tiers, &cloud.accounted(), &mut findings);
    }
    findings.sort_unstable_by_key(|finding| (finding.from, finding.kind));
    findings
}

fn missing_at_edge(
    tiers: &Tiers<'_>,
    cloud_received: &RangeSet,
    cloud_lost: &RangeSet,
    findings: &mut Vec<Finding>,
) {
    let node = tiers.after.node.as_ref();
    let here = tiers.after.accounted();
    let heads = [here.last(), cloud_received.last(), cloud_lost.last(), node.map(|n| n.head)];
    let top = heads.into_iter().flatten().max().unwrap_or(0);
    let missing: RangeSet = here.missing(1, top).filter(|_| top > 0).collect();
    let mut spooled = RangeSet::new();
    let mut in_spool = RangeSet::new();
    if let Some(node) = node {
        // What the cloud has came through the edge: the node's words are older than that.
        let above: RangeSet = [(node.acked.saturating_add(1), u64::MAX)].into_iter().collect();
        spooled = missing.intersection(&above).difference(cloud_received);
        in_spool.insert(node.oldest.max(1), node.head);
    }
    put(findings, FindingKind::Spooled, HeldBy::Node, &spooled);
    let rest = missing.difference(&spooled);
    let at_node = rest.intersection(&in_spool);
    put(findings, FindingKind::MissingAtEdge, HeldBy::Node, &at_node);
    let rest = rest.difference(&at_node);
    let in_cloud = rest.intersection(cloud_received);
    put(findings, FindingKind::MissingAtEdge, HeldBy::Cloud, &in_cloud);
    let rest = rest.difference(&in_cloud);
    let known = rest.intersection(cloud_lost);
    put(findings, FindingKind::MissingAtEdge, HeldBy::KnownLost, &known);
    put(findings, FindingKind::MissingAtEdge, HeldBy::Nobody, &rest.difference(&known));
}

fn missing_at_cloud(tiers: &Tiers<'_>, cloud: &RangeSet, findings: &mut Vec<Finding>) {
    let missing = tiers.before.accounted().difference(cloud);
    let told: RangeSet = tiers.before.kept.iter().chain(&tiers.before.lost).copied().collect();
    let in_place = |wanted: &[PlaceKind]| -> RangeSet {
        let there = tiers.places.iter().filter(|place| wanted.contains(&place.place));
        there.map(|place| (place.from, place.to)).collect()
    };
    let mut rest = missing;
    let mut take = |kind, held_by, set: &RangeSet| {
        let found = rest.intersection(set);
        put(findings, kind, held_by, &found);
        rest = rest.difference(&found);
    };
    take(FindingKind::OnItsWay, HeldBy::Edge, &in_place(&[PlaceKind::Pending]));
    take(FindingKind::DeadLetter, HeldBy::Edge, &in_place(&[PlaceKind::Dlq, PlaceKind::Failed]));
    // What is kept may have a row in the store, and is not for the cloud all the same.
    take(FindingKind::Untold, HeldBy::Edge, &told);
    let delivered = in_place(&[PlaceKind::Acked, PlaceKind::Raw]);
    take(FindingKind::MissingAtCloud, HeldBy::Edge, &delivered);
    put(findings, FindingKind::Gone, HeldBy::Nobody, &rest);
}

fn put(findings: &mut Vec<Finding>, kind: FindingKind, held_by: HeldBy, set: &RangeSet) {
    let each = set.ranges().iter().map(|&(from, to)| Finding { kind, from, to, held_by });
    findings.extend(each);
}

/// What the edge received and the cloud may not know: the range whose places decide.
pub fn unsettled(edge: &StreamState, cloud: &StreamState) -> Option<(u64, u64)> {
    let missing = edge.accounted().difference(&cloud.accounted());
    Some((missing.ranges().first()?.0, missing.last()?))
}

/// Blocks whose count or hash is not the same, ascending.
pub fn differing_blocks(edge: &[BlockState], cloud: &[BlockState]) -> Vec<u64> {
    let by_number = |blocks: &[BlockState]| -> BTreeMap<u64, (u64, String)> {
        blocks.iter().map(|one| (one.block, (one.count, one.hash.clone()))).collect()
    };
    let (edge, cloud) = (by_number(edge), by_number(cloud));
    let numbers: BTreeSet<u64> = edge.keys().chain(cloud.keys()).copied().collect();
    numbers.into_iter().filter(|number| edge.get(number) != cloud.get(number)).collect()
}

/// Sequences of one or more blocks that both tiers have as different events, and how many of the cloud's could not be
/// looked at because the edge has no row of them and no finding says why.
pub fn compare_marks(
    edge: &[MarkState],
    cloud: &[MarkState],
    explained: &RangeSet,
) -> (Vec<Finding>, u64) {
    let here: BTreeSet<(u64, &str)> = edge.iter().map(|one| (one.seq, &*one.mark)).collect();
    let seqs: BTreeSet<u64> = edge.iter().map(|one| one.seq).collect();
    let (mut differs, mut unchecked) = (RangeSet::new(), 0);
    for one in cloud.iter().filter(|one| !explained.contains(one.seq)) {
        if !seqs.contains(&one.seq) {
            unchecked += 1;
        } else if !here.contains(&(one.seq, &*one.mark)) {
            differs.insert(one.seq, one.seq);
        }
    }
    let mut findings = Vec::new();
    put(&mut findings, FindingKind::Differs, HeldBy::Both, &differs);
    (findings, unchecked)
}

/// Blocks of the ledger whose rows are not those that were counted. A block with fewer rows than counted cannot be
/// judged: retention took them, or they are kept ranges.
pub fn tampered(ledger: &[BlockState], rows: &[BlockState]) -> (Vec<Finding>, u64) {
    let counted: BTreeMap<u64, &BlockState> = ledger.iter().map(|one| (one.block, one)).collect();
    let (mut findings, mut unchecked) = (Vec::new(), 0);
    let seen: BTreeSet<u64> = rows.iter().map(|one| one.block).collect();
    unchecked +=
        ledger.iter().filter(|one| !seen.contains(&one.block)).map(|one| one.count).sum::<u64>();
    for row in rows {
        match counted.get(&row.block) {
            Some(block) if block.count == row.count && block.hash == row.hash => {}
            Some(block) if block.count > row.count => unchecked += block.count,
            _ => {
                let (from, to) = block_range(row.block).into_inner();
                let (kind, held_by) = (FindingKind::Tampered, HeldBy::Nobody);
                findings.push(Finding { kind, from: from.max(1), to, held_by });
            }
        }
    }
    (findings, unchecked)
}

/// What `--repair` does about the findings of a stream.
pub fn plan_repair(state: &StreamState, findings: &[Finding], dry_run: bool) -> Repair {
    let mut repair = Repair {
        stream: state.stream.clone(),
        epoch: state.epoch,
        resend: Vec::new(),
        adopt: Vec::new(),
        adopt_lost: Vec::new(),
        resync: Vec::new(),
        retell: Vec::new(),
        dry_run,
    };
    let highest = state.received.last().map_or(0, |&(_, to)| to);
    for finding in findings {
        let list = match (finding.kind, finding.held_by) {
            (FindingKind::MissingAtEdge, HeldBy::Cloud) | (FindingKind::LostAtEdge, _) => {
                &mut repair.adopt
            }
            (FindingKind::MissingAtEdge, HeldBy::KnownLost) => &mut repair.adopt_lost,
            (FindingKind::MissingAtEdge, _) => &mut repair.resend,
            // A node sends in order, so a hole below what is here may be one that it believes to be filled: the edge
            // told it so before it lost its records. Asking for what is on its way does no harm.
            (FindingKind::Spooled, _) if finding.to < highest => &mut repair.resend,
            (FindingKind::MissingAtCloud, _) => &mut repair.resync,
            (FindingKind::Untold, _) => &mut repair.retell,
            _ => continue,
        };
        list.push((finding.from, finding.to));
    }
    repair
}
