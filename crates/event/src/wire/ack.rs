//! What the edge says is safe.

use std::fmt::Write as _;

use super::{VERSION, WireError, check_version};
use crate::id::Epoch;
use crate::ledger::{Frontier, MAX_SEQ};
use crate::{Invalid, json};

/// The most islands in an ack; the lowest ones, because those hold the node up.
pub const MAX_ACK_RANGES: usize = 64;

/// The largest ack. The largest that keeps the form is below a fifth of it.
pub const MAX_ACK_BYTES: usize = 16 * 1024;

/// The edge's acknowledgement, published after its commit.
///
/// Its form is checked when it is read: the ranges ascend, neither overlap nor touch, and lie above
/// `acked_seq + 1`. Whether it is believed (its epoch, a regress, a sequence beyond the head) is the
/// node's to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The life of the spool the sequences belong to.
    pub epoch: Epoch,
    /// Every sequence up to here was ingested or declared lost.
    pub acked_seq: u64,
    /// Ranges above it that were too, with a hole before each.
    pub ranges: Vec<(u64, u64)>,
}

impl Ack {
    /// What a frontier says: its lowest islands, at most [`MAX_ACK_RANGES`].
    pub fn of(epoch: Epoch, frontier: &Frontier) -> Ack {
        Ack { epoch, acked_seq: frontier.acked(), ranges: frontier.islands(MAX_ACK_RANGES) }
    }

    /// Reads an ack.
    pub fn parse(body: &[u8]) -> Result<Ack, WireError> {
        if body.len() > MAX_ACK_BYTES {
            return Err(WireError::TooLarge { what: "the ack in bytes", limit: MAX_ACK_BYTES });
        }
        let text = json::utf8("ack", body)?;
        let [v, epoch, acked_seq, ranges] =
            json::document("ack", text, &["v", "epoch", "acked_seq", "ranges"])?;
        check_version(v)?;
        let epoch = json::id("epoch", epoch)?;
        let acked_seq = json::integer("acked_seq", acked_seq, 0, MAX_SEQ)?;
        let elements = match ranges {
            Some(raw) => json::elements("ranges", raw, MAX_ACK_RANGES)?
                .ok_or(WireError::TooLarge { what: "ranges", limit: MAX_ACK_RANGES })?,
            None => Vec::new(),
        };
        let mut ranges = Vec::with_capacity(elements.len());
        let mut below = acked_seq;
        for (index, raw) in elements.into_iter().enumerate() {
            let field = format!("ranges[{index}]");
            const PAIR: &str = "two sequences [from, to]";
            let pair = json::elements(&field, raw, 2)?;
            let Some(&[from, to]) = pair.as_deref() else {
                return Err(Invalid::json(field, raw.get(), PAIR).into());
            };
            // There is a hole between what lies below and this range.
            let lowest = below.saturating_add(2);
            let from = json::integer(&format!("{field}[0]"), Some(from), lowest, MAX_SEQ)?;
            let to = json::integer(&format!("{field}[1]"), Some(to), from, MAX_SEQ)?;
            ranges.push((from, to));
            below = to;
        }
        Ok(Ack { epoch, acked_seq, ranges })
    }

    /// Whether the ack says that a sequence is safe.
    pub fn covers(&self, seq: u64) -> bool {
        seq <= self.acked_seq || self.ranges.iter().any(|&(from, to)| from <= seq && seq <= to)
    }

    /// The highest sequence it speaks of.
    pub fn highest(&self) -> u64 {
        self.ranges.last().map_or(self.acked_seq, |&(_, to)| to)
    }

    /// The ack as JSON.
    pub fn to_json(&self) -> String {
        let (epoch, acked_seq) = (self.epoch, self.acked_seq);
        let mut json = format!(
            "{{\"v\":{VERSION},\"epoch\":\"{epoch}\",\"acked_seq\":{acked_seq},\"ranges\":["
        );
        for (index, (from, to)) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to memory does not fail.
            let _ = write!(json, "{comma}[{from},{to}]");
        }
        json.push_str("]}");
        json
    }
}
