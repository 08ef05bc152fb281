//! The partitions a consumer has: what waits, what is in hand, and how far each may be committed. Pure.
//!
//! A partition's frontier is its lowest message that is not settled; that is what is committed. While a message of it is to
//! come again, the partition gives out nothing new, so that order holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::record::Received;

/// A topic and a partition.
pub type PartitionId = (Arc<str>, i32);

/// Names a message that was given out: of which assignment of which partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) id: PartitionId,
    epoch: u64,
    pub(crate) offset: i64,
}

/// Everything of one consumer.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    all: BTreeMap<PartitionId, Partition>,
    /// Counts assignments. A message or ticket of an earlier one is void.
    epoch: u64,
    /// Where the last batch ended, so that the next one begins after it.
    cursor: Option<PartitionId>,
}

#[derive(Debug, Default)]
struct Partition {
    epoch: u64,
    /// Received, and never given out.
    fresh: VecDeque<Received>,
    /// To come again, by offset, and not before this time.
    again: BTreeMap<i64, (Instant, Received)>,
    /// To come again, or given out for that: until they are settled nothing fresh is given out.
    holding: BTreeSet<i64>,
    /// Received and not settled, wherever they are.
    unsettled: BTreeSet<i64>,
    /// The offset after the last one received.
    end: Option<i64>,
    committed: Option<i64>,
    in_hand: usize,
    /// The partition is being taken from us: nothing is given out any more.
    leaving: bool,
    pub(crate) paused: bool,
}

impl Partition {
    fn frontier(&self) -> Option<i64> {
        self.unsettled.first().copied().or(self.end)
    }
}

impl Partitions {
    /// Takes up partitions, from where the caller starts them.
    pub(crate) fn assign(&mut self, ids: impl IntoIterator<Item = PartitionId>) {
        self.epoch += 1;
        for id in ids {
            self.all.insert(id, Partition { epoch: self.epoch, ..Partition::default() });
        }
    }

    /// The number of the last assignment.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// From now on these give out nothing. Their messages in hand are counted by [`Partitions::in_hand`].
    pub(crate) fn leave(&mut self, ids: &[PartitionId]) {
        for id in ids {
            if let Some(partition) = self.all.get_mut(id) {
                partition.leaving = true;
            }
        }
    }

    pub(crate) fn in_hand(&self, ids: &[PartitionId]) -> usize {
        ids.iter().filter_map(|id| self.all.get(id)).map(|partition| partition.in_hand).sum()
    }

    /// Lets go of partitions: their tickets are void.
    pub(crate) fn revoke(&mut self, ids: &[PartitionId]) {
        for id in ids {
            self.all.remove(id);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// A message arrived, read while `seen` was the number of the last assignment; `None` when no binding wants it.
    pub(crate) fn receive(
        &mut self,
        id: &PartitionId,
        offset: i64,
        seen: u64,
        message: Option<Received>,
    ) {
        let Some(partition) = self.all.get_mut(id) else { return };
        // It came by an earlier assignment, or for the second time after a pause.
        if partition.epoch > seen || partition.end.is_some_and(|end| offset < end) {
            return;
        }
        partition.end = Some(offset + 1);
        if let Some(message) = message {
            partition.unsettled.insert(offset);
            partition.fresh.push_back(message);
        }
    }

    /// How many messages wait: those that can be given out, and those behind one that is to come again.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.all.values().fold((0, 0), |(free, parked), partition| {
            match partition.holding.is_empty() {
                true => (free + partition.fresh.len(), parked),
                false => (free, parked + partition.fresh.len() + partition.again.len()),
            }
        })
    }

    /// Gives out up to `limit` messages, those of a partition in their order.
    pub(crate) fn take(&mut self, limit: usize, now: Instant) -> Vec<(Ticket, Received)> {
        let mut taken = Vec::new();
        let after = self.cursor.take();
        let split = |id: &PartitionId| after.as_ref().is_some_and(|after| id <= after);
        let (early, late): (Vec<_>, Vec<_>) = self.all.iter_mut().partition(|(id, _)| split(id));
        for (id, partition) in late.into_iter().chain(early) {
            if taken.len() >= limit {
                break;
            }
            if partition.leaving {
                continue;
            }
            let before = taken.len();
            while taken.len() < limit {
                let Some((offset, message)) = partition.next(now) else { break };
                let ticket = Ticket { id: id.clone(), epoch: partition.epoch, offset };
                taken.push((ticket, message));
            }
            partition.in_hand += taken.len() - before;
            self.cursor = Some(id.clone());
        }
        taken
    }

    /// When the next message that is to come again is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let first = |partition: &Partition| {
            partition
                .again
                .first_key_value()
                .filter(|_| !partition.leaving)
                .map(|(_, (due, _))| *due)
        };
        self.all.values().filter_map(first).min()
    }

    fn current(&mut self, ticket: &Ticket) -> Option<&mut Partition> {
        self.all.get_mut(&ticket.id).filter(|partition| partition.epoch == ticket.epoch)
    }

    pub(crate) fn is_current(&mut self, ticket: &Ticket) -> bool {
        self.current(ticket).is_some()
    }

    /// The message is done with.
    pub(crate) fn settle(&mut self, ticket: &Ticket) {
        if let Some(partition) = self.current(ticket) {
            partition.in_hand = partition.in_hand.saturating_sub(1);
            partition.unsettled.remove(&ticket.offset);
            partition.holding.remove(&ticket.offset);
        }
    }

    /// The message comes again.
    pub(crate) fn again(&mut self, ticket: &Ticket, message: Received, due: Instant) {
        if let Some(partition) = self.current(ticket) {
            partition.in_hand = partition.in_hand.saturating_sub(1);
            partition.holding.insert(ticket.offset);
            partition.again.insert(ticket.offset, (due, message));
        }
    }

    /// What is to be committed: frontiers that have moved.
    pub(crate) fn to_commit(&self, only: Option<&[PartitionId]>) -> Vec<(PartitionId, i64)> {
        let moved = |(id, partition): (&PartitionId, &Partition)| {
            let frontier = partition.frontier()?;
            let behind = partition.committed.is_none_or(|committed| committed < frontier);
            (behind && only.is_none_or(|only| only.contains(id))).then(|| (id.clone(), frontier))
        };
        self.all.iter().filter_map(moved).collect()
    }

    pub(crate) fn committed(&mut self, offsets: &[(PartitionId, i64)]) {
        for (id, offset) in offsets {
            if let Some(partition) = self.all.get_mut(id) {
                partition.committed = Some(*offset);
            }
        }
    }

    /// A commit that was not waited for has failed: it is done again.
    pub(crate) fn uncommitted(&mut self, id: &PartitionId) {
        if let Some(partition) = self.all.get_mut(id) {
            partition.committed = None;
        }
    }

    /// Partitions to pause and to resume: those that hold for a message are paused, and all of them in a `stall`.
    pub(crate) fn pauses(&mut self, stall: bool) -> (Vec<PartitionId>, Vec<PartitionId>) {
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        for (id, partition) in &mut self.all {
            let wanted = stall || !partition.holding.is_empty();
            if wanted != partition.paused {
                partition.paused = wanted;
                if wanted { &mut pause } else { &mut resume }.push(id.clone());
            }
        }
        (pause, resume)
    }
}

impl Partition {
    fn next(&mut self, now: Instant) -> Option<(i64, Received)> {
        if self.holding.is_empty() {
            let message = self.fresh.pop_front()?;
            let offset = message.delivery.position.as_ref().map(|position| position.offset)?;
            return Some((offset, message));
        }
        // In order of offset: one that is due does not overtake an earlier one that is not.
        let first = self.again.first_entry().filter(|first| first.get().0 <= now)?;
        let (offset, (_, message)) = first.remove_entry();
        Some((offset, message))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kafka::record::Own;
    use crate::{Delivery, Message, Position};

    fn id(partition: i32) -> PartitionId {
        ("t".into(), partition)
    }

    fn message(partition: i32, offset: i64) -> Received {
        let position = Some(Position { topic: "t".into(), partition, offset });
        let message = Message::json("t", "k", offset.to_string(), "");
        let delivery = Delivery { message, attempts: 0, redelivered: false, position };
        Received { delivery, own: Own::default() }
    }

    fn with(partition: i32, offsets: std::ops::Range<i64>) -> Partitions {
        let mut all = Partitions::default();
        all.assign([id(partition)]);
        for offset in offsets {
            all.receive(&id(partition), offset, all.epoch(), Some(message(partition, offset)));
        }
        all
    }

    fn offsets(taken: &[(Ticket, Received)]) -> Vec<i64> {
        taken.iter().map(|(ticket, _)| ticket.offset).collect()
    }

    #[test]
    fn the_frontier_is_the_lowest_that_is_not_settled() {
        let mut all = with(0, 5..9);
        let now = Instant::now();
        let taken = all.take(10, now);
        assert_eq!(offsets(&taken), [5, 6, 7, 8]);
        all.settle(&taken[1].0);
        assert_eq!(all.to_commit(None), [(id(0), 5)]);
        all.settle(&taken[0].0);
        assert_eq!(all.to_commit(None), [(id(0), 7)]);
        all.committed(&[(id(0), 7)]);
        assert_eq!(all.to_commit(None), []);
        all.settle(&taken[3].0);
        all.settle(&taken[2].0);
        assert_eq!(all.to_commit(None), [(id(0), 9)]);
        all.uncommitted(&id(0));
        assert_eq!(all.to_commit(None), [(id(0), 9)]);
    }

    #[test]
    fn what_nobody_wants_moves_the_frontier() {
        let mut all = with(0, 0..0);
        assert_eq!(all.to_commit(None), [], "nothing is known yet");
        let epoch = all.epoch();
        all.receive(&id(0), 3, epoch, None);
        assert_eq!(all.to_commit(None), [(id(0), 4)]);
        // A second time, after a pause, it is nothing new.
        all.receive(&id(0), 3, epoch, Some(message(0, 3)));
        assert!(all.take(9, Instant::now()).is_empty());
    }

    #[test]
    fn nothing_new_overtakes_one_that_is_to_come_again() {
        let mut all = with(0, 0..4);
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        let taken = all.take(2, now);
        all.again(&taken[0].0, taken[0].1.clone(), later);
        all.settle(&taken[1].0);
        assert_eq!(all.waiting(), (0, 3));
        assert_eq!(all.pauses(false), (vec![id(0)], vec![]));
        assert!(all.take(9, now).is_empty());
        assert_eq!(all.next_due(), Some(later));
        let again = all.take(9, later);
        assert_eq!(offsets(&again), [0], "and while it is in hand, neither");
        assert!(all.take(9, later).is_empty());
        assert_eq!(all.to_commit(None), [(id(0), 0)]);
        all.settle(&again[0].0);
        assert_eq!(all.pauses(false), (vec![], vec![id(0)]));
        assert_eq!(offsets(&all.take(9, later)), [2, 3]);
        assert_eq!(all.to_commit(None), [(id(0), 2)]);
    }

    #[test]
    fn those_to_come_again_keep_their_order() {
        let mut all = with(0, 0..2);
        let now = Instant::now();
        let taken = all.take(2, now);
        all.again(&taken[0].0, taken[0].1.clone(), now + Duration::from_secs(9));
        all.again(&taken[1].0, taken[1].1.clone(), now);
        assert!(all.take(9, now).is_empty(), "the second is due, and waits");
        assert_eq!(offsets(&all.take(9, now + Duration::from_secs(9))), [0, 1]);
    }

    #[test]
    fn tickets_of_an_earlier_assignment_are_void() {
        let mut all = with(0, 0..3);
        let before = all.epoch();
        let taken = all.take(9, Instant::now());
        all.leave(&[id(0)]);
        assert_eq!(all.in_hand(&[id(0)]), 3);
        all.revoke(&[id(0)]);
        all.assign([id(0)]);
        all.receive(&id(0), 1, before, Some(message(0, 1)));
        assert_eq!(all.waiting(), (0, 0), "it was read before the assignment");
        assert!(!all.is_current(&taken[0].0));
        all.settle(&taken[0].0);
        all.again(&taken[1].0, taken[1].1.clone(), Instant::now());
        assert_eq!((all.waiting(), all.to_commit(None)), ((0, 0), vec![]));
    }

    #[test]
    fn every_partition_gets_its_turn() {
        let mut all = Partitions::default();
        all.assign((0..3).map(id));
        for partition in 0..3 {
            for offset in 0..4 {
                all.receive(&id(partition), offset, 1, Some(message(partition, offset)));
            }
        }
        let now = Instant::now();
        let turns: Vec<i32> = (0..3).map(|_| all.take(3, now)[0].0.id.1).collect();
        assert_eq!(turns, [0, 1, 2]);
        assert_eq!(all.pauses(true).0.len(), 3);
        assert_eq!(all.pauses(false).1.len(), 3);
    }
}
