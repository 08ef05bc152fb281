//! From the spool to a message: reading, gaps, what cannot be sent, compression.
//!
//! One source a lane, so that live and backfill do not seek over each other. Memory is bounded by one
//! message and one record.

use super::limits::Plan;
use event::id::Epoch;
use event::wire::{self, BatchWriter, Gap, GapReason, Limits};
use jiff::Timestamp;
use spool::{Item, Reader, Spool};

/// Below this, compression costs more than it saves.
const COMPRESS_FROM_BYTES: usize = 1024;
/// Fast, and already four fifths of what the higher levels save on this kind of text.
const COMPRESSION_LEVEL: i32 = 1;

/// A body that is ready to go.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) body: Vec<u8>,
    /// The last seq it covers, as a record or in a gap.
    pub(crate) to: u64,
    /// Records it declares unsendable.
    pub(crate) unsendable: u64,
}

/// Why no message could be made. About us, never about the edge.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Spool(#[from] spool::Error),
    #[error("compression: {0}")]
    Wire(#[from] wire::WireError),
}

/// Reads the messages of one lane.
pub(crate) struct Source {
    reader: Reader,
    epoch: Epoch,
    /// What was read and did not fit into the last message.
    held: Option<Item>,
}

impl Source {
    pub(crate) fn new(spool: &Spool, epoch: Epoch) -> Source {
        Source { reader: spool.reader(spool.acked() + 1), epoch, held: None }
    }

    /// The message for a plan, or nothing if the spool has nothing to read there.
    pub(crate) fn read(
        &mut self,
        plan: Plan,
        max_bytes: usize,
    ) -> Result<Option<Message>, BatchError> {
        let mut writer = BatchWriter::new(self.epoch);
        let mut to = None;
        let mut unsendable = 0;
        self.go_to(plan.from);
        while to.is_none_or(|to| to < plan.to) && writer.gaps() < Limits::MQTT.gaps {
            let item = match self.held.take() {
                Some(item) => item,
                None => match self.reader.next()? {
                    Some(item) => item,
                    None => break,
                },
            };
            match item {
                Item::Record { seq, written_at_ms, class, bytes } => {
                    let grown = writer.json_bytes() + bytes.len() + BatchWriter::RECORD_OVERHEAD;
                    if seq > plan.to || (!writer.is_empty() && grown > max_bytes) {
                        self.held = Some(Item::Record { seq, written_at_ms, class, bytes });
                        break;
                    }
                    if is_sendable(&bytes) {
                        writer.push_record(seq, &bytes);
                    } else {
                        // It is in the spool and will be unsendable after every restart too, so declaring
                        // it each time it is met is as durable as the record.
                        let at = Timestamp::from_millisecond(written_at_ms).ok();
                        push_gap(&mut writer, seq, seq, at, at, GapReason::Unsendable);
                        unsendable += 1;
                    }
                    to = Some(seq);
                }
                Item::Gap(gap) => {
                    let from = gap.from_seq.max(plan.from);
                    let at = |ms: Option<i64>| Timestamp::from_millisecond(ms?).ok();
                    let (first, last) = (at(gap.first_at_ms), at(gap.last_at_ms));
                    push_gap(&mut writer, from, gap.to_seq, first, last, reason_of(gap.reason));
                    to = Some(gap.to_seq);
                }
            }
        }
        let Some(to) = to.filter(|_| !writer.is_empty()) else {
            return Ok(None);
        };
        let mut body = writer.finish();
        if body.len() >= COMPRESS_FROM_BYTES {
            body = wire::compress(&body, COMPRESSION_LEVEL)?;
        }
        Ok(Some(Message { body, to, unsendable }))
    }

    fn go_to(&mut self, seq: u64) {
        let held_at = match &self.held {
            Some(Item::Record { seq, .. }) => Some(*seq),
            _ => None,
        };
        if held_at != Some(seq) {
            self.held = None;
            if self.reader.position() != seq {
                self.reader.seek(seq);
            }
        }
    }
}

fn push_gap(
    writer: &mut BatchWriter,
    from: u64,
    to: u64,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    reason: GapReason,
) {
    if let Some(gap) = Gap::new(from, to, first_at, last_at, reason) {
        writer.push_gap(&gap);
    }
}

/// Whether a batch can carry the record: an object in UTF-8, not larger than any event may be. The socket lets only whole JSON
/// into the spool and the frame's checksum keeps it so; reading every record as JSON once more would cost a third of the rate.
fn is_sendable(bytes: &[u8]) -> bool {
    bytes.len() <= event::MAX_EVENT_BYTES
        && bytes.first() == Some(&b'{')
        && bytes.last() == Some(&b'}')
        && std::str::from_utf8(bytes).is_ok()
}

/// The spool's reason in the words of the wire.
pub(crate) fn reason_of(reason: spool::GapReason) -> GapReason {
    match reason {
        spool::GapReason::DropOldest => GapReason::DropOldest,
        spool::GapReason::Expired => GapReason::Expired,
        spool::GapReason::DiskFull => GapReason::DiskFull,
        spool::GapReason::Corrupt => GapReason::Corrupt,
        spool::GapReason::Lost => GapReason::Lost,
    }
}
