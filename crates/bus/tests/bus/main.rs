//! The bus against its page, `docs/spec/bus.md`, with a real RabbitMQ.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod contract;
mod dead_letters;
mod depth;
mod faults;
mod inline;
mod observed;
mod recovery;
mod tls;
mod topology;
mod world;
