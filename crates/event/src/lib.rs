//! What travels through Holdfast, and the arithmetic that proves it arrived.
//!
//! **Purpose.** The two envelopes ([`farm`] and [`scada`]) with their exact field names and every
//! rule a value must keep; typed ids ([`id`]); the names of topics, queues, partitions and objects
//! ([`names`]); the windows of aggregates ([`Window`]); the bodies that node and edge exchange ([`wire`]); and the ledger's arithmetic
//! ([`ledger`]): which sequences of a stream were received, which were declared lost, which are
//! missing.
//!
//! **Promises.**
//! - What parses here can be stored: text that Postgres would refuse in `jsonb` (U+0000, a lone
//!   surrogate, a number beyond its range, nesting without end) is refused first, by name.
//! - An identifier from outside has passed its grammar before it is part of a topic, a key or a path.
//! - Every input has a bound: size, nesting, number of records, decompressed size, ranges held.
//! - An error names the field, shows at most 40 characters of the offending scalar, and says what
//!   would be right. It never shows a payload.
//!
//! **Must not know.** I/O, async, SQL, brokers. Time is passed in; only minting an id reads a clock.
//!
//! **How it fails.** [`Invalid`] for an event, [`wire::WireError`] for a body,
//! [`ledger::FrontierError`] for the ledger. All of them are about the message, never about the
//! destination or about us; nothing here panics on input.

mod class;
pub mod farm;
pub mod id;
mod invalid;
mod json;
pub mod ledger;
pub mod names;
pub mod quality;
pub mod scada;
mod spelling;
mod timestamp;
mod window;
pub mod wire;

pub use class::Class;
pub use invalid::{Invalid, InvalidKind};
pub use json::{MAX_EXPONENT, MAX_NESTING, MAX_NUMBER_CHARS};
pub use quality::QualityCode;
pub use timestamp::{rfc3339, utc};
pub use window::Window;

/// The largest event that is accepted, in bytes of JSON.
///
/// The sampler socket takes lines up to 256 KiB; the difference leaves room for the fields that the
/// node adds, so that what the socket accepts a batch can carry.
pub const MAX_EVENT_BYTES: usize = 240 * 1024;
