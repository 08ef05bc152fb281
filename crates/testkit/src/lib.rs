//! Dev-only: what the tests of every crate stand on.
//!
//! Purpose: one real Postgres per test run with a database per test, one RabbitMQ with a virtual host
//! per test, one Kafka with names of its own per test, one foreign S3 store with a bucket per test, a
//! private Mosquitto per test, the workspace's own binaries, and waiting for conditions instead of for
//! time.
//!
//! Promises: works under plain `cargo test`, in parallel, as root or not. Nothing it starts outlives
//! the run by more than half a minute, even when a test binary is killed (`shared.rs` says how).
//!
//! It must not know the tables or the settings of any role.
//!
//! It fails with [`anyhow::Error`]; a test unwraps it.

mod bins;
mod broker;
pub mod certificates;
mod database;
mod eventually;
mod kafka;
mod logs;
mod object_store;
mod rabbitmq;
mod run;
mod seed;
pub mod server;
mod shared;
mod store_door;
mod tmpfs;

pub use bins::bin;
pub use broker::{Broker, mosquitto};
pub use certificates::Certificates;
pub use database::{Database, database};
pub use eventually::{Condition, eventually};
pub use kafka::{KafkaSite, PrivateKafka, kafka, private_kafka};
pub use logs::Logs;
pub use object_store::{EmbeddedStore, foreign_bucket};
pub use rabbitmq::{PrivateRabbitMq, Vhost, private_rabbitmq, private_rabbitmq_with, rabbitmq};
pub use rig;
pub use seed::seed;
pub use server::{Server, postgres};
pub use store_door::{Held, Knock, StoreDoor};
pub use tmpfs::Tmpfs;
