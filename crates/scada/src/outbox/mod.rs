//! A node's outbox: writing to it, publishing from it, keeping it small, and how it stands.
//!
//! Promises: an event is in the outbox if and only if what it tells of is stored; rows of an aggregate leave in order with any number of
//! dispatchers; a row is `SENT` only after the bus has confirmed it; only `SENT` rows are ever pruned.

mod dispatch;
mod prune;
mod redrive;
mod stats;
mod table;
mod write;

pub use dispatch::{Dispatcher, Settings};
pub use prune::{Pruned, Pruner, prune};
pub use redrive::{MAX_REDRIVEN, redrive};
pub use stats::{
    IN_PROGRESS, Level, Metrics, STUCK_AFTER, THRESHOLDS, Threshold, Warning, glance, metrics,
    warnings,
};
pub(crate) use table::federation_queue;
pub use write::{Headers, Outbox, SCHEMA_VERSION};
