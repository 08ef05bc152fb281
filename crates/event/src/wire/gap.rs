//! A range of sequences that a node gave up.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::id::{Epoch, NodeId};
use crate::ledger::{GapReason, MAX_SEQ, Tombstone};
use crate::{Invalid, json, timestamp};

/// A gap, as it travels in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
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

impl Gap {
    /// A gap from its range; the count follows from it. `None` if the range is not one of sequences.
    pub fn new(
        from_seq: u64,
        to_seq: u64,
        first_at: Option<Timestamp>,
        last_at: Option<Timestamp>,
        reason: GapReason,
    ) -> Option<Gap> {
        let sound = 1 <= from_seq && from_seq <= to_seq && to_seq <= MAX_SEQ;
        sound.then(|| Gap {
            from_seq,
            to_seq,
            count: to_seq - from_seq + 1,
            first_at,
            last_at,
            reason,
        })
    }

    /// The note that a tier keeps of it.
    pub fn tombstone(&self, stream: NodeId, epoch: Epoch) -> Tombstone {
        Tombstone {
            stream,
            epoch,
            from_seq: self.from_seq,
            to_seq: self.to_seq,
            count: self.count,
            first_at: self.first_at,
            last_at: self.last_at,
            reason: self.reason,
        }
    }

    pub(super) fn read(path: &str, raw: &RawValue) -> Result<Gap, Invalid> {
        let [from, to, count, first_at, last_at, reason] = json::pick(
            path,
            raw,
            &["from_seq", "to_seq", "count", "first_at", "last_at", "reason"],
        )?;
        let at = |name: &str, raw: Option<&RawValue>| -> Result<Option<Timestamp>, Invalid> {
            let field = format!("{path}.{name}");
            let Some(raw) = raw else { return Ok(None) };
            let text = json::text(&field, Some(raw), "an RFC 3339 time, or null")?;
            timestamp::rfc3339(&field, &text).map(Some)
        };
        let from_seq = json::integer(&format!("{path}.from_seq"), from, 1, MAX_SEQ)?;
        let to_seq = json::integer(&format!("{path}.to_seq"), to, from_seq, MAX_SEQ)?;
        let size = to_seq - from_seq + 1;
        let field = format!("{path}.reason");
        let reason = json::text(&field, reason, GapReason::EXPECTED)?;
        Ok(Gap {
            from_seq,
            to_seq,
            count: json::integer(&format!("{path}.count"), count, size, size)?,
            first_at: at("first_at", first_at)?,
            last_at: at("last_at", last_at)?,
            reason: reason.parse().map_err(|err| Invalid { field, ..err })?,
        })
    }
}
