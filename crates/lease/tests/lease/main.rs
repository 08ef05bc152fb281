//! Leased work on a real Postgres, on the site's own `sync_outbox`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

mod claim_cost;
mod crash;
mod database;
mod million;
mod order;
mod outage;
mod outbox;
mod scada;
mod share;
mod site;
mod states;
mod wake;
mod zombie;
