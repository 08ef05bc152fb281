//! A node's outbox against a real Postgres, one database a test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod outbox;
mod plant;
