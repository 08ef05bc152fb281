//! Schedules: photographs of a rota become versioned days, events that say what changed, and messages.
//!
//! Purpose: [`canonical`] gives a day one form however it was written, [`diff`] finds the fewest events between two
//! days, [`notify`] puts them into words, [`worker`] does it for captured sessions on the lease engine, and [`deliver`] brings the messages
//! to people, with the tables of [`migration`]. docs/spec/schedule.md is the contract.
//!
//! Promises: representation never changes a hash. A session makes at most one version, its events and its messages exactly once,
//! wherever a worker dies. An old capture never undoes a newer one.
//!
//! It must not know the farm or the plant.
//!
//! How it fails: an observation that cannot be read fails its session with an error that names entry and field, never their text; an
//! outage of the extractor or the database changes nothing.

pub mod canonical;
pub mod config;
pub mod deliver;
pub mod diff;
mod digest;
pub mod extract;
pub mod history;
pub mod intake;
pub mod metrics;
pub mod migration;
pub mod noise;
pub mod notify;
pub mod observation;
pub mod replay;
pub mod waiting;
pub mod week;
pub mod worker;

pub use config::Config;
