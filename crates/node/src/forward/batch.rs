//! From the spool to a message: reading, gaps, what cannot be sent, compression.
//!
//! One source a lane, so that live and backfill do not seek over each other. Memory is bounded by one
//! message and the reader's window.

use super::limits::Plan;
use event::id::Epoch;
use event::wire::{BatchWriter, Compressor, Gap, GapReason, Limits, WireError};
use jiff::Timestamp;
use spool::{Reader, Seen, Spool};

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
    Wire(#[from] WireError),
}

/// Reads the messages of one lane.
pub(crate) struct Source {
    reader: Reader,
    epoch: Epoch,
    /// Made with the first message that needs it.
    compressor: Option<Compressor>,
    /// The bytes of the last message before compression: the next one is likely to be as large.
    likely_bytes: usize,
}

impl Source {
    pub(crate) fn new(spool: &Spool, epoch: Epoch) -> Source {
        let reader = spool.reader(spool.acked() + 1);
        Source { reader, epoch, compressor: None, likely_bytes: 0 }
    }

    /// The message for a plan, or nothing if the spool has nothing to read there.
    pub(crate) fn read(
        &mut self,
        plan: Plan,
        max_bytes: usize,
    ) -> Result<Option<Message>, BatchError> {
        let mut draft = Draft {
            writer: BatchWriter::with_capacity(self.epoch, self.likely_bytes),
            plan,
            max_bytes,
            next: plan.from,
            to: None,
            unsendable: 0,
        };
        if self.reader.position() != plan.from {
            self.reader.seek(plan.from);
        }
        while draft.has_room() && self.reader.offer(|seen| draft.take(seen))? {}
        // What the reader passed over on its way to where it stands now.
        if draft.has_room() {
            draft.declare_deleted(self.reader.position().min(plan.to.saturating_add(1)));
        }
        let Some(to) = draft.to.filter(|_| !draft.writer.is_empty()) else {
            return Ok(None);
        };
        let mut body = draft.writer.finish();
        self.likely_bytes = body.len();
        if body.len() >= COMPRESS_FROM_BYTES {
            let compressor = match &mut self.compressor {
                Some(compressor) => compressor,
                none => none.insert(Compressor::new(COMPRESSION_LEVEL)?),
            };
            body = compressor.compress(&body)?;
        }
        Ok(Some(Message { body, to, unsendable: draft.unsendable }))
    }
}

/// A message that is being put together.
struct Draft {
    writer: BatchWriter,
    plan: Plan,
    max_bytes: usize,
    /// The first seq that it does not cover yet.
    next: u64,
    /// The last seq it covers so far.
    to: Option<u64>,
    unsendable: u64,
}

impl Draft {
    fn has_room(&self) -> bool {
        self.to.is_none_or(|to| to < self.plan.to) && self.writer.gaps() < Limits::MQTT.gaps
    }

    /// Returns whether it fits.
    fn take(&mut self, seen: Seen<'_>) -> bool {
        match seen {
            Seen::Record { seq, written_at_ms, bytes, .. } => {
                let grown = self.writer.json_bytes() + bytes.len() + BatchWriter::RECORD_OVERHEAD;
                if seq > self.plan.to || (!self.writer.is_empty() && grown > self.max_bytes) {
                    return false;
                }
                self.declare_deleted(seq);
                if is_sendable(bytes) {
                    self.writer.push_record(seq, bytes);
                } else {
                    // It is in the spool and will be unsendable after every restart too, so declaring
                    // it each time it is met is as durable as the record.
                    let at = Timestamp::from_millisecond(written_at_ms).ok();
                    self.push_gap(seq, seq, at, at, GapReason::Unsendable);
                    self.unsendable += 1;
                }
                self.cover(seq);
            }
            Seen::Gap(gap) => {
                let from = gap.from_seq.max(self.plan.from);
                self.declare_deleted(from);
                let at = |ms: Option<i64>| Timestamp::from_millisecond(ms?).ok();
                let (first, last) = (at(gap.first_at_ms), at(gap.last_at_ms));
                self.push_gap(from, gap.to_seq, first, last, reason_of(gap.reason));
                self.cover(gap.to_seq);
            }
        }
        true
    }

    fn cover(&mut self, to: u64) {
        self.to = Some(to);
        self.next = to.saturating_add(1);
    }

    /// A reader passes over nothing but what was acked and is gone, so a hole before `seq` is that: the edge has asked
    /// for it again, and must hear that it will not come.
    fn declare_deleted(&mut self, seq: u64) {
        if self.next < seq {
            self.push_gap(self.next, seq - 1, None, None, GapReason::DeletedAfterAck);
            self.cover(seq - 1);
        }
    }

    fn push_gap(
        &mut self,
        from: u64,
        to: u64,
        first_at: Option<Timestamp>,
        last_at: Option<Timestamp>,
        reason: GapReason,
    ) {
        if let Some(gap) = Gap::new(from, to, first_at, last_at, reason) {
            self.writer.push_gap(&gap);
        }
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
