//! The bus over a real Apache Kafka, against its page, `docs/spec/bus.md`. The contract it shares with the others is tested in
//! `tests/bus/contract.rs`.
//!
//! Where Kafka cannot be had (`testkit::kafka`) these tests end at once, and `./dev` lists them as not run.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod access;
mod faults;
mod lag;
mod offsets;
mod order;
mod refused;
mod replay;
mod security;
mod topics;
mod world;
