//! The cloud: ingestion of the edges' events, their ledger, and what must go to the bus.
//!
//! Entry points: [`Config`] from the `[cloud]` section, [`migrate`], [`run`] (or [`Cloud`] for
//! whoever wants the address and a graceful stop), [`tokens`] for making, listing and revoking
//! tokens, [`ingest::Writer`] for writing batches without HTTP.
//!
//! [`relay`] publishes what ingestion wrote; [`config::Role`] says which of the parts a process runs.
//!
//! Promises: an event that was answered `accepted` or `duplicate` is durable, and is in the relay
//! outbox once; a batch that comes twice changes nothing; a token writes its own tenants only; one
//! bad event never fails its batch. docs/spec/edge-cloud.md has the protocol,
//! docs/spec/cloud-tables.md the tables.
//!
//! It must not know the edge's insides. It fails at start for what can never work; after that the
//! database may come and go, and requests are answered 503 meanwhile.

mod behind;
mod cloud;
pub mod config;
pub mod consume;
pub mod copies;
pub mod dead_letters;
mod http;
pub mod ingest;
pub mod ledger;
mod maintenance;
pub mod metrics;
mod migration;
mod readiness;
pub mod relay;
pub mod trace;

pub use api::tokens;
pub use bus::rabbitmq::LOG_DIRECTIVE;
pub use cloud::{Cloud, Error, Work, run, topology};
pub use config::Config;
pub use http::{Open, ROUTES, openapi};
pub use maintenance::{absorb_behind, sweep_dedupe};
pub use migration::{SCHEMA, migrate};
pub use readiness::Readiness;

/// The NOTIFY channel that says that the relay outbox has new rows.
pub const RELAY_CHANNEL: &str = "relay_outbox";
