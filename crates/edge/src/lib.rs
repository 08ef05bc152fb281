//! The site: ingress of node data into Postgres, node registry, liveness, forwarding to the cloud.
//!
//! Entry points: [`Config`] from the `[edge]` section, [`migrate`], [`run`] (or [`Edge`] for
//! whoever wants the address and a graceful stop), [`registry`] for enrolling and listing nodes,
//! [`ingress::Writer`] for writing messages without a broker, [`sync::Forwarder`] for the way to the
//! cloud.
//!
//! Promises: a record that was acknowledged is in the tables, once, or in quarantine with its
//! reason; a replay changes nothing; a tenant comes from a node's registration, never from a
//! payload. docs/spec/edge-tables.md has the tables, docs/spec/node-edge.md the protocol.
//!
//! It must not know the cloud's insides. It fails at start for what can never work; after that the database
//! or the broker may come and go.

pub mod config;
mod edge;
mod health;
mod http;
pub mod inference;
pub mod ingress;
pub mod ledger;
mod maintenance;
pub mod media;
pub mod metrics;
mod migration;
mod outbox;
pub mod registry;
pub mod retention;
mod sessions;
mod signal;
pub mod sync;
pub mod telemetry;

pub use config::Config;
pub use edge::{Edge, Error, run};
pub use http::{Open, ROUTES, openapi};
pub use maintenance::sweep_dedupe;
pub use migration::{SCHEMA, migrate};
