//! The SQL of the ingest transaction: one function a table, whole sets of rows at a time.
//!
//! Promises: rows of a table are touched in the order of their keys, so that two replicas wait for
//! each other and do not deadlock; values travel as parameters only. Statements stay prepared for
//! the connection's life. It must not decide anything: that is the plan's.

mod frontier;
mod ledger;
mod rejected;
mod store;

pub(crate) use frontier::{catch_up, lock_behind, lock_frontiers, write_frontiers};
pub(crate) use ledger::{
    find_clones, read_blocks, read_pages, write_blocks, write_clones, write_pages, write_tombstones,
};
pub(crate) use rejected::write_rejected;
pub(crate) use store::{copy_relay, insert_dedupe, notify, take_asked_again};

/// A number for a `bigint` column. Sequences and counts are below its limit by their own rules.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
