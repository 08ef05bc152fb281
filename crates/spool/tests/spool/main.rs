//! The spool's promises, by enumeration: every byte cut, every byte flipped, every disk operation failed or killed.
//!
//! One binary, because the modules share the disk double and the bookkeeping of what was promised.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its sizes are small"
)]

mod bit_flips;
mod crashes;
mod double;
mod full_disk;
mod golden;
mod group_commit;
mod invariants;
mod ledger;
mod model;
mod opening;
mod page_cache;
mod retention;
mod truncation;
