//! The console against real tiers: Postgres for its tokens; edge, cloud and historian behind HTTP.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod access;
mod consumers;
mod document;
mod ground;
mod losses;
mod metrics;
mod picture;
mod plant;
mod producer;
mod rota;
mod shared;
mod tls;
mod webhook;
mod work;
