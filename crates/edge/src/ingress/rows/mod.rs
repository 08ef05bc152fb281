//! The SQL of the ingress transaction: one function a table, whole sets of rows at a time.
//!
//! Promises: rows of a table are touched in the order of their keys, so that two replicas wait for
//! each other and do not deadlock; values travel as parameters only. Statements stay prepared for
//! the connection's life. It must not decide anything: that is the plan's.

mod ledger;
mod liveness;
mod quarantine;
mod store;

pub(crate) use ledger::{lock_frontiers, write_frontiers};
pub(super) use ledger::{write_blocks, write_kept, write_tombstones};
pub(super) use liveness::{write_devices, write_nodes, write_statuses};
pub(super) use quarantine::{find_quarantined, write_quarantine};
pub(super) use store::{copy_outbox, copy_telemetry, find_stored, insert_dedupe, is_taken};

/// A number for a `bigint` column. Sequences and counts are below its limit by their own rules.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
