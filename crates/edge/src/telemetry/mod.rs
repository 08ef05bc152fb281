//! Readings after they are stored: aggregates that stay right, questions and answers, what of them goes to the cloud.
//!
//! The folders follow the data: `dirty` (buckets that were touched) → `compute` (what they hold) → `store` (the aggregates) → `emit`
//! (their events for the cloud), driven by the [`Aggregator`]; and the other way, [`query`] and `http`. docs/spec/telemetry.md is the contract.
//!
//! Promises: when no mark is left every aggregate is what its readings say, however late and in whichever order they came; a computation that
//! changes nothing writes nothing; an aggregate and the event that tells of it are one transaction; any number of replicas may work at once.
//! It must not know how readings come in, or how events reach the cloud. It fails by the database alone: the marks are kept and worked on later.

mod aggregator;
mod ask;
mod compute;
mod csv;
pub(crate) mod dirty;
mod emit;
mod gaps;
pub(crate) mod http;
mod kept;
mod meter;
pub mod query;
mod readings;
mod series;
mod store;

pub use aggregator::{Aggregator, KEPT_EVERY};
pub use compute::AHEAD;
pub(crate) use meter::Meter;
