//! Schedules on a real Postgres, one database a test: the contract with plain SQL, and the worker.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod clock;
mod columns;
mod contract;
mod crash;
mod delivery;
mod doors;
mod intake;
mod metrics;
mod receiver;
mod replay;
mod rota;
mod site;
mod steps;
mod tls;
mod together;
mod week;
mod worker;
