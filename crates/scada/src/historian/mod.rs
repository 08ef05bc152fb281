//! The historian: every event of every node once, what its alarms came to, and what can be asked of them.
//!
//! Entry points: [`Historian::start`] runs everything; `consume` takes batches from a bus, `write` stores one in one transaction,
//! [`alarms`] follows ISA-18.2, `rollup` keeps telemetry by the minute, `http` answers, [`offsets`] sets a replay back, `federation` sends on to a second historian.
//! docs/spec/historian.md is the contract.
//!
//! Promises: a batch is acknowledged after it is stored; stored twice it changes nothing; what cannot be stored is a dead letter
//! with its cause before anything moves past it; a database that is away costs no message an attempt. Any number of replicas.
//!
//! It must not know which bus it has, nor the nodes' outboxes. It fails at start for what can never work; after that the database and
//! the bus may come and go.

pub mod alarms;
pub mod config;
mod consume;
pub mod dead_letters;
mod federation;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod metrics;
pub mod offsets;
mod partitions;
mod presence;
mod progress;
mod record;
mod rollup;
mod rows;
mod run;
pub mod standing;
mod topology;
mod write;

pub use config::Config;
pub use dead_letters::DeadLetters;
pub use federation::{Plants, Remote};
pub use http::{ROUTES, openapi};
#[cfg(feature = "kafka")]
pub use kafka::KafkaBus;
pub use metrics::Metrics;
pub use record::{INCOMPATIBLE, INVALID, REFUSED, Record};
pub use rollup::SESSION;
pub use run::{Error, Historian};
pub use topology::{GROUP, bindings, topology};
pub use write::{Stored, Writer};

pub use crate::audit;
