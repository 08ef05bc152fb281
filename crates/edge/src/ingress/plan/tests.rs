//! The plan against a model of the database: whatever is sent twice, in another order or split
//! otherwise, the end is the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use event::id::{DeviceId, Epoch, EventId, NodeId, TenantId};
use event::ledger::Digest;
use event::wire::{Gap, GapReason, encode};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::ingress::check::{Checked, Item, check};
use crate::ingress::{Incoming, Source};
use crate::registry::{Entry, SecretHash};

/// The tables, in memory.
#[derive(Debug, Default, Clone, PartialEq)]
struct Model {
    dedupe: BTreeSet<(TenantId, EventId)>,
    stored: BTreeMap<EventId, TenantId>,
    accounts: BTreeMap<Stream, Account>,
    blocks: BTreeMap<(Stream, u64), (u64, u128)>,
    quarantine: BTreeSet<[u8; 32]>,
    tombstones: BTreeSet<(Epoch, u64, u64)>,
    stored_count: i64,
}

impl Model {
    /// One transaction, as the writer does it.
    fn commit(&mut self, messages: &[Checked]) -> Tally {
        let mut accounts = self.accounts.clone();
        let accounted = account(messages, &mut accounts);
        let mut fresh = HashSet::new();
        let mut stored = HashMap::new();
        for judged in &accounted.records {
            let Item::Valid(event) = judged.item else {
                continue;
            };
            let id = (event.envelope.tenant_id, event.envelope.event_id);
            if self.dedupe.insert(id) {
                fresh.insert(id);
            }
            if let Some(owner) = self.stored.get(&id.1) {
                stored.insert(id.1, *owner);
            }
        }
        let plan =
            decide(&accounted, &mut accounts, Known { fresh, stored, quarantined: HashSet::new() });
        for row in &plan.events {
            let envelope = &row.event.envelope;
            let before = self.stored.insert(envelope.event_id, envelope.tenant_id);
            assert_eq!(before, None, "an event is stored once");
        }
        for (key, digest) in &plan.blocks {
            let (count, hash) = self.blocks.remove(key).unwrap_or_default();
            let mut sum = Digest { count, hash };
            sum.combine(*digest);
            self.blocks.insert(key.clone(), (sum.count, sum.hash));
        }
        self.quarantine.extend(plan.quarantined.keys());
        for (_, epoch, gap) in &accounted.gaps {
            self.tombstones.insert((*epoch, gap.from_seq, gap.to_seq));
        }
        self.stored_count += plan.nodes.values().map(|change| change.stored).sum::<i64>();
        for account in accounts.values_mut() {
            account.changed = false;
        }
        self.accounts = accounts;
        plan.tally
    }
}

fn entry() -> Arc<Entry> {
    Arc::new(Entry {
        node_id: "barn-1".parse().unwrap(),
        tenant_id: TenantId::mint(),
        farm_id: None,
        barn_id: None,
        device_id: DeviceId::mint(),
        secret: SecretHash::of("x"),
        disabled: false,
    })
}

/// What a node may send under a sequence: a record, a bad record, or nothing but a gap.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Slot {
    Good,
    Bad,
    Lost,
}

struct Node {
    entry: Arc<Entry>,
    epoch: Epoch,
    slots: Vec<(Slot, String)>,
}

impl Node {
    fn new(slots: &[Slot]) -> Node {
        let entry = entry();
        let event = |slot: &Slot| {
            let value = if *slot == Slot::Bad { "\"hot\"" } else { "1.5" };
            format!(
                "{{\"event_id\":\"{}\",\"event_type\":\"telemetry.ingested\",\"device_id\":\"{}\",\
                 \"occurred_at\":\"2026-02-01T10:00:00Z\",\"payload\":{{\"metric_type\":\"t\",\
                 \"metric_value\":{value},\"unit\":\"C\"}}}}",
                EventId::mint(),
                entry.device_id
            )
        };
        let slots = slots.iter().map(|slot| (*slot, event(slot))).collect();
        Node { entry, epoch: Epoch::mint(), slots }
    }

    /// The message with these sequences; a lost one travels as a gap. `late` brings the lost ones
    /// after all.
    fn message(&self, seqs: &BTreeSet<usize>, late: bool) -> Option<Checked> {
        let records: Vec<(u64, &[u8])> = seqs
            .iter()
            .filter(|seq| late || self.slots[**seq].0 != Slot::Lost)
            .map(|seq| (*seq as u64 + 1, self.slots[*seq].1.as_bytes()))
            .collect();
        let gaps: Vec<Gap> = seqs
            .iter()
            .filter(|seq| !late && self.slots[**seq].0 == Slot::Lost)
            .filter_map(|seq| {
                let seq = *seq as u64 + 1;
                Gap::new(seq, seq, None, None, GapReason::Corrupt)
            })
            .collect();
        if records.is_empty() && gaps.is_empty() {
            return None;
        }
        let body = encode(self.epoch, records, &gaps);
        let mut incoming = Incoming::new(Source::Mqtt, "iot/barn-1/live", body.into());
        incoming.received_at = Timestamp::UNIX_EPOCH;
        Some(check(&incoming, Some(&self.entry)))
    }
}

fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let slot = prop_oneof![
        6 => Just(Slot::Good), 1 => Just(Slot::Bad), 1 => Just(Slot::Lost)
    ];
    prop::collection::vec(slot, 1..60)
}

/// Transactions of messages of sequences: any subsets, in any order, as often as you like.
fn sends() -> impl Strategy<Value = Vec<Vec<BTreeSet<usize>>>> {
    let message = prop::collection::btree_set(0usize..60, 1..20);
    prop::collection::vec(prop::collection::vec(message, 1..4), 0..12)
}

fn within(seqs: &BTreeSet<usize>, len: usize) -> BTreeSet<usize> {
    seqs.iter().copied().filter(|seq| *seq < len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn duplication_reordering_and_splitting_change_nothing(slots in slots(), sends in sends()) {
        let node = Node::new(&slots);
        let all: BTreeSet<usize> = (0..slots.len()).collect();
        let mut straight = Model::default();
        straight.commit(&[node.message(&all, false).unwrap()]);

        let mut crooked = Model::default();
        for transaction in &sends {
            let messages: Vec<Checked> = transaction
                .iter()
                .filter_map(|seqs| node.message(&within(seqs, slots.len()), false))
                .collect();
            crooked.commit(&messages);
        }
        crooked.commit(&[node.message(&all, false).unwrap()]);
        prop_assert_eq!(&crooked, &straight);

        let good = slots.iter().filter(|slot| **slot == Slot::Good).count();
        prop_assert_eq!(crooked.stored.len(), good);
        prop_assert_eq!(crooked.stored_count, good as i64);
        let account = crooked.accounts.values().next().unwrap();
        prop_assert_eq!(account.frontier.acked(), slots.len() as u64);
        let accounted = account.stored + account.quarantined + account.frontier.lost().count();
        prop_assert_eq!(accounted, slots.len() as u64);

        // Again after the cache has forgotten everything: still nothing.
        let before = crooked.clone();
        crooked.dedupe.clear();
        let tally = crooked.commit(&[node.message(&all, false).unwrap()]);
        crooked.dedupe = before.dedupe.clone();
        prop_assert_eq!((tally.stored, tally.cloned, tally.recovered), (0, 0, 0));
        prop_assert_eq!(&crooked, &before);
    }

    #[test]
    fn what_was_lost_and_arrives_is_recovered_once(slots in slots(), sends in sends()) {
        let node = Node::new(&slots);
        let all: BTreeSet<usize> = (0..slots.len()).collect();
        let mut model = Model::default();
        let mut recovered = 0;
        for (index, transaction) in sends.iter().enumerate() {
            let messages: Vec<Checked> = transaction
                .iter()
                .filter_map(|seqs| node.message(&within(seqs, slots.len()), index % 2 == 1))
                .collect();
            recovered += model.commit(&messages).recovered;
        }
        model.commit(&[node.message(&all, false).unwrap()]);
        recovered += model.commit(&[node.message(&all, true).unwrap()]).recovered;
        let lost = slots.iter().filter(|slot| **slot == Slot::Lost).count();
        prop_assert!(recovered <= lost as u64);
        let bad = slots.iter().filter(|slot| **slot == Slot::Bad).count();
        prop_assert_eq!(model.stored.len(), slots.len() - bad);
        let account = model.accounts.values().next().unwrap();
        prop_assert_eq!(account.frontier.lost().count(), 0);
        prop_assert_eq!(account.frontier.received().count(), slots.len() as u64);
        let counted: u64 = model.blocks.values().map(|(count, _)| count).sum();
        prop_assert_eq!(counted, slots.len() as u64, "bad records have ids too");
    }

    #[test]
    fn no_body_makes_the_reader_panic(
        topic in "(iot/)?[a-z+#/]{0,12}(/live|/backfill|/event|/status|/ack)?",
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let entry = entry();
        let incoming = Incoming::new(Source::Mqtt, topic, body.into());
        check(&incoming, Some(&entry));
        check(&incoming, None);
    }
}

#[test]
fn a_node_that_was_heard_once_is_heard_at_the_latest_time() {
    let node = Node::new(&[Slot::Good, Slot::Good]);
    let mut early = node.message(&BTreeSet::from([0]), false).unwrap();
    let mut late = node.message(&BTreeSet::from([1]), false).unwrap();
    early.received_at = Timestamp::from_second(100).unwrap();
    late.received_at = Timestamp::from_second(200).unwrap();
    let id: NodeId = "barn-1".parse().unwrap();
    for messages in [[early.clone(), late.clone()], [late, early]] {
        let accounted = account(&messages, &mut BTreeMap::new());
        let plan = decide(&accounted, &mut BTreeMap::new(), Known::default());
        assert_eq!(plan.nodes[&id].last_rx_at, Timestamp::from_second(200).ok());
        assert_eq!(plan.devices.len(), 1);
    }
}
