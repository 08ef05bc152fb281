//! The bus against its page, `docs/spec/bus.md`, with a real RabbitMQ.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod contract;
mod dead_letters;
mod faults;
mod inline;
mod recovery;
mod topology;
mod world;
