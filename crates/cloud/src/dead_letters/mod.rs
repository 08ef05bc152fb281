//! Dead letters of the consumers, and the record of what operators did.
//!
//! Purpose: [`Store`] is where the inline bus keeps a message that a group gave up; the functions here let an operator list,
//! group and replay them; [`replay`] works off what was asked for; [`broker`] is for those that a broker keeps; [`audit`] records who asked. The tables are
//! `bus_dead_letter` and `operator_audit`; docs/spec/bus.md has their life.
//!
//! Promises: one row per group and message, however often it is given up; the body is kept byte for byte; a replay that
//! fails again leaves the row, a replay that works removes it. Bodies never appear in errors, logs or the audit.
//!
//! It must not know what a message means, beyond the `tenant_id` of its envelope. It fails with [`pg::Error`].

pub mod audit;
pub mod broker;
pub mod replay;
mod rows;
mod store;

pub use rows::{Kept, Wanted, count, count_to, groups, list, replays_left, request_replay};
pub use store::{Store, tenant_of};
