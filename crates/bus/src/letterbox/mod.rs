//! Where dead letters are kept, as an operator works with them, whatever keeps them.
//!
//! Purpose: [`Letterbox`] is one such place; [`BrokerLetterbox`] is that of a broker, with all of its queues or topics. [`Desk`] is how a process
//! that serves operators works with one: looks that are shared, and a replay in the background.
//!
//! It must not know who may see which letter, nor where deeds are recorded: the caller says ([`Filter::test`], [`Record`]).

#[cfg(feature = "amqp")]
mod broker;
mod desk;

use futures_util::future::BoxFuture;

use crate::{Filter, Listing, Progress, ReplayOptions, Replayed};

#[cfg(feature = "amqp")]
pub use broker::BrokerLetterbox;
pub use desk::{Desk, LOOK_LIMIT, Look, Record};

/// Is told how far a replay is.
pub type Tell<'a> = dyn Fn(Progress) + Send + Sync + 'a;

/// A place that keeps dead letters.
pub trait Letterbox: Send + Sync {
    /// Looks at the dead letters from the oldest on and returns those that are meant, up to `limit`. Takes nothing away.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listing, LetterboxError>>;

    /// Sends dead letters back to the group that gave them up, and tells how far it is from time to time. A letter goes only after that group's
    /// queue or store has it. After an error, what was told last has been done.
    fn replay<'a>(
        &'a self,
        options: &'a ReplayOptions,
        tell: &'a Tell<'a>,
    ) -> BoxFuture<'a, Result<Replayed, LetterboxError>>;
}

/// Why dead letters cannot be read or sent back now. Its words have no bodies and no secrets.
#[derive(Debug, thiserror::Error)]
pub enum LetterboxError {
    /// RabbitMQ does not give them.
    #[cfg(feature = "amqp")]
    #[error("the queue {queue}: {source}")]
    Queue {
        /// Which queue.
        queue: String,
        /// Why.
        source: crate::rabbitmq::TopologyError,
    },
    /// Kafka does not give them.
    #[cfg(feature = "kafka")]
    #[error("the topic {topic}: {source}")]
    Topic {
        /// Which topic.
        topic: String,
        /// Why.
        source: crate::kafka::admin::AdminError,
    },
    /// A store of the caller's does not give them.
    #[error("{0}")]
    Store(String),
    /// Somebody has the letters in hand.
    #[error("the dead letters are being looked at or sent back")]
    InUse,
    /// It took too long.
    #[error("it took longer than {0} s to look at the dead letters")]
    TooLong(u64),
}
