//! The bodies that node and edge exchange; the page is `docs/spec/node-edge.md`.
//!
//! JSON, or one zstd frame of it. Promises: no limit is found out by allocating beyond it; a batch is
//! read as a whole or refused as a whole, but its events stay raw text, so that one bad event does
//! not fail its neighbours; unknown fields are ignored; a version other than 1 is refused by name. What
//! this does not know: who sent it, and whether they may.

mod ack;
mod batch;
mod command;
mod compression;
mod gap;
mod status;

pub use ack::{Ack, MAX_ACK_BYTES, MAX_ACK_RANGES};
pub use batch::{Batch, BatchWriter, Record, encode};
pub use command::{Command, MAX_COMMAND_BYTES, MAX_COMMAND_RANGES};
pub use compression::{Compressor, ZSTD_MAGIC, compress, decode};
pub use gap::Gap;
pub use status::{Clock, IgnoredAcks, IgnoredCommands, MAX_STATUS_BYTES, Report, State, Status};

pub use crate::ledger::GapReason;

use serde_json::value::RawValue;

use crate::{Invalid, json};

/// The version of every body.
pub const VERSION: u64 = 1;

/// What a batch may hold. Each is checked before memory is taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The body as it travels.
    pub wire_bytes: usize,
    /// The JSON in it.
    pub decompressed_bytes: usize,
    /// Records in a batch.
    pub records: usize,
    /// Gaps in a batch.
    pub gaps: usize,
}

impl Limits {
    /// Over MQTT.
    pub const MQTT: Limits = Limits {
        wire_bytes: 1024 * 1024,
        decompressed_bytes: 8 * 1024 * 1024,
        records: 5_000,
        gaps: 1_000,
    };

    /// Over HTTP.
    pub const HTTP: Limits = Limits {
        wire_bytes: 8 * 1024 * 1024,
        decompressed_bytes: 32 * 1024 * 1024,
        records: 20_000,
        gaps: 1_000,
    };
}

/// Why a body was refused. Always about the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More than the limit allows; over HTTP a 413.
    #[error("{what} is more than the limit of {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Not one whole zstd frame, though it starts like one.
    #[error("the body is not one whole zstd frame: {0}")]
    Compression(String),
    /// A version that this side does not speak.
    #[error("v is {got}: expected {VERSION}")]
    Version {
        /// The version, clipped.
        got: String,
    },
    /// A field breaks its rule.
    #[error(transparent)]
    Malformed(#[from] Invalid),
}

impl WireError {
    /// The field that is wrong, where it is a field.
    pub fn field(&self) -> Option<&str> {
        match self {
            WireError::Malformed(invalid) => Some(&invalid.field),
            WireError::Version { .. } => Some("v"),
            WireError::TooLarge { .. } | WireError::Compression(_) => None,
        }
    }

    /// A word for replies, metrics and quarantine reasons.
    pub fn code(&self) -> &'static str {
        match self {
            WireError::TooLarge { .. } => "too_large",
            WireError::Compression(_) => "compression",
            WireError::Version { .. } => "version",
            WireError::Malformed(_) => "malformed",
        }
    }
}

fn check_version(raw: Option<&RawValue>) -> Result<(), WireError> {
    let expected = VERSION.to_string();
    match raw {
        None => Err(Invalid::missing("v", &expected).into()),
        Some(raw) if raw.get() == expected => Ok(()),
        Some(raw) => match json::integer("v", Some(raw), 0, u64::MAX) {
            Ok(got) => Err(WireError::Version { got: got.to_string() }),
            Err(_) => Err(Invalid::json("v", raw.get(), &expected).into()),
        },
    }
}

#[cfg(test)]
mod tests;
