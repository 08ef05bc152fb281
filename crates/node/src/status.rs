//! How the node is: the status object of `docs/spec/node-edge.md` plus what only matters on the spot.

use event::id::{Epoch, NodeId};
use event::wire::{Report, State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What `{"cmd":"status"}` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The version of the object.
    pub v: u64,
    /// `online` when the node answered itself; `offline` when a command looked at its spool.
    pub state: State,
    /// The spool's life.
    pub epoch: Epoch,
    /// What the edge is told, too.
    #[serde(flatten)]
    pub report: Report,
    /// What only matters on the spot.
    pub local: Local,
}

/// What only matters on the spot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Local {
    /// The node's name.
    pub node_id: NodeId,
    /// The link to the broker.
    pub link: Link,
    /// Where the broker is.
    pub broker: String,
    /// Batches that wait for their PUBACK.
    pub in_flight: u64,
    /// Batches that were sent again because no ack came.
    pub resent_batches: u64,
    /// Records that no batch could carry and that were declared lost.
    pub unsendable: u64,
    /// Whether backfill goes over HTTP now.
    pub http: bool,
    /// How long the backlog will take at the pace of the last minute; unknown when it does not shrink.
    pub drain_seconds: Option<u64>,
    /// When the edge last acknowledged something, not counting what the broker had kept.
    pub last_ack_at: Option<Timestamp>,
    /// Samplers that are connected.
    pub samplers: u64,
    /// Where the spool may grow to.
    pub max_spool_bytes: u64,
    /// Segments on disk.
    pub segments: u64,
    /// When this process started.
    pub started_at: Option<Timestamp>,
    /// The spool's last trouble.
    pub last_error: Option<String>,
}

/// The link to the broker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its state.
    pub state: LinkState,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Why it is not up.
    pub detail: Option<String>,
}

/// The state of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Connected.
    Up,
    /// Not connected; it is tried again.
    Down,
    /// The broker says no; someone must change something.
    Refused,
    /// Not known: the node does not run.
    Unknown,
}
