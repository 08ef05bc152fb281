//! What was given up, and why.

use crate::spelling::spelled;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{Epoch, NodeId};

/// A durable note that a range of a stream was given up. It is written before the data goes, and is
/// shipped downstream, so that a chart shows a known gap and not a blank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool the sequences belong to.
    pub epoch: Epoch,
    /// The first sequence.
    pub from_seq: u64,
    /// The last sequence.
    pub to_seq: u64,
    /// How many sequences: `to_seq - from_seq + 1`.
    pub count: u64,
    /// When the first record was written, where that is known.
    pub first_at: Option<Timestamp>,
    /// When the last record was written, where that is known.
    pub last_at: Option<Timestamp>,
    /// Why it was given up.
    pub reason: GapReason,
}

/// Why a range was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The size limit: the oldest went first.
    DropOldest,
    /// The age limit.
    Expired,
    /// No space was left.
    DiskFull,
    /// A damaged frame.
    Corrupt,
    /// A segment that is missing.
    Lost,
    /// A record that no batch can carry.
    Unsendable,
    /// The edge had acknowledged it and the node has deleted it; the edge has asked for it again.
    DeletedAfterAck,
}

impl GapReason {
    /// Every reason.
    pub const ALL: [GapReason; 7] = [
        GapReason::DropOldest,
        GapReason::Expired,
        GapReason::DiskFull,
        GapReason::Corrupt,
        GapReason::Lost,
        GapReason::Unsendable,
        GapReason::DeletedAfterAck,
    ];

    pub(crate) const EXPECTED: &'static str =
        "one of drop_oldest, expired, disk_full, corrupt, lost, unsendable, deleted_after_ack";

    /// The reason as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            GapReason::DropOldest => "drop_oldest",
            GapReason::Expired => "expired",
            GapReason::DiskFull => "disk_full",
            GapReason::Corrupt => "corrupt",
            GapReason::Lost => "lost",
            GapReason::Unsendable => "unsendable",
            GapReason::DeletedAfterAck => "deleted_after_ack",
        }
    }
}

spelled!(GapReason, "reason");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_one_spelling() {
        for reason in GapReason::ALL {
            assert_eq!(reason.as_str().parse::<GapReason>(), Ok(reason));
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
            assert!(GapReason::EXPECTED.contains(reason.as_str()));
        }
        assert!("dropped".parse::<GapReason>().is_err());
    }
}
