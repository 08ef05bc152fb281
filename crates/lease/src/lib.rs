//! Leased work on Postgres, written once: rows that many workers claim, deliver, retry and bury.
//!
//! Purpose: a table's owner describes its columns in a [`Table`] and does the work in a [`Handler`];
//! [`Worker`] gives the loop around it: finding work, claims, heartbeat, outcomes, backoff, attempt
//! limits, a breaker per destination, wake-up, a stop that gives back what is held, metrics and logs.
//! [`backoff`] and [`breaker`] are pure and stand alone. docs/spec/leased-work.md is the contract.
//!
//! Promises: a row is held by one worker at a time. Every write is fenced by the token of its claim:
//! a worker that was paused past its lease changes nothing, and that is counted. Rows of one lane
//! leave in order with any number of workers. A crash counts an attempt, an outage of the destination
//! does not. A claim reads what it takes, at any backlog. Leases go by the database's clock alone.
//!
//! It must not know what the work is: names come from the owner's description, payloads pass
//! through unread, and neither logs nor metrics hold them.
//!
//! How it fails: while the database is away it waits and tries again; nothing is delivered twice for
//! that alone, unless the outage outlasts a lease. What the handler says of a row is an [`Outcome`];
//! an [`Error`] is about the database or a setting.

pub mod backoff;
pub mod breaker;
mod clock;
mod discover;
mod error;
mod hold;
mod id;
mod lanes;
mod listen;
mod meter;
mod queue;
mod settle;
mod share;
mod slot;
mod statements;
mod store;
mod table;
mod verdict;
mod worker;
mod write;

pub use clock::Clock;
pub use error::Error;
pub use id::RowId;
pub use lanes::Lane;
pub use queue::{Batch, Down, Handler, Item, Outcome, Queue, Sent, Verdict};
pub use statements::{HoldStatements, LaneStatements, RowStatements, Statements};
pub use table::{HANDLER_PANIC, Kind, LEASE_EXPIRED, Lease, MAX_ATTEMPTS, RowLease, Table};
pub use worker::{BreakerView, Counts, Options, PLANNER, Worker};
