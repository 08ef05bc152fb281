//! The cloud against a real Postgres and a real RabbitMQ: a database and a virtual host per test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod access;
mod batches;
mod complete;
mod concurrency;
mod consume;
mod consume_late;
mod consume_media;
mod consume_world;
mod copies;
mod dead_letters;
mod gaps;
mod kpis;
mod ledger;
mod letters;
mod limits;
mod matrix;
mod operate;
mod outage;
mod query;
mod relay;
mod relay_faults;
#[cfg(feature = "kafka")]
mod relay_kafka;
mod relay_rabbitmq;
mod schema;
mod secrets;
mod site;
mod topology;
mod trace;
mod upgrade;
mod upgrade_consumers;
mod wiring;
