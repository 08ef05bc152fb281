//! The cloud's part in comparing the tiers: what it has of every stream, and where an event is.
//!
//! The HTTP API and `holdfast verify` stand on this; docs/spec/verify.md is the contract. It sees nothing outside the given
//! tenants, and changes nothing but the notes of what is to be taken in again. It must not know the edge. It fails with the database's errors alone.

pub mod bare;
pub mod states;
pub mod stored;
mod summary;
mod trace;

pub use summary::summary;
pub use trace::{CloudTrace, DeadLetter, Rejected, Relay, Stored, trace};

use event::id::{Epoch, NodeId, TenantId};

/// A stream in one life of its spool, as a caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamName {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The stream.
    pub stream: NodeId,
    /// The life of its spool.
    pub epoch: Epoch,
}
