//! What the sequences and ids of some messages mean for the tables. Pure: state in, rows out.
//!
//! Two steps, because the database is asked in between. [`account()`] holds the messages against the
//! frontiers: which sequences are new, seen or recovered, and which messages the ledger cannot
//! take. [`decide()`] then holds each record against what the database knows of its event id, after
//! the table in docs/spec/node-edge.md, and lists every row to write.
//!
//! Promise: whatever is sent twice, in another order or split otherwise leads to the same stored
//! events, the same frontier, and (without cloned cards) the same block hashes. It must not know
//! SQL or the network; time comes with the messages.

mod account;
mod decide;
#[cfg(test)]
mod tests;

pub(crate) use account::{Accounted, Judged, Standing, account};
pub(crate) use decide::{
    DeviceChange, EventRow, Kept, Known, NodeChange, Quarantined, StatusChange, decide,
};

use std::collections::BTreeMap;

use event::id::{Epoch, NodeId};
use event::ledger::{Frontier, RangeSet};

use super::Reason;

/// A stream in one life of its spool.
pub(crate) type Stream = (NodeId, Epoch);

/// A frontier with the counts beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) frontier: Frontier,
    pub(crate) stored: u64,
    pub(crate) quarantined: u64,
    /// Sequences whose readings stay at the site, of which the cloud is still to be told.
    pub(crate) kept: RangeSet,
    /// Whether it differs from what the database has.
    pub(crate) changed: bool,
}

/// What happened to records, counted. Every record has one outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stored under a new sequence, or bare.
    pub stored: u64,
    /// Known before.
    pub duplicate: u64,
    /// Stored under a sequence that another event has: a cloned card.
    pub cloned: u64,
    /// Stored after it had been declared lost.
    pub recovered: u64,
    /// Sequences newly declared lost.
    pub lost: u64,
    /// Put in quarantine, records and messages.
    pub quarantined: BTreeMap<Reason, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.stored += other.stored;
        self.duplicate += other.duplicate;
        self.cloned += other.cloned;
        self.recovered += other.recovered;
        self.lost += other.lost;
        for (reason, count) in &other.quarantined {
            *self.quarantined.entry(*reason).or_default() += count;
        }
    }

    pub(crate) fn quarantine(&mut self, reason: Reason) {
        *self.quarantined.entry(reason).or_default() += 1;
    }
}
