//! The ledger against a naive model: a set of numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    Digest, FlatError, Frontier, FrontierError, MAX_ISLANDS, MAX_RANGES, RangeSet, Seen, block_of,
    block_range,
};
use crate::id::EventId;

/// Small numbers, so that ranges meet.
const TOP: u64 = 60;

fn ranges_of(model: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &seq in model {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == seq => *end = seq,
            _ => ranges.push((seq, seq)),
        }
    }
    ranges
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..TOP, 0..12u64).prop_map(|(from, len)| (from, from + len))
}

fn set_of(ranges: &[(u64, u64)]) -> (RangeSet, BTreeSet<u64>) {
    (ranges.iter().copied().collect(), ranges.iter().flat_map(|&(a, b)| a..=b).collect())
}

#[derive(Debug, Clone)]
enum Step {
    Observe(u64),
    Lost(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..TOP).prop_map(Step::Observe),
        1 => (1..TOP, 0..12u64).prop_map(|(from, len)| Step::Lost(from, from + len)),
    ];
    prop::collection::vec(step, 0..120)
}

fn apply(frontier: &mut Frontier, step: &Step) {
    match *step {
        Step::Observe(seq) => drop(frontier.observe(seq).unwrap()),
        Step::Lost(from, to) => drop(frontier.declare_lost(from, to).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_range_set_is_a_set(
        operations in prop::collection::vec((any::<bool>(), range()), 0..60),
        asked in range(),
    ) {
        let mut set = RangeSet::new();
        let mut model = BTreeSet::new();
        for (insert, (from, to)) in operations {
            if insert {
                let added = (from..=to).filter(|&seq| model.insert(seq)).count();
                prop_assert_eq!(set.insert(from, to), added as u64);
            } else {
                let taken = (from..=to).filter(|seq| model.remove(seq)).count();
                prop_assert_eq!(set.remove(from, to), taken as u64);
            }
            prop_assert_eq!(set.ranges(), ranges_of(&model));
            prop_assert_eq!(set.count(), model.len() as u64);
            prop_assert_eq!(set.last(), model.last().copied());
        }
        for seq in 0..TOP + 14 {
            prop_assert_eq!(set.contains(seq), model.contains(&seq));
        }
        let missing: BTreeSet<u64> = (asked.0..=asked.1).filter(|seq| !model.contains(seq)).collect();
        prop_assert_eq!(set.missing(asked.0, asked.1).collect::<Vec<_>>(), ranges_of(&missing));
        prop_assert_eq!(RangeSet::from_flat(&set.to_flat()), Ok(set));
    }

    #[test]
    fn a_range_is_received_as_its_sequences_are(
        before in prop::collection::vec((any::<bool>(), range()), 0..20),
        ranges in prop::collection::vec(range(), 1..6),
    ) {
        let mut whole = Frontier::new();
        for (lost, (from, to)) in before {
            let (from, to) = (from.max(1), to.max(1));
            if lost {
                whole.declare_lost(from, to).unwrap();
            } else {
                whole.observe(from).unwrap();
            }
        }
        let mut single = whole.clone();
        for (from, to) in ranges {
            let (from, to) = (from.max(1), to.max(1));
            let new = (from..=to).filter(|&seq| single.observe(seq).unwrap() != Seen::Duplicate);
            let new = new.count() as u64;
            prop_assert_eq!(whole.observe_range(from, to), Ok(new));
            prop_assert_eq!(&whole, &single);
        }
    }

    #[test]
    fn union_and_intersection_are_those_of_sets(
        a in prop::collection::vec(range(), 0..12),
        b in prop::collection::vec(range(), 0..12),
    ) {
        let ((a, model_a), (b, model_b)) = (set_of(&a), set_of(&b));
        let union: BTreeSet<u64> = model_a.union(&model_b).copied().collect();
        let both: BTreeSet<u64> = model_a.intersection(&model_b).copied().collect();
        let (joined, common) = (a.union(&b), a.intersection(&b));
        prop_assert_eq!(joined.ranges(), ranges_of(&union));
        prop_assert_eq!(common.ranges(), ranges_of(&both));
    }

    #[test]
    fn a_frontier_accounts_for_every_sequence(steps in steps()) {
        let mut frontier = Frontier::new();
        let (mut received, mut lost) = (BTreeSet::new(), BTreeSet::new());
        for step in &steps {
            let acked_before = frontier.acked();
            match *step {
                Step::Observe(seq) => {
                    let seen = match (received.insert(seq), lost.remove(&seq)) {
                        (false, _) => Seen::Duplicate,
                        (true, true) => Seen::Recovered,
                        (true, false) => Seen::New,
                    };
                    prop_assert_eq!(frontier.observe(seq), Ok(seen));
                }
                Step::Lost(from, to) => {
                    let newly = (from..=to)
                        .filter(|seq| !received.contains(seq) && lost.insert(*seq))
                        .count();
                    prop_assert_eq!(frontier.declare_lost(from, to), Ok(newly as u64));
                }
            }
            prop_assert_eq!(frontier.received().ranges(), ranges_of(&received));
            prop_assert_eq!(frontier.lost().ranges(), ranges_of(&lost));
            let all: BTreeSet<u64> = received.union(&lost).copied().collect();
            let acked = (1..).take_while(|seq| all.contains(seq)).last().unwrap_or(0);
            prop_assert_eq!(frontier.acked(), acked);
            prop_assert!(frontier.acked() >= acked_before);
            let above: BTreeSet<u64> = all.range(acked + 1..).copied().collect();
            let islands = ranges_of(&above);
            prop_assert_eq!(&frontier.islands(usize::MAX), &islands);
            prop_assert_eq!(&frontier.islands(2), &islands[..islands.len().min(2)]);
            let holes: BTreeSet<u64> = (1..=TOP).filter(|seq| !all.contains(seq)).collect();
            prop_assert_eq!(frontier.missing(TOP), ranges_of(&holes));
            prop_assert!((0..TOP + 14).all(|seq| frontier.covers(seq) == all.contains(&seq)));
            prop_assert_eq!(frontier.highest(), all.last().copied().unwrap_or(0));
        }
        let stored = Frontier::from_sets(
            RangeSet::from_flat(&frontier.received().to_flat()).unwrap(),
            RangeSet::from_flat(&frontier.lost().to_flat()).unwrap(),
        );
        prop_assert_eq!(stored, Ok(frontier));
    }

    #[test]
    fn the_order_of_arrival_changes_nothing(
        (steps, shuffled) in steps().prop_flat_map(|steps| {
            (Just(steps.clone()), Just(steps).prop_shuffle())
        }),
        repeated in 1..3usize,
    ) {
        let (mut a, mut b) = (Frontier::new(), Frontier::new());
        steps.iter().for_each(|step| apply(&mut a, step));
        for _ in 0..repeated {
            shuffled.iter().for_each(|step| apply(&mut b, step));
        }
        prop_assert_eq!(a, b);
    }

    #[test]
    fn a_digest_depends_on_the_events_and_not_on_their_order(
        (events, shuffled) in prop::collection::vec((1..1_000_000u64, any::<u128>()), 1..20)
            .prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle())),
        split in 0..20usize,
        changed in 0..20usize,
        bit in 0..48u32,
    ) {
        let id = |bits: u128| {
            EventId::from_uuid(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()).unwrap()
        };
        let digest = |events: &[(u64, u128)]| {
            let mut digest = Digest::new();
            events.iter().for_each(|&(seq, bits)| digest.add(seq, id(bits)));
            digest
        };
        let whole = digest(&events);
        prop_assert_eq!(whole.count, events.len() as u64);
        prop_assert_eq!(digest(&shuffled), whole);
        let split = split.min(events.len());
        let mut parts = digest(&events[..split]);
        parts.combine(digest(&events[split..]));
        prop_assert_eq!(parts, whole);
        prop_assert_eq!(Digest::from_parts(whole.count, whole.hash_bytes()), whole);

        let changed = changed % events.len();
        let mut other_id = events.clone();
        other_id[changed].1 ^= 1 << bit;
        prop_assert_ne!(digest(&other_id).hash, whole.hash);
        let mut other_seq = events.clone();
        other_seq[changed].0 ^= 1 << bit;
        prop_assert_ne!(digest(&other_seq).hash, whole.hash);
        prop_assert_ne!(digest(&events[1..]), whole);
    }
}

#[test]
fn the_digest_is_as_documented() {
    let mut digest = Digest::new();
    digest.add(41, "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001".parse().unwrap());
    // Made with: printf '0000000000000029018f1a84bb0e7d3fb2e49e8b5f8e0001' | xxd -r -p | sha256sum
    assert_eq!(format!("{:032x}", digest.hash), DOCUMENTED_HASH);
}

const DOCUMENTED_HASH: &str = "d0db178c6f87610577b4b583f395cace";

#[test]
fn blocks_cover_every_sequence_once() {
    assert_eq!((block_of(1), block_of(1023), block_of(1024)), (0, 0, 1));
    for block in [0, 1, 7] {
        let range = block_range(block);
        assert_eq!((block_of(*range.start()), block_of(*range.end())), (block, block));
        assert_eq!(range.end() + 1, *block_range(block + 1).start());
    }
    assert!(block_range(block_of(u64::MAX)).contains(&u64::MAX));
}

#[test]
fn the_ends_of_the_number_line_hold() {
    let mut set = RangeSet::new();
    assert_eq!(set.insert(u64::MAX, u64::MAX), 1);
    assert_eq!(set.insert(u64::MAX, u64::MAX), 0);
    assert_eq!(set.insert(0, 0), 1);
    assert_eq!(set.missing(0, u64::MAX).collect::<Vec<_>>(), [(1, u64::MAX - 1)]);
    assert_eq!(RangeSet::from_flat(&set.to_flat()), Ok(set.clone()));
    assert_eq!(set.insert(1, u64::MAX - 1), u64::MAX - 1);
    assert_eq!(set.ranges(), [(0, u64::MAX)]);
    assert_eq!(set.missing(0, u64::MAX).count(), 0);
    assert_eq!(set.remove(5, 5), 1);
    assert_eq!(set.ranges(), [(0, 4), (6, u64::MAX)]);
    assert_eq!((set.insert(9, 8), set.remove(9, 8)), (0, 0));

    let mut frontier = Frontier::new();
    assert_eq!(frontier.observe(u64::MAX), Ok(Seen::New));
    assert_eq!(frontier.declare_lost(1, u64::MAX), Ok(u64::MAX - 1));
    assert_eq!(frontier.acked(), u64::MAX);
    assert_eq!(frontier.observe(7), Ok(Seen::Recovered));
    assert!(frontier.missing(u64::MAX).is_empty() && frontier.islands(9).is_empty());
}

#[test]
fn stored_lists_are_checked() {
    assert_eq!(RangeSet::from_flat(&[]), Ok(RangeSet::new()));
    assert_eq!(RangeSet::from_flat(&[1, 2, 3]), Err(FlatError::Odd(3)));
    for flat in [&[2, 1][..], &[1, 2, 2, 3], &[1, 2, 3, 4], &[5, 6, 1, 2], &[-1, 5]] {
        assert!(matches!(RangeSet::from_flat(flat), Err(FlatError::Order { .. })), "{flat:?}");
    }
    let set = |flat: &[i64]| RangeSet::from_flat(flat).unwrap();
    assert_eq!(Frontier::from_sets(set(&[1, 5]), set(&[5, 6])), Err(FrontierError::Overlap(5)));
    assert_eq!(
        Frontier::from_sets(set(&[0, 5]), set(&[])),
        Err(FrontierError::BadRange { from: 0, to: 5 })
    );
}

#[test]
fn sequences_start_at_one() {
    let mut frontier = Frontier::new();
    for (from, to) in [(0, 0), (0, 5), (5, 4)] {
        let fault = Err(FrontierError::BadRange { from, to });
        assert_eq!(frontier.declare_lost(from, to), fault);
    }
    assert!(frontier.observe(0).is_err());
    assert_eq!(frontier, Frontier::new());
}

#[test]
fn islands_have_a_bound_that_never_stops_what_is_in_order() {
    let mut frontier = Frontier::new();
    for island in 1..=MAX_ISLANDS as u64 {
        assert_eq!(frontier.observe(10 * island), Ok(Seen::New));
    }
    let full = frontier.clone();
    assert_eq!(frontier.observe(1_000_000), Err(FrontierError::TooManyIslands));
    assert_eq!(frontier.declare_lost(1_000_000, 1_000_005), Err(FrontierError::TooManyIslands));
    assert_eq!(frontier, full);
    // Lengthening an island, repeating, going on in order and filling holes all go through.
    assert_eq!(frontier.observe(11), Ok(Seen::New));
    assert_eq!(frontier.observe(10), Ok(Seen::Duplicate));
    for seq in 1..=9 {
        assert_eq!(frontier.observe(seq), Ok(Seen::New));
    }
    assert_eq!(frontier.acked(), 11);
    assert_eq!(frontier.observe(1_000_000), Ok(Seen::New));
    assert_eq!(frontier.observe(2_000_000), Err(FrontierError::TooManyIslands));
    // Declaring everything lost joins all islands, though it makes thousands of lost ranges.
    assert!(frontier.declare_lost(1, 1_000_000).unwrap() > 0);
    assert_eq!(frontier.acked(), 1_000_000);
    assert_eq!(frontier.observe(2_000_000), Ok(Seen::New));
}

#[test]
fn ranges_have_a_bound_below_the_acked_sequence_too() {
    // A node declares everything lost and then sends every other record after all.
    let mut frontier = Frontier::new();
    frontier.declare_lost(1, u64::from(u32::MAX)).unwrap();
    let refused = (2..).step_by(2).find(|&seq| frontier.observe(seq).is_err()).unwrap();
    assert_eq!(frontier.observe(refused), Err(FrontierError::TooManyRanges));
    let held = frontier.received().len() + frontier.lost().len();
    assert!((MAX_RANGES..MAX_RANGES + 2).contains(&held), "{held}");
    assert_eq!(frontier.observe(refused - 2), Ok(Seen::Duplicate));
    assert_eq!(frontier.acked(), u64::from(u32::MAX));
}
