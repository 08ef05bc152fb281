//! What the sequences and ids of a batch mean for the tables. Pure: state in, rows out.
//!
//! The transaction locks the streams and reads their state; [`plan()`] then gives every event its
//! verdict after the table in docs/spec/cloud-tables.md, and changes the state to what must be
//! written.
//!
//! Promise: whatever is sent twice, in another order or split otherwise leads to the same accepted
//! events and the same frontier. It must not know SQL, HTTP or the clock.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use event::id::{Epoch, EventId, NodeId, TenantId};
use event::ledger::{Digest, Frontier, Seen, block_of};

use super::page::{Page, digest_of, mark, page_of};
use super::request::{Code, Event, Item, Reason, Refusal, Tombstone};

/// A stream of a tenant in one life of its spool.
pub(crate) type Stream = (TenantId, NodeId, Epoch);

/// A frontier with the counts beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The number of its row.
    pub(crate) id: i64,
    pub(crate) frontier: Frontier,
    pub(crate) accepted: u64,
    pub(crate) cloned: u64,
    /// Whether sequences were received that the frontier had no room for.
    pub(crate) behind: bool,
    /// Whether it differs from what the database has.
    pub(crate) changed: bool,
}

/// What the database knows, and what is to become of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) accounts: BTreeMap<Stream, Account>,
    /// By the number of the frontier's row, and of the page.
    pub(crate) pages: BTreeMap<(i64, u64), Page>,
    pub(crate) blocks: BTreeMap<(Stream, u64), Digest>,
    /// Blocks that differ from what the database has.
    pub(crate) changed_blocks: BTreeSet<(Stream, u64)>,
    /// Ids that the dedupe cache did not have.
    pub(crate) fresh: HashSet<(TenantId, EventId)>,
    /// Of the suspicious events, those that are known as clones.
    pub(crate) clones: HashSet<(i64, u64, EventId)>,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the relay outbox now.
    Accepted,
    /// It was accepted before.
    Duplicate,
    /// It is not taken, and why.
    Rejected(Refusal),
}

/// What happened, counted. Every event is in one of the first three.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accepted.
    pub accepted: u64,
    /// Known before.
    pub duplicate: u64,
    /// Rejected, by code; tombstones too.
    pub rejected: BTreeMap<Code, u64>,
    /// Of the accepted: after they had been declared lost.
    pub recovered: u64,
    /// Of the accepted: under a sequence that another event has.
    pub cloned: u64,
    /// Of the duplicates: those that the cache had forgotten and the ledger had not.
    pub replayed: u64,
    /// Tombstones taken.
    pub tombstones: u64,
    /// Sequences newly declared lost.
    pub lost: u64,
    /// Sequences newly accounted for by what the edge keeps.
    pub accounted: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.accepted += other.accepted;
        self.duplicate += other.duplicate;
        self.recovered += other.recovered;
        self.cloned += other.cloned;
        self.replayed += other.replayed;
        self.tombstones += other.tombstones;
        self.lost += other.lost;
        self.accounted += other.accounted;
        for (code, count) in &other.rejected {
            *self.rejected.entry(*code).or_default() += count;
        }
    }
}

/// One event with what can be worked out before the database is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub(crate) item: &'a Item,
    /// Of its sequence and id, if it has a sequence.
    digest: Option<Digest>,
}

/// Works out the hashes, which take the longest, outside the transaction.
pub(crate) fn prepare(items: &[Item]) -> Vec<Prepared<'_>> {
    let prepared = items.iter().map(|item| {
        let digest = match item {
            Item::Valid(event) => {
                event.place.as_ref().map(|place| digest_of(place.seq, event.envelope.event_id))
            }
            Item::Bad(_) => None,
        };
        Prepared { item, digest }
    });
    prepared.collect()
}

/// The stream of an event that has coordinates.
pub(crate) fn stream_of(event: &Event) -> Option<(Stream, u64)> {
    let place = event.place.as_ref()?;
    Some(((event.envelope.tenant_id, place.stream.clone(), place.epoch), place.seq))
}

/// Events whose sequence another event has, and that the cache does not know: clones, if not seen
/// before.
pub(crate) fn suspicious(prepared: &[Prepared<'_>], state: &State) -> Vec<(i64, u64, EventId)> {
    let suspects = prepared.iter().filter_map(|prepared| {
        let Item::Valid(event) = prepared.item else { return None };
        let (stream, seq) = stream_of(event)?;
        let id = state.accounts.get(&stream)?.id;
        let slot = state.pages.get(&(id, page_of(seq)))?.get(seq);
        let other = slot != 0 && slot != mark(prepared.digest?);
        (other && state.fresh.contains(&event.key())).then_some((id, seq, event.envelope.event_id))
    });
    suspects.collect()
}

/// Everything to write beside the changed state.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) outcomes: Vec<Outcome>,
    /// What became of each tombstone.
    pub(crate) tombstones: Vec<Result<(), Refusal>>,
    /// The accepted events, in order.
    pub(crate) relay: Vec<&'a Event>,
    /// Events that were accepted before: an operator may have asked to publish them again.
    pub(crate) known: Vec<&'a Event>,
    pub(crate) clones: Vec<(i64, u64, EventId)>,
    pub(crate) tally: Tally,
}

/// Gives every event and tombstone its verdict.
pub(crate) fn plan<'a>(
    prepared: &[Prepared<'a>],
    tombstones: &[&Tombstone],
    state: &mut State,
) -> Plan<'a> {
    let mut plan = Plan::default();
    for prepared in prepared {
        let outcome = match prepared.item {
            Item::Valid(event) => plan.judge(event, prepared.digest, state),
            Item::Bad(bad) => {
                *plan.tally.rejected.entry(bad.refusal.code).or_default() += 1;
                Outcome::Rejected(bad.refusal.clone())
            }
        };
        match &outcome {
            Outcome::Accepted => plan.tally.accepted += 1,
            Outcome::Duplicate => {
                plan.tally.duplicate += 1;
                if let Item::Valid(event) = prepared.item {
                    plan.known.push(event);
                }
            }
            Outcome::Rejected(_) => {}
        }
        plan.outcomes.push(outcome);
    }
    for tombstone in tombstones {
        let verdict = plan.bury(tombstone, state);
        plan.tombstones.push(verdict);
    }
    plan
}

impl<'a> Plan<'a> {
    fn judge(&mut self, event: &'a Event, digest: Option<Digest>, state: &mut State) -> Outcome {
        let event_id = event.envelope.event_id;
        // The first event that brings an id uses it up: the next is a duplicate, in this batch too.
        let fresh = state.fresh.remove(&event.key());
        let found = stream_of(event).zip(digest);
        let Some(((stream, seq), digest)) = found else {
            return if fresh { self.accept(event) } else { Outcome::Duplicate };
        };
        let account = state.accounts.entry(stream.clone()).or_default();
        let page = state.pages.entry((account.id, page_of(seq))).or_default();
        let slot = page.get(seq);
        if slot == 0 {
            page.set(seq, mark(digest));
            let block = (stream, block_of(seq));
            state.blocks.entry(block.clone()).or_default().combine(digest);
            state.changed_blocks.insert(block);
            account.changed = true;
            let recovered = match account.frontier.observe(seq) {
                Ok(seen) => seen == Seen::Recovered,
                // The page has it; the frontier takes it from there when there is room.
                Err(_) => {
                    account.behind = true;
                    false
                }
            };
            if !fresh {
                return Outcome::Duplicate;
            }
            account.accepted += 1;
            self.tally.recovered += u64::from(recovered);
            return self.accept(event);
        }
        if !fresh {
            return Outcome::Duplicate;
        }
        let clone = (account.id, seq, event_id);
        if slot == mark(digest) || state.clones.contains(&clone) {
            self.tally.replayed += 1;
            return Outcome::Duplicate;
        }
        account.accepted += 1;
        account.cloned += 1;
        account.changed = true;
        self.tally.cloned += 1;
        state.clones.insert(clone);
        self.clones.push(clone);
        self.accept(event)
    }

    fn accept(&mut self, event: &'a Event) -> Outcome {
        self.relay.push(event);
        Outcome::Accepted
    }

    fn bury(&mut self, tombstone: &Tombstone, state: &mut State) -> Result<(), Refusal> {
        let stream = (tombstone.tenant_id, tombstone.stream.clone(), tombstone.epoch);
        let account = state.accounts.entry(stream).or_default();
        let (from, to) = (tombstone.range.from_seq, tombstone.range.to_seq);
        let counted = match tombstone.reason {
            Reason::Lost(_) => account.frontier.declare_lost(from, to),
            // The edge has it, or its event: nothing is lost, and the page's slot stays free for an
            // event that comes under this sequence after all.
            Reason::Quarantined | Reason::Duplicate | Reason::KeptAtSite => {
                account.frontier.observe_range(from, to)
            }
        };
        match counted {
            Ok(new) => {
                account.changed |= new > 0;
                match tombstone.reason {
                    Reason::Lost(_) => self.tally.lost += new,
                    Reason::Quarantined | Reason::Duplicate | Reason::KeptAtSite => {
                        self.tally.accounted += new;
                    }
                }
                self.tally.tombstones += 1;
                Ok(())
            }
            Err(error) => {
                *self.tally.rejected.entry(Code::LedgerFull).or_default() += 1;
                Err(Refusal::new(Code::LedgerFull, Some("from_seq"), error.to_string()))
            }
        }
    }
}

/// Gives a frontier that is behind what its pages have, lowest first. `last` says that there are no
/// further pages. Returns whether more pages could be taken now.
pub(crate) fn absorb(
    account: &mut Account,
    pages: impl IntoIterator<Item = (u64, Page)>,
    last: bool,
) -> bool {
    for (number, page) in pages {
        for seq in page.received(number) {
            match account.frontier.observe(seq) {
                Ok(Seen::Duplicate) => {}
                Ok(_) => account.changed = true,
                Err(_) => return false,
            }
        }
    }
    if last {
        account.behind = false;
        account.changed = true;
    }
    !last
}
