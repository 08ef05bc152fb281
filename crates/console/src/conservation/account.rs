//! The account of a stream: where each of its sequences is. Pure.
//!
//! Promise: every sequence from one to the highest known is in exactly one place, so the numbers always add up to what was produced.

use event::ledger::{RangeSet, StreamState};
use serde::Serialize;
use utoipa::ToSchema;

/// How many sequences are where. produced = stored + quarantined + lost + missing + in_flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Counts {
    pub(crate) produced: u64,
    pub(crate) stored: u64,
    pub(crate) quarantined: u64,
    pub(crate) lost: u64,
    pub(crate) missing: u64,
    pub(crate) in_flight: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.produced += other.produced;
        self.stored += other.stored;
        self.quarantined += other.quarantined;
        self.lost += other.lost;
        self.missing += other.missing;
        self.in_flight += other.in_flight;
    }
}

/// The account of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) counts: Counts,
    pub(super) at_node: u64,
    pub(super) at_edge: u64,
}

/// What the tiers say of one stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said<'a> {
    pub(super) edge: Option<&'a StreamState>,
    pub(super) cloud: Option<&'a StreamState>,
    /// Whether the cloud is the last tier.
    pub(super) to_cloud: bool,
    /// Records in quarantine at the site.
    pub(super) quarantined: u64,
}

fn set(ranges: Option<&event::ledger::Ranges>) -> RangeSet {
    ranges.into_iter().flatten().copied().collect()
}

fn union(a: &RangeSet, b: &RangeSet) -> RangeSet {
    a.ranges().iter().chain(b.ranges()).copied().collect()
}

pub(super) fn account(said: &Said<'_>) -> Account {
    let Said { edge, cloud, .. } = *said;
    let at_edge = set(edge.map(|state| &state.received));
    let in_cloud = set(cloud.map(|state| &state.received));
    let stored = if said.to_cloud { in_cloud.clone() } else { union(&at_edge, &in_cloud) };
    let declared = union(&set(edge.map(|state| &state.lost)), &set(cloud.map(|state| &state.lost)));
    // What one tier gave up may have come to another all the same.
    let lost = declared.difference(&stored).difference(&at_edge);
    let kept = union(&set(edge.map(|state| &state.kept)), &set(cloud.map(|state| &state.kept)));
    let quarantined = kept.intersection(&stored).count().min(said.quarantined);
    let waiting = at_edge.difference(&stored);
    let known = union(&union(&stored, &lost), &waiting);
    let node = edge.and_then(|state| state.node.as_ref());
    let highest = known.last().unwrap_or(0).max(node.map_or(0, |node| node.head));
    // A life of which the node says nothing any more is over: what is not there will not come.
    let acked = node.map_or(highest, |node| node.acked.min(highest));
    let holes = |from: u64, to: u64| -> u64 {
        if from > to { 0 } else { known.missing(from, to).map(|(a, b)| b - a + 1).sum() }
    };
    let (missing, at_node) = (holes(1, acked), holes(acked + 1, highest));
    Account {
        counts: Counts {
            produced: highest,
            stored: stored.count() - quarantined,
            quarantined,
            lost: lost.count(),
            missing,
            in_flight: at_node + waiting.count(),
        },
        at_node,
        at_edge: waiting.count(),
    }
}

#[cfg(test)]
mod tests {
    use event::id::{Epoch, TenantId};
    use event::ledger::NodeView;
    use proptest::prelude::*;

    use super::*;

    fn state(received: Vec<(u64, u64)>, lost: Vec<(u64, u64)>) -> StreamState {
        let received: RangeSet = received.into_iter().collect();
        let lost: RangeSet = lost.into_iter().collect();
        let mut state =
            StreamState::unknown(TenantId::mint(), "barn-1".parse().unwrap(), Epoch::mint());
        state.lost = lost.difference(&received).ranges().to_vec();
        state.received = received.ranges().to_vec();
        state
    }

    fn node(head: u64, acked: u64) -> Option<NodeView> {
        Some(NodeView { head, acked, oldest: 1, online: true, at: None })
    }

    #[test]
    fn each_sequence_is_where_it_should_be() {
        let mut edge = state(vec![(1, 90)], vec![(91, 95)]);
        edge.node = node(120, 100);
        let mut cloud = state(vec![(1, 60)], vec![]);
        cloud.kept = vec![(5, 6)];
        let said = Said { edge: Some(&edge), cloud: Some(&cloud), to_cloud: true, quarantined: 2 };
        let found = account(&said);
        let counts = Counts {
            produced: 120,
            stored: 58,
            quarantined: 2,
            lost: 5,
            missing: 5,
            in_flight: 50,
        };
        assert_eq!(found, Account { counts, at_node: 20, at_edge: 30 });
        let alone = account(&Said { cloud: None, to_cloud: false, quarantined: 0, ..said });
        assert_eq!(
            (alone.counts.stored, alone.at_edge),
            (90, 0),
            "without a cloud the edge is last"
        );
        let over = account(&Said { edge: None, ..said });
        assert_eq!((over.counts.produced, over.counts.in_flight), (60, 0));
        assert_eq!(account(&Said::default()), Account::default());
    }

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        proptest::collection::vec((1_u64..200, 0_u64..30).prop_map(|(a, n)| (a, a + n)), 0..8)
    }

    proptest! {
        #[test]
        fn the_numbers_always_add_up(
            here in ranges(), gone in ranges(), there in ranges(), lost in ranges(), kept in ranges(),
            words in proptest::option::of((0_u64..300, 0_u64..300)),
            to_cloud: bool, quarantined in 0_u64..50,
        ) {
            let mut edge = state(here, gone);
            edge.node = words.and_then(|(head, acked)| node(head, acked));
            let mut cloud = state(there, lost);
            cloud.kept = kept.into_iter().collect::<RangeSet>().ranges().to_vec();
            let said = Said { edge: Some(&edge), cloud: Some(&cloud), to_cloud, quarantined };
            let Account { counts, at_node, at_edge } = account(&said);
            let sum = counts.stored + counts.quarantined + counts.lost + counts.missing + counts.in_flight;
            prop_assert_eq!(counts.produced, sum);
            prop_assert_eq!(counts.in_flight, at_node + at_edge);
        }
    }
}
