//! What a tier says of a stream: the bodies of the ledger's routes, the same at edge and cloud.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Frontier, RangeSet};
use crate::id::{Epoch, NodeId, TenantId};

/// Sequences as ranges, both ends included.
pub type Ranges = Vec<(u64, u64)>;

/// A stream in one life of its spool, as one tier knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool.
    pub epoch: Epoch,
    /// The highest sequence up to which every one is received or lost.
    pub acked: u64,
    /// What is here.
    pub received: Ranges,
    /// What was declared lost.
    pub lost: Ranges,
    /// Of what is here, that which has no event of its own.
    pub kept: Ranges,
    /// The node's last words about this life, where the tier hears nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeView>,
}

impl StreamState {
    /// A stream of which a tier knows nothing.
    pub fn unknown(tenant_id: TenantId, stream: NodeId, epoch: Epoch) -> StreamState {
        StreamState {
            tenant_id,
            stream,
            epoch,
            acked: 0,
            received: Vec::new(),
            lost: Vec::new(),
            kept: Vec::new(),
            node: None,
        }
    }

    /// What a tier's frontier says.
    pub fn of(
        tenant_id: TenantId,
        stream: NodeId,
        epoch: Epoch,
        frontier: &Frontier,
    ) -> StreamState {
        StreamState {
            acked: frontier.acked(),
            received: frontier.received().ranges().to_vec(),
            lost: frontier.lost().ranges().to_vec(),
            ..StreamState::unknown(tenant_id, stream, epoch)
        }
    }

    /// What is received or lost.
    pub fn accounted(&self) -> RangeSet {
        self.received.iter().chain(&self.lost).copied().collect()
    }
}

/// What a node said of its spool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The highest durable sequence.
    pub head: u64,
    /// Up to here the node takes everything for acknowledged.
    pub acked: u64,
    /// The oldest sequence that may still be in the spool.
    pub oldest: u64,
    /// Whether the node was there when it was last heard.
    pub online: bool,
    /// When it said so.
    pub at: Option<Timestamp>,
}

/// Count and hash of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockState {
    /// Its number.
    pub block: u64,
    /// How many events are counted in it.
    pub count: u64,
    /// The hash, 32 hexadecimal digits.
    pub hash: String,
}

/// Milliseconds in an hour.
pub const HOUR_MS: u128 = 3_600_000;
/// The hour of ids that tell no time.
pub const NO_HOUR: i64 = -1;

/// Count and hash of the events whose ids were made in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourState {
    /// Whose they are.
    pub tenant_id: TenantId,
    /// Hours since 1970 of an id of version 7; [`NO_HOUR`] for other ids.
    pub hour: i64,
    /// How many events.
    pub count: u64,
    /// The first 8 bytes of each id's MD5, combined by exclusive or, in hexadecimal digits.
    pub hash: String,
    /// How many of them have no sequence, where the tier knows.
    #[serde(default)]
    pub bare: u64,
}

/// What is stored under a sequence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MarkState {
    /// The sequence.
    pub seq: u64,
    /// [`super::Digest::mark`] of it and its event, 16 hexadecimal digits.
    pub mark: String,
}

/// What became of sequences that the edge received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// Waits for the cloud, or is on its way.
    Pending,
    /// A dead letter.
    Dlq,
    /// A dead letter that an operator gave up.
    Failed,
    /// The cloud has said that it has it.
    Acked,
    /// It has no outbox row any more, and is in the store.
    Raw,
}

/// A range of the edge's sequences in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where it is.
    pub place: PlaceKind,
    /// The first sequence.
    pub from: u64,
    /// The last sequence.
    pub to: u64,
}

/// What to do to the edge's part of a stream so that the tiers agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repair {
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool.
    pub epoch: Epoch,
    /// To be asked of the node again.
    #[serde(default)]
    pub resend: Ranges,
    /// The cloud has it: counts as received here.
    #[serde(default)]
    pub adopt: Ranges,
    /// The cloud knows it as lost: counts as lost here.
    #[serde(default)]
    pub adopt_lost: Ranges,
    /// Events to be sent to the cloud again.
    #[serde(default)]
    pub resync: Ranges,
    /// Tombstones to be sent to the cloud again.
    #[serde(default)]
    pub retell: Ranges,
    /// Change nothing, and say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Repair {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.resend, &self.adopt, &self.adopt_lost, &self.resync, &self.retell];
        lists.iter().all(|ranges| ranges.is_empty())
    }
}

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Sequences asked of the node.
    pub asked: u64,
    /// Sequences adopted from the cloud.
    pub adopted: u64,
    /// Sequences adopted as lost.
    pub adopted_lost: u64,
    /// Outbox rows that go to the cloud again.
    pub resent: u64,
    /// Of these, rows that were made again from the store.
    pub rebuilt: u64,
    /// Tombstones that the cloud is told again.
    pub retold: u64,
    /// The repair's number in the audit.
    pub audit_id: Option<i64>,
}

impl Repaired {
    /// How many things were changed.
    pub fn changes(&self) -> u64 {
        self.asked + self.adopted + self.adopted_lost + self.resent + self.retold
    }
}

/// The ledger of a tier at one moment, for the manifest of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSummary {
    /// Every stream, in the order of stream and epoch.
    pub streams: Vec<StreamSummary>,
    /// SHA-256 over every frontier and block, 64 hexadecimal digits.
    pub hash: String,
}

/// A stream in a [`LedgerSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Whose it is.
    pub tenant_id: uuid::Uuid,
    /// The stream.
    pub stream: String,
    /// The life of the spool.
    pub epoch: uuid::Uuid,
    /// The highest sequence up to which every one is received or lost.
    pub acked: i64,
    /// How many were received.
    pub received_count: i64,
    /// How many were declared lost.
    pub lost_count: i64,
}
