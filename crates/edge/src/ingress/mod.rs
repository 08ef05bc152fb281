//! From the broker and HTTP into the tables, and back with an ack.
//!
//! The folders follow the data: [`receive`](self) (MQTT, HTTP) → [`check`] (read, judge each
//! record) → plan (what the sequences and ids mean; pure) → [`write`](Writer) (one transaction) →
//! acknowledge (PUBACK, then the ack).
//!
//! Promises: nothing is acknowledged before its transaction has committed; the same message twice
//! changes nothing; one bad record holds up neither its neighbours nor its sequence; memory is
//! bounded by configuration. It must not know how a record is forwarded later. It fails in three
//! ways: about the message (quarantine), about the database (kept, tried again), about the broker
//! (connected again; what was not acknowledged comes again).

pub(crate) mod acknowledge;
pub mod check;
pub(crate) mod gather;
pub(crate) mod http;
mod isolate;
pub(crate) mod mqtt;
pub(crate) mod notice;
mod plan;
mod reason;
pub(crate) mod rows;
mod write;

pub use check::Checked;
pub use plan::Tally;
pub use reason::{Reason, Refusal};
pub(crate) use write::Error as WriteError;
pub use write::{Committed, Timings, Writer};

use bytes::Bytes;
use jiff::Timestamp;

/// How a message came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From the broker.
    Mqtt,
    /// By `POST`.
    Http,
}

impl Source {
    /// The word in `ingress_quarantine.source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Mqtt => "mqtt",
            Source::Http => "http",
        }
    }
}

/// A message as it was received.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// How it came.
    pub source: Source,
    /// Its topic; for HTTP the topic that says the same.
    pub topic: String,
    /// Its body, or the beginning of one that is too large.
    pub body: Bytes,
    /// How large the body was.
    pub body_bytes: usize,
    /// Whether the broker had kept it: then it says nothing about now.
    pub retained: bool,
    /// When it was received.
    pub received_at: Timestamp,
}

impl Incoming {
    /// A message received now. A body beyond the limit of its source is clipped at once, so that it
    /// is not held.
    pub fn new(source: Source, topic: impl Into<String>, body: Bytes) -> Incoming {
        let body_bytes = body.len();
        let limit = source.limits().wire_bytes;
        let kept = match body_bytes > limit {
            true => Bytes::copy_from_slice(&body[..check::MESSAGE_BODY_KEPT]),
            false => body,
        };
        let received_at = Timestamp::now();
        Incoming {
            source,
            topic: topic.into(),
            body: kept,
            body_bytes,
            retained: false,
            received_at,
        }
    }
}

impl Source {
    /// What a batch from this source may hold.
    pub fn limits(self) -> event::wire::Limits {
        match self {
            Source::Mqtt => event::wire::Limits::MQTT,
            Source::Http => event::wire::Limits::HTTP,
        }
    }
}
