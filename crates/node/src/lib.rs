//! A field node: takes samples over a unix socket, spools them, and forwards them to the edge.
//!
//! **Purpose.** [`socket`] takes lines in, `spool` keeps them, [`forward`] carries them out. [`serve`] puts the three
//! together; the binary `holdfast-node` adds commands around it.
//!
//! **Promises.**
//! - A sampler's reply means that its record is on the disk. A sampler waits for the disk, never for the uplink.
//! - A record is sent until the edge has acknowledged it, and leaves the disk only after that, or is named in a gap.
//! - Memory is bounded by configuration, not by the backlog.
//!
//! **Must not know.** Postgres, the edge's tables, the cloud.
//!
//! **How it fails.** At start, with [`RunError`], when it cannot do its work: a spool that is in use or
//! unreadable, a socket that is taken, a broker configuration that can never work. After that it does not end by itself: a
//! broken link, a refusing broker and a full disk are waited out and shown in the status.

pub mod carry;
mod clock;
mod config;
pub mod forward;
mod metrics;
mod pace;
mod run;
pub mod socket;
mod status;
mod vitals;

pub use config::{Clock, Config, Forward, Http, Identity, KEYS, MAX_RECORD_BYTES, SECTION, Sync};
pub use run::{RunError, serve};
pub use status::{Link, LinkState, Local, NodeStatus};
pub use vitals::oldest_at;
