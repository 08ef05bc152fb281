//! An append-only log of opaque bytes that survives power cuts. Synchronous.
//!
//! # What it is for
//! A field node hands every record to a [`Spool`] and is told its sequence once the record is on the card. An uplink reads the
//! records in order with a [`Reader`], and acks them when downstream has them; only then do they go.
//!
//! # What it promises
//! - A sequence that was acknowledged is readable with its bytes, or is named in a [`Gap`], after any crash.
//! - A sequence that was acknowledged or read is never given to another record of the same epoch.
//! - A flipped bit costs the damaged record alone; what follows is served.
//! - Nothing is deleted before the cursor, or the tombstone, that allows it is durable.
//! - Opening reads the last segment and three small files, whatever the size of the spool.
//! - Memory is bounded by [`QUEUE_BYTES`], one group and one window for each reader; not by the backlog.
//!
//! Under [`SyncPolicy::Interval`] the first two hold for *synced* records only: that policy acknowledges before the sync.
//!
//! # What it must not know
//! What the bytes mean, the network, async. A class is a number: higher is more precious.
//!
//! # How it fails
//! See [`Error`]. A torn tail is cut off, corruption becomes a gap, an I/O error is returned and never skipped. When a sync fails, its
//! callers are told, and the file is never trusted again. A full disk refuses or drops, as configured, and resumes by itself.
//!
//! # Where to start reading
//! The format and every rule of recovery are in `docs/spec/spool-format.md`. Then: `frame` and `scan` (bytes), `segment`, `cursor` and
//! `gaps` (files), `survey` and `recover` (opening), `writer` and `retention` (the one thread that writes), `reader`, `inspect`.

mod config;
mod cursor;
pub mod disk;
mod error;
pub mod frame;
mod gaps;
mod inspect;
mod queue;
mod reader;
mod recover;
mod retention;
mod scan;
mod segment;
mod spool;
mod state;
mod survey;
mod writer;

pub use config::{Config, OnFull, SyncPolicy};
pub use error::Error;
pub use gaps::{Gap, GapReason, MAX_GAPS};
pub use inspect::{Inspection, MAX_LISTED_DAMAGE, Report, SegmentReport};
pub use queue::{Done, QUEUE_BYTES, QUEUE_JOBS};
pub use reader::{Item, Reader, Seen};
pub use recover::Recovery;
pub use segment::Summary;
pub use spool::{Spool, Stats};
pub use state::{Clock, SyncedHook};
