//! The historian against a real Postgres, one database a test, on the inline bus and on RabbitMQ.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod alarms;
mod api;
mod consume;
mod federation;
mod offsets;
mod pipeline;
mod samples;
mod station;
