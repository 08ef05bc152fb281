//! Leased work on a real Postgres, on the site's own `sync_outbox`: with leases on its rows, and with leases on its lanes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

mod claim_cost;
mod crash;
mod database;
mod lane_states;
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
