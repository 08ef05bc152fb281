//! A Level 2 node: its main loop, its outbox and spool, its dispatchers.
//!
//! Entry points: [`Producer::start`] runs everything; [`Source`] makes what a cycle has, `store` puts a cycle into the outbox or the
//! spool, `drain` brings it from there to the outbox, `watch` holds the outbox against its thresholds, [`status()`] tells how a node
//! stands. docs/spec/scada.md is the contract.
//!
//! Promises: a cycle is one transaction; while Postgres is away it is on disk, not in memory; events of an aggregate are published in
//! the order in which they were made, each once in the outbox; what had to be given up is on record. The loop never touches the bus.
//!
//! It must not know which bus it has. It fails at start for what can never work; after that the database and the bus may come and go.

pub mod config;
mod drain;
mod http;
mod metrics;
mod record;
mod run;
mod source;
mod status;
mod store;
mod vitals;
mod watch;

pub use config::Config;
pub use http::ROUTES;
pub use metrics::{GAUGES, Metrics};
pub use run::{Error, Producer};
pub use source::{Made, Source};
pub use status::{SpoolStatus, Status, status};
