//! From a request's body into the tables, and back with a result for every event.
//!
//! The files follow the data: [`request`] (read the body, judge each event; pure) → plan (what the
//! sequences and ids mean; pure) → [`Writer`] (one transaction; `rows` has its SQL) → [`reply`].
//!
//! Promises: no result leaves before its transaction has committed; the same batch twice changes
//! nothing; one bad event never fails its batch. It must not know HTTP, tokens beyond whose data
//! they may write, or how events leave for the bus. It fails in two ways: about the body
//! ([`request::BadBatch`]), and about the database ([`Error`]).

pub(crate) mod page;
mod plan;
pub mod reply;
pub mod request;
pub(crate) mod rows;
mod write;

pub use plan::{Outcome, Tally};
pub use request::{Batch, Code};
pub use write::{Committed, Error, Sender, Writer};
