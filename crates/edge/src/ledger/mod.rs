//! The edge's part in comparing the tiers, and in bringing them together again.
//!
//! [`states`] tells what the edge has of its streams, [`repair()`] changes the ledger and the outbox so that node, edge and
//! cloud agree, [`bare`] does both for events without a sequence and [`media`] for images, `resend` asks nodes until a repair is closed, `trace` finds one event. The HTTP API and `holdfast verify`
//! stand on these. docs/spec/verify.md is the contract.
//!
//! Promises: nothing outside the given tenants is seen or changed; a repair and its audit are one transaction under the
//! frontier's lock; the same repair twice changes nothing more. It must not know the cloud: what that has comes as ranges.
//! It fails with the database's errors, and with a refusal of ranges that the ledger cannot take.

pub mod bare;
mod by_id;
pub(crate) mod http;
pub mod media;
mod repair;
pub(crate) mod resend;
pub mod states;
mod summary;
mod trace;

pub use repair::{Error, MAX_REPAIR_RANGES, MAX_RESENT_ROWS, repair};
pub use summary::summary;
pub use trace::{EdgeTrace, Outbox, Quarantine, trace};

use event::id::{Epoch, NodeId};

/// A stream in one life of its spool, as a caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamName {
    /// The stream.
    pub stream: NodeId,
    /// The life of its spool.
    pub epoch: Epoch,
}
