//! The sampler socket: `docs/spec/sampler-socket.md`.
//!
//! Lines in, replies out, in order, after they are durable. A sampler waits for the disk, never for the
//! uplink. Bounded: connections, bytes of one line, lines of one connection in flight, bytes of all connections
//! on their way to the disk.

mod client;
mod connection;
mod fields;
mod listen;
mod reply;
mod request;

pub use client::{QueryError, query_status};
pub use listen::ListenError;
pub(crate) use listen::{Samplers, bind};
pub use request::{Moment, Parsed, Record, Request, parse};

/// The longest line, without its newline.
pub const MAX_LINE_BYTES: usize = 256 * 1024;
