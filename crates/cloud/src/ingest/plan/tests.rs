//! The plan, driven through repetition, reordering, splitting, forgetting and cloned cards.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use event::id::{Epoch, EventId, TenantId};
use event::ledger::MAX_ISLANDS;
use event::wire::GapReason;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ingest::request::{Origin, Place, Range, parse};
use crate::tokens::Tenants;

/// The tables, as far as the plan sees them.
#[derive(Default)]
struct Tables {
    accounts: BTreeMap<Stream, Account>,
    pages: BTreeMap<(i64, u64), Page>,
    blocks: BTreeMap<(Stream, u64), Digest>,
    clones: HashSet<(i64, u64, EventId)>,
    dedupe: HashSet<(TenantId, EventId)>,
    accepted: Vec<EventId>,
}

impl Tables {
    /// One transaction.
    fn write(&mut self, items: &[Item], tombstones: &[&Tombstone]) -> Vec<Outcome> {
        let prepared = prepare(items);
        let mut state = State {
            accounts: self.accounts.clone(),
            pages: self.pages.clone(),
            blocks: self.blocks.clone(),
            ..State::default()
        };
        for item in items {
            let Item::Valid(event) = item else { continue };
            if let Some((stream, _)) = stream_of(event) {
                let id = i64::try_from(state.accounts.len()).unwrap() + 1;
                state.accounts.entry(stream).or_insert(Account { id, ..Account::default() });
            }
            if self.dedupe.insert(event.key()) {
                state.fresh.insert(event.key());
            }
        }
        let suspects = suspicious(&prepared, &state);
        state.clones = suspects.into_iter().filter(|s| self.clones.contains(s)).collect();
        let plan = plan(&prepared, tombstones, &mut state);
        self.accepted.extend(plan.relay.iter().map(|event| event.envelope.event_id));
        self.clones.extend(plan.clones);
        (self.accounts, self.pages, self.blocks) = (state.accounts, state.pages, state.blocks);
        plan.outcomes
    }
}

fn item(tenant: TenantId, event_id: EventId, place: Option<(&str, Epoch, u64)>) -> Item {
    let event = json!({
        "event_id": event_id, "event_type": "alarm.raised", "tenant_id": tenant,
        "occurred_at": "2026-02-01T10:00:00Z", "payload": {},
    });
    let envelope = event::farm::Envelope::parse(event.to_string().as_bytes()).unwrap();
    let place =
        place.map(|(stream, epoch, seq)| Place { stream: stream.parse().unwrap(), epoch, seq });
    Item::Valid(Box::new(Event { envelope, place }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Deliveries are drawn from a pool of events; some share a sequence (clones), some have none.
    /// Each delivery may be followed by the cache forgetting everything.
    #[test]
    fn every_event_with_coordinates_is_accepted_once_whatever_is_repeated_or_forgotten(
        pool in prop::collection::vec((0..2usize, 0..40u64), 1..60),
        deliveries in prop::collection::vec(
            (prop::collection::vec(any::<prop::sample::Index>(), 1..20), any::<bool>()), 1..30),
    ) {
        let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
        let events: Vec<_> = pool
            .iter()
            .map(|(stream, seq)| {
                let id = EventId::mint();
                // Sequence 0 stands for an event without coordinates.
                let place = (*seq > 0).then_some((["a", "b"][*stream], epoch, *seq));
                (id, item(tenant, id, place), place.map(|_| (*stream, *seq)))
            })
            .collect();
        let mut tables = Tables::default();
        let mut sent: HashMap<EventId, Option<(usize, u64)>> = HashMap::new();
        for (picks, forget) in &deliveries {
            let picked: Vec<_> = picks.iter().map(|pick| pick.get(&events)).collect();
            let batch: Vec<Item> = picked.iter().map(|(_, item, _)| item.clone()).collect();
            let outcomes = tables.write(&batch, &[]);
            prop_assert_eq!(outcomes.len(), batch.len());
            sent.extend(picked.iter().map(|(id, _, place)| (*id, *place)));
            if *forget {
                tables.dedupe.clear();
            }
        }
        let mut times: HashMap<EventId, usize> = HashMap::new();
        for id in &tables.accepted {
            *times.entry(*id).or_default() += 1;
        }
        for (id, place) in &sent {
            let accepted = times.get(id).copied().unwrap_or(0);
            prop_assert!(accepted >= 1, "an event was answered and not handed over");
            prop_assert!(accepted == 1 || place.is_none(), "accepted {} times", accepted);
        }
        let places: BTreeSet<(usize, u64)> = sent.values().flatten().copied().collect();
        let received: u64 = tables.accounts.values().map(|a| a.frontier.received().count()).sum();
        prop_assert_eq!(received, places.len() as u64);
        let counted: u64 = tables.blocks.values().map(|digest| digest.count).sum();
        prop_assert_eq!(counted, places.len() as u64);
        let with_place = sent.values().flatten().count();
        let clones: u64 = tables.accounts.values().map(|account| account.cloned).sum();
        prop_assert_eq!(clones, (with_place - places.len()) as u64);
    }

    /// One batch, or the same events in any order and any split: the same end.
    #[test]
    fn order_and_split_do_not_matter(
        seqs in prop::collection::btree_set(1..300u64, 1..80),
        gap in (1..300u64, 0..40u64),
        order in any::<prop::sample::Index>(),
        size in 1..20usize,
    ) {
        let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
        let items: Vec<Item> = seqs
            .iter()
            .map(|seq| item(tenant, EventId::mint(), Some(("a", epoch, *seq))))
            .collect();
        let range = Range::new(gap.0, gap.0 + gap.1, None, None).unwrap();
        let reason = Reason::Lost(GapReason::Expired);
        let stream: NodeId = "a".parse().unwrap();
        let origin = Origin::Edge;
        let tombstone = Tombstone { tenant_id: tenant, stream, epoch, range, reason, origin };
        let mut whole = Tables::default();
        whole.write(&items, &[&tombstone]);
        let mut turned = items.clone();
        turned.rotate_left(order.index(items.len()));
        let mut split = Tables::default();
        for (index, part) in turned.chunks(size).enumerate() {
            let buried = [&tombstone];
            split.write(part, if index == 0 { &buried } else { &[] });
        }
        prop_assert_eq!(&whole.accounts, &split.accounts);
        prop_assert_eq!(&whole.pages, &split.pages);
        prop_assert_eq!(&whole.blocks, &split.blocks);
        let sorted = |tables: &Tables| {
            let mut ids = tables.accepted.clone();
            ids.sort();
            ids
        };
        prop_assert_eq!(sorted(&whole), sorted(&split));
    }

    /// Whatever the bytes, reading a body does not panic, and a batch has a verdict for every event.
    #[test]
    fn any_bytes_can_be_read(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&body, &event::wire::Limits::HTTP, &Tenants::All);
    }
}

#[test]
fn more_holes_than_a_frontier_keeps_lose_nothing_and_are_caught_up_with() {
    let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
    let holes = MAX_ISLANDS as u64 + 100;
    let even = (1..=holes).map(|n| n * 2);
    let items: Vec<Item> =
        even.map(|seq| item(tenant, EventId::mint(), Some(("a", epoch, seq)))).collect();
    let mut tables = Tables::default();
    let outcomes = tables.write(&items, &[]);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted));
    let account = tables.accounts.values().next().unwrap();
    assert!(account.behind);
    assert!(account.frontier.received().count() < holes);
    // A replay is known by the pages, though the frontier does not have it.
    tables.dedupe.clear();
    assert!(tables.write(&items, &[]).iter().all(|outcome| *outcome == Outcome::Duplicate));
    // The odd ones fill the holes; then the pages give the frontier the rest.
    let odd = (0..holes).map(|n| n * 2 + 1);
    let items: Vec<Item> =
        odd.map(|seq| item(tenant, EventId::mint(), Some(("a", epoch, seq)))).collect();
    tables.write(&items, &[]);
    let mut account = tables.accounts.values().next().unwrap().clone();
    let pages: Vec<(u64, Page)> =
        tables.pages.iter().map(|((_, number), page)| (*number, page.clone())).collect();
    absorb(&mut account, pages, true);
    assert!(!account.behind);
    assert_eq!(account.frontier.acked(), holes * 2);
    assert_eq!(account.frontier.received().len(), 1);
}

#[test]
fn a_tombstone_beyond_the_room_is_refused_alone() {
    let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
    let stream: NodeId = "a".parse().unwrap();
    let tombstones: Vec<Tombstone> = (0..MAX_ISLANDS as u64 + 2)
        .map(|n| Tombstone {
            tenant_id: tenant,
            stream: stream.clone(),
            epoch,
            range: Range::new(n * 2 + 2, n * 2 + 2, None, None).unwrap(),
            reason: Reason::Lost(GapReason::Lost),
            origin: Origin::Node,
        })
        .collect();
    let all: Vec<&Tombstone> = tombstones.iter().collect();
    let mut state = State::default();
    let plan = plan(&[], &all, &mut state);
    let refused = plan.tombstones.iter().filter(|verdict| verdict.is_err()).count();
    assert_eq!((refused, plan.tally.tombstones), (2, MAX_ISLANDS as u64));
    assert_eq!(plan.tally.rejected[&Code::LedgerFull], 2);
}

#[test]
fn what_the_edge_keeps_is_received_and_leaves_room_for_the_event() {
    let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
    let stream: NodeId = "a".parse().unwrap();
    let tombstone = |from, to, reason| Tombstone {
        tenant_id: tenant,
        stream: stream.clone(),
        epoch,
        range: Range::new(from, to, None, None).unwrap(),
        reason,
        origin: Origin::Edge,
    };
    let all = [
        tombstone(1, 10, Reason::Lost(GapReason::Lost)),
        tombstone(4, 6, Reason::Quarantined),
        tombstone(11, 12, Reason::Duplicate),
        tombstone(5, 5, Reason::Lost(GapReason::Lost)),
    ];
    let all: Vec<&Tombstone> = all.iter().collect();
    let mut state = State::default();
    for (lost, accounted) in [(10, 5), (0, 0)] {
        let plan = plan(&[], &all, &mut state);
        assert_eq!((plan.tally.lost, plan.tally.accounted), (lost, accounted));
    }
    let account = &state.accounts[&(tenant, stream.clone(), epoch)];
    assert_eq!(account.frontier.acked(), 12);
    assert_eq!(account.frontier.received().to_flat(), [4, 6, 11, 12]);
    assert_eq!(account.frontier.lost().to_flat(), [1, 3, 7, 10]);
    assert!(state.pages.is_empty(), "an event under such a sequence is still new");
}
