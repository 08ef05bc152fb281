//! Inputs against servers that are not ours, and the ledger of what is left out on a real Postgres.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod ledger;
mod modbus;
#[cfg(feature = "opcua")]
mod opcua;
mod producer;
mod simulator;
