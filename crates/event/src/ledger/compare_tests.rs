//! The comparison, finding by finding, and that a repair leaves nothing to find.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::id::{Epoch, EventId, TenantId};

fn state(received: &[(u64, u64)], lost: &[(u64, u64)]) -> StreamState {
    let unknown = StreamState::unknown(TenantId::mint(), "barn-7".parse().unwrap(), Epoch::mint());
    StreamState { received: received.to_vec(), lost: lost.to_vec(), ..unknown }
}

fn node(oldest: u64, acked: u64, head: u64) -> NodeView {
    NodeView { head, acked, oldest, online: true, at: None }
}

fn short(findings: &[Finding]) -> Vec<(&'static str, u64, u64, &'static str)> {
    findings.iter().map(|f| (f.kind.as_str(), f.from, f.to, f.held_by.as_str())).collect()
}

fn check(edge: &StreamState, places: &[Place], cloud: &StreamState) -> Vec<Finding> {
    compare(&Tiers { before: edge, places, cloud: Some(cloud), after: edge })
}

#[test]
fn a_restored_edge_hears_who_has_what() {
    let mut edge = state(&[(1, 100), (501, 510)], &[]);
    edge.node = Some(node(400, 500, 520));
    let cloud = state(&[(1, 250)], &[(251, 260)]);
    assert_eq!(
        short(&check(&edge, &[], &cloud)),
        [
            ("missing_at_edge", 101, 250, "cloud"),
            ("missing_at_edge", 251, 260, "known_lost"),
            ("missing_at_edge", 261, 399, "nobody"),
            ("missing_at_edge", 400, 500, "node"),
            ("gone", 501, 510, "nobody"),
            ("spooled", 511, 520, "node"),
        ]
    );
    let repair = plan_repair(&edge, &check(&edge, &[], &cloud), false);
    assert_eq!(repair.adopt, [(101, 250)]);
    assert_eq!(repair.adopt_lost, [(251, 260)]);
    assert_eq!(repair.resend, [(261, 399), (400, 500)]);
    assert!(repair.resync.is_empty());
}

#[test]
fn what_the_cloud_lacks_is_sorted_by_its_place() {
    let mut edge = state(&[(1, 90)], &[(91, 100)]);
    edge.kept = vec![(40, 44)];
    let place = |place, from, to| Place { place, from, to };
    let places = [
        place(PlaceKind::Acked, 1, 35),
        place(PlaceKind::Raw, 36, 39),
        place(PlaceKind::Dlq, 45, 45),
        place(PlaceKind::Pending, 60, 90),
    ];
    let cloud = state(&[(1, 9)], &[]);
    assert_eq!(
        short(&check(&edge, &places, &cloud)),
        [
            ("missing_at_cloud", 10, 39, "edge"),
            ("untold", 40, 44, "edge"),
            ("dead_letter", 45, 45, "edge"),
            ("gone", 46, 59, "nobody"),
            ("on_its_way", 60, 90, "edge"),
            ("untold", 91, 100, "edge"),
        ]
    );
    assert_eq!(unsettled(&edge, &cloud), Some((10, 100)));
    assert_eq!(unsettled(&edge, &edge), None);
}

#[test]
fn an_old_status_does_not_hide_what_the_cloud_has_and_lost_is_found_again() {
    let mut edge = state(&[(1, 10), (31, 40)], &[]);
    edge.node = Some(node(1, 20, 50));
    let findings = check(&edge, &[], &state(&[(1, 10), (31, 40)], &[]));
    assert_eq!(
        short(&findings),
        [
            ("missing_at_edge", 11, 20, "node"),
            ("spooled", 21, 30, "node"),
            ("spooled", 41, 50, "node"),
        ]
    );
    // The node may believe that the edge has the hole below what is here.
    assert_eq!(plan_repair(&edge, &findings, false).resend, [(11, 20), (21, 30)]);

    let mut edge = state(&[(1, 10)], &[(11, 20)]);
    edge.node = Some(node(1, 10, 10));
    let cloud = state(&[(1, 30)], &[]);
    assert_eq!(
        short(&check(&edge, &[], &cloud)),
        [("lost_at_edge", 11, 20, "cloud"), ("missing_at_edge", 21, 30, "cloud")]
    );
}

#[test]
fn another_event_under_a_sequence_shows_and_a_missing_row_is_not_judged() {
    let mark = |seq: u64, event: EventId| {
        let mut digest = Digest::new();
        digest.add(seq, event);
        MarkState { seq, mark: format!("{:016x}", digest.mark()) }
    };
    let events: Vec<EventId> = (0..5).map(|_| EventId::mint()).collect();
    let cloud: Vec<MarkState> =
        (0..5).map(|n| mark(n, events[usize::try_from(n).unwrap()])).collect();
    let mut edge = cloud.clone();
    edge[2] = mark(2, EventId::mint());
    edge[3] = mark(3, EventId::mint());
    edge.remove(1);
    let explained: RangeSet = [(3, 3)].into_iter().collect();
    let (findings, unchecked) = compare_marks(&edge, &cloud, &explained);
    assert_eq!((short(&findings), unchecked), (vec![("differs", 2, 2, "both")], 1));
}

#[test]
fn blocks_that_differ_are_named_and_changed_rows_show() {
    let block = |block, count, hash: &str| BlockState { block, count, hash: hash.to_owned() };
    let ledger = [block(0, 9, "aa"), block(1, 9, "bb"), block(2, 9, "cc")];
    assert_eq!(differing_blocks(&ledger, &ledger), [] as [u64; 0]);
    assert_eq!(differing_blocks(&ledger, &[block(0, 9, "aa"), block(3, 1, "dd")]), [1, 2, 3]);
    let rows = [block(0, 9, "ax"), block(1, 10, "bb"), block(2, 8, "c")];
    let (findings, unchecked) = tampered(&ledger, &rows);
    assert_eq!(
        short(&findings),
        [("tampered", 1, 1023, "nobody"), ("tampered", 1024, 2047, "nobody")]
    );
    assert_eq!(unchecked, 9);
}

/// Whatever each tier has: after the repair, and the node and the forwarder having done their part, only what nobody can
/// close is left.
#[test]
fn a_repair_leaves_nothing_that_could_be_closed() {
    for seed in 0..500 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut draw = |top: u64| -> RangeSet {
            (0..rng.random_range(0..4))
                .map(|_| {
                    let from = rng.random_range(1..=top);
                    (from, rng.random_range(from..=top))
                })
                .collect()
        };
        let (received, lost) = (draw(60), draw(60));
        let (cloud_received, cloud_lost) = (draw(60), draw(60));
        let lost = lost.difference(&received);
        let cloud_lost = cloud_lost.difference(&cloud_received);
        let mut edge = state(received.ranges(), lost.ranges());
        let cloud = state(cloud_received.ranges(), cloud_lost.ranges());
        let acked = rng.random_range(0..=60);
        edge.node = Some(node(rng.random_range(1..=61), acked, 60));
        let there: Vec<Place> = received
            .ranges()
            .iter()
            .map(|&(from, to)| Place { place: PlaceKind::Acked, from, to })
            .collect();
        let repair = plan_repair(&edge, &check(&edge, &there, &cloud), false);

        let mut frontier = Frontier::from_sets(received.clone(), lost).unwrap();
        for &(from, to) in repair.adopt.iter().chain(&repair.resend) {
            frontier.observe_range(from, to).unwrap();
        }
        for &(from, to) in &repair.adopt_lost {
            frontier.declare_lost(from, to).unwrap();
        }
        let mut central = Frontier::from_sets(cloud_received, cloud_lost).unwrap();
        for &(from, to) in repair.resync.iter().chain(&repair.retell).chain(&repair.resend) {
            for (from, to) in frontier.lost().missing(from, to) {
                central.observe_range(from, to).unwrap();
            }
            central.declare_lost(from, to).unwrap();
        }
        edge.received = frontier.received().ranges().to_vec();
        edge.lost = frontier.lost().ranges().to_vec();
        let cloud = state(central.received().ranges(), central.lost().ranges());
        for finding in check(&edge, &there, &cloud) {
            let spooled = finding.kind == FindingKind::Spooled && finding.from > acked;
            assert!(spooled, "seed {seed}: {finding:?}");
        }
    }
}
