//! The edge against real servers: a database per test, a broker per test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod broker;
mod cloned;
mod device;
mod http;
mod ingest;
mod outage;
mod quarantine;
mod registry;
mod replicas;
mod schema;
mod site;
