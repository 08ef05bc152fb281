//! The cloud's ingestion against a real Postgres: a database per test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod access;
mod batches;
mod concurrency;
mod dead_letters;
mod ledger;
mod limits;
mod outage;
mod schema;
mod secrets;
mod site;
