//! The console against real tiers: Postgres for its tokens, and the edge, cloud and historian behind HTTP.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod document;
