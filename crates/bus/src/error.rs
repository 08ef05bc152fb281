//! What can go wrong, and whom it is about.

use std::sync::Arc;

/// Whom an error is about. That alone decides what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum About {
    /// The message: it can never be published like this. Count an attempt, bury it, go on.
    Message,
    /// The destination: hold, back off, try again. The message is not to blame.
    Destination,
    /// Us: stop, and say why.
    Us,
}

/// Why a message was not published, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No queue or group wants it.
    #[error("no queue is bound to {exchange} for {routing_key}")]
    Unroutable {
        /// Where it was published.
        exchange: String,
        /// With which key.
        routing_key: String,
    },
    /// The body is above the limit.
    #[error("the body has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Something about it cannot be carried.
    #[error("the {what} {problem}")]
    Malformed {
        /// Which part.
        what: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// The broker judged this message and does not take it as things stand: a rule of the topic, which its operators can change.
    #[error("the broker refuses the {what}: it {problem}")]
    Rejected {
        /// Which part.
        what: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is no connection. Nothing was sent.
    #[error("the bus cannot be reached: {0}")]
    Unreachable(Arc<str>),
    /// The broker takes nothing at the moment. This message was not sent.
    #[error("the broker has blocked publishing: it is short of memory or disk")]
    Blocked,
    /// It was sent, and whether it is durable is not known.
    #[error("not confirmed: {0}")]
    Unconfirmed(Arc<str>),
    /// The broker said no: a queue is full, or one could not write.
    #[error("the broker refused the message")]
    Refused,
    /// It cannot work as configured: an exchange that is not there or not allowed.
    #[error("misconfigured: {0}")]
    Misconfigured(Arc<str>),
    /// There is no topic of this name. Messages of other topics are not concerned.
    #[error("there is no topic {0}")]
    NoTopic(Arc<str>),
}

impl PublishError {
    /// Whom it is about.
    pub fn about(&self) -> About {
        match self {
            PublishError::Unroutable { .. }
            | PublishError::TooLarge { .. }
            | PublishError::Malformed { .. }
            | PublishError::Rejected { .. } => About::Message,
            PublishError::Unreachable(_)
            | PublishError::Blocked
            | PublishError::Unconfirmed(_)
            | PublishError::Refused => About::Destination,
            PublishError::Misconfigured(_) | PublishError::NoTopic(_) => About::Us,
        }
    }

    /// For grouping by machines.
    pub fn code(&self) -> &'static str {
        match self {
            PublishError::Unroutable { .. } => "UNROUTABLE",
            PublishError::TooLarge { .. } => "TOO_LARGE",
            PublishError::Malformed { .. } => "MALFORMED",
            PublishError::Rejected { .. } => "REJECTED",
            PublishError::Unreachable(_) => "UNREACHABLE",
            PublishError::Blocked => "BLOCKED",
            PublishError::Unconfirmed(_) => "UNCONFIRMED",
            PublishError::Refused => "REFUSED",
            PublishError::Misconfigured(_) => "MISCONFIGURED",
            PublishError::NoTopic(_) => "NO_TOPIC",
        }
    }
}

/// Why a batch could not be had or committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    /// The connection that the batch came by is gone. Its messages are delivered again.
    #[error("the connection was lost before the commit; the batch is delivered again")]
    Lost,
    /// It cannot work as configured: a queue that is not there or not allowed.
    #[error("misconfigured: {0}")]
    Misconfigured(Arc<str>),
    /// The bus is gone; there will be no more batches.
    #[error("the bus is closed")]
    Closed,
}

impl ConsumeError {
    /// Whom it is about.
    pub fn about(&self) -> About {
        match self {
            ConsumeError::Lost => About::Destination,
            ConsumeError::Misconfigured(_) | ConsumeError::Closed => About::Us,
        }
    }
}
