//! The bus over RabbitMQ.
//!
//! Purpose: [`RabbitPublisher`] and [`RabbitConsumer`], the topology they need ([`Topology`], with [`declare()`] and
//! [`check`]), and the dead-letter queue as an operator works with it ([`DeadLetterQueue`]). Names, arguments,
//! headers and what happens in each failure are in `docs/spec/bus.md`.
//!
//! It must not know which services there are: the topology comes from the caller.

mod address;
mod answer;
mod consumer;
mod dead_letters;
mod declare;
mod depth;
mod properties;
mod publisher;
mod replay;
mod topology;

pub use address::{Address, InvalidAddress};
pub use consumer::{ConsumerOptions, RabbitConsumer};
pub use dead_letters::DeadLetterQueue;
pub use declare::{Drift, TopologyError, Trouble, check, declare};
pub use depth::DepthProbe;
pub use publisher::{PublisherOptions, RabbitPublisher};
pub use topology::{Topology, WorkQueue, retry_queue};

pub use crate::{Listing, ReplayOptions, Replayed};

/// For the log filter of every process that uses this module: below it the client library logs messages
/// that the broker returned, bodies included.
pub const LOG_DIRECTIVE: &str = "lapin=error";
