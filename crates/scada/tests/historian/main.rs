//! The historian against a real Postgres, one database a test, on the inline bus, on RabbitMQ, and with the feature `kafka` on Kafka.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod alarms;
mod api;
mod consume;
mod federation;
#[cfg(feature = "kafka")]
mod kafka;
mod letters;
mod minutes;
mod offsets;
mod pipeline;
mod samples;
mod station;
mod tls;
