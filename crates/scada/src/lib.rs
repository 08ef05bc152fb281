//! SCADA: what a Level 2 node makes and publishes, and the historian that keeps it.
//!
//! Entry points: [`generate`] makes events, pure; [`inputs`] reads them from devices; [`analytics`] reduces them; [`outbox::Outbox`] writes them with what they tell of in one transaction;
//! [`outbox::Dispatcher`] publishes them in order; [`outbox::prune`] removes what was sent long ago; [`producer`] is a node as a whole;
//! [`historian`] keeps all of it; [`mod@line`] is both in one process; [`kafka`] reads where the cluster is. docs/spec/scada.md is the
//! contract.
//!
//! It must not know the farm's domain, nor which bus it has. It fails at start for what can never work; after that the database
//! and the bus may come and go. Payloads are in no log, error or metric.

pub mod analytics;
pub mod audit;
pub mod generate;
pub mod historian;
pub mod inputs;
pub mod kafka;
pub mod line;
mod migration;
pub mod outbox;
pub mod producer;
mod rabbitmq;
mod tables;
pub mod verify;

pub use migration::{HISTORIAN, PRODUCER, migrate_historian, migrate_producer};
