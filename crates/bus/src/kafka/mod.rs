//! The bus over Apache Kafka.
//!
//! Purpose: [`KafkaPublisher`] and [`KafkaConsumer`], the topics they need ([`admin`]), who may use them
//! ([`access`]), and a dead-letter topic as an operator reads it ([`DeadLetterTopic`]). Names, headers, settings and what happens in each failure are in
//! `docs/spec/bus.md`.
//!
//! Promises beyond the bus's own: messages of one key stay in order, through retries too. A partition's offset never moves
//! beyond a message that is not settled. Offsets are kept by Kafka or by the caller ([`Offsets`]).
//!
//! It must not know which topics or groups there are: they come from the caller.

pub mod access;
pub mod admin;
mod cluster;
mod consumer;
mod dead_letters;
mod events;
mod held;
mod lag;
mod partitions;
mod publisher;
mod rebalance;
mod record;
mod replay;
mod wire;
mod worker;

pub use cluster::{Cluster, ClusterParts, InvalidCluster, InvalidParts, Tls};
pub use consumer::{ConsumerOptions, Group, KafkaConsumer, Offsets, StoredOffsets};
pub use dead_letters::{DEAD_LETTER_READER, DeadLetterTopic};
pub use lag::LagProbe;
pub use partitions::PartitionId;
pub use publisher::{KafkaPublisher, PublisherOptions};
