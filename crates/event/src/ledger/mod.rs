//! The ledger's arithmetic: produced = stored + declared lost.
//!
//! A tier keeps one [`Frontier`] per stream and epoch: the sequences it received, those that were
//! declared lost, and hence those that are missing. [`Digest`] says with a count and a hash whether two
//! tiers hold the same events in a range. A [`Tombstone`] names what was given up, and why. Pure: the
//! tables that hold these belong to the tiers.
//!
//! [`compare()`] holds the tiers against each other, in the words that they share ([`StreamState`] and its kin).

mod compare;
mod digest;
mod frontier;
mod range_set;
mod tier;
mod tombstone;

pub use compare::{
    Finding, FindingKind, HeldBy, Tiers, compare, compare_marks, differing_blocks, plan_repair,
    tampered, unsettled,
};
pub use digest::{BLOCK_LEN, Digest, block_of, block_range};
pub use frontier::{Frontier, FrontierError, MAX_ISLANDS, MAX_RANGES, Seen};
pub use range_set::{FlatError, RangeSet};
pub use tier::{
    BlockState, HOUR_MS, HourState, LedgerSummary, MarkState, NO_HOUR, NodeView, Place, PlaceKind,
    Ranges, Repair, Repaired, StreamState, StreamSummary,
};
pub use tombstone::{GapReason, Tombstone};

/// The highest sequence a node may use: what a `bigint` column holds.
pub const MAX_SEQ: u64 = i64::MAX.cast_unsigned();

#[cfg(test)]
mod compare_tests;
#[cfg(test)]
mod tests;
