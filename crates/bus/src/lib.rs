//! Publish a batch with confirms; consume a batch and commit after the store has it.
//!
//! Purpose: the hop from the relay outbox to the stores of every service that wants a message. Three
//! implementations keep one contract: [`inline`] (same process, for one machine), `rabbitmq` (feature
//! `amqp`) and `kafka` (feature `kafka`). `docs/spec/bus.md` is the contract.
//!
//! Promises: a publish that answers `Ok` has been written by every queue bound to the message (RabbitMQ), by
//! every in-sync replica (Kafka), or settled by every group bound to it (inline). Nothing is acknowledged before [`Batch::commit`]. A
//! message that fails is retried by itself, a bounded number of times, and then kept as a dead letter with
//! its bytes untouched. Memory is bounded by windows, prefetch and capacities, not by backlog.
//!
//! It must not know what a message means, or any table. Bodies, and addresses with passwords, never
//! appear in its logs, errors or metrics.
//!
//! It fails with [`PublishError`] and [`ConsumeError`], each of which says with [`About`] whether it is
//! about the message, the destination or us.

mod batch;
mod dead_letter;
mod depth;
mod error;
pub mod inline;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod letterbox;
mod message;
mod metrics;
#[cfg(feature = "amqp")]
pub mod rabbitmq;
mod retry;
pub mod topic;

use futures_util::future::BoxFuture;

pub use batch::{Batch, Committed, Delivery, Position};
pub use dead_letter::{
    CauseGroup, DeadLetter, DeadLetters, Death, Filter, Listing, Pace, Progress, ReplayOptions,
    Replayed, Test, by_cause, export_line,
};
pub use depth::Depth;
pub use error::{About, ConsumeError, PublishError};
pub use message::{Cause, Message};
pub use metrics::Metrics;
pub use retry::{InvalidRetry, Retry};
pub use topic::Binding;

/// Publishes batches.
pub trait Publisher: Send + Sync {
    /// Publishes a batch and returns one result for each message, in the order given.
    ///
    /// `Ok` is a promise about durability (see the crate's page); with any error the message is still the
    /// caller's, though it may have been published. Messages of one call keep their order. When
    /// the future is dropped, nothing is known about the batch.
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>>;
}

/// Consumes the messages of one group, in batches.
pub trait Consumer: Send {
    /// Waits for the next batch; it has at least one message. Broken connections are mended inside, with
    /// backoff. Dropping the future loses nothing.
    ///
    /// Several batches may be in hand at once, within the prefetch.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, ConsumeError>>;

    /// Says goodbye, for a bus that shares the work out: other consumers of the group get this one's part at once, and not when it has
    /// been silent for long. Nothing is taken after it.
    fn leave(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
