//! Private servers under a folder, and links that can be cut.
//!
//! Purpose: `holdfast up` and the tests need servers that belong to them alone (Postgres, Mosquitto, RabbitMQ, Kafka),
//! that can be stopped, killed and started again on the same data, and a network between them that
//! misbehaves on demand.
//!
//! Promises: a server listens on a unix socket or on loopback only. Everything it writes is under
//! the folder it was given. A start returns when the server can be used, or with the reason and the
//! end of its log. Starting on a folder whose server was killed, or still runs, works. A process is
//! ended by its id, after checking that the id still belongs to it.
//!
//! It must not know what the servers are used for.
//!
//! It fails with [`Error`].

pub mod certificates;
mod error;
mod installed;
pub mod kafka;
mod link;
mod log;
mod mosquitto;
mod pid;
mod port;
mod postgres;
mod process;
pub mod rabbitmq;
mod ready;

pub use error::Error;
pub use installed::postgres_program;
pub use kafka::{Kafka, KafkaOptions};
pub use link::{Link, LinkStats, Mode};
pub use mosquitto::{Mosquitto, MosquittoOptions, Tls};
pub use port::free_port;
pub use postgres::{Postgres, PostgresOptions};
pub use process::Process;
pub use rabbitmq::RabbitMq;
