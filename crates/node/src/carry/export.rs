//! Writing the file. Reads the spool only.

use super::{GapBody, GapLine, Header, RecordLine, Trailer, VERSION};
use crate::forward::reason_of;
use event::id::{Epoch, IdError, NodeId};
use event::wire::GapReason;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use spool::{Inspection, Item};
use std::io::{self, Write};

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The spool cannot be read.
    #[error(transparent)]
    Spool(#[from] spool::Error),
    /// The spool's identity is not one.
    #[error("the spool's epoch {0}")]
    Epoch(#[from] IdError),
    /// The file cannot be written.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
    /// There is nothing to export.
    #[error("there is nothing to export between {from} and {to}")]
    Nothing {
        /// The first seq that was asked for.
        from: u64,
        /// The last one.
        to: u64,
    },
}

/// What an export holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// The first seq.
    pub from_seq: u64,
    /// The last seq.
    pub to_seq: u64,
    /// Records.
    pub records: u64,
    /// Gaps.
    pub gaps: u64,
}

/// Writes records and gaps from `from` (default: the first that is not acked) to `to` (default: head). `progress` hears
/// of every seq that is done.
pub fn export(
    spool: &Inspection,
    node_id: NodeId,
    from: Option<u64>,
    to: Option<u64>,
    out: &mut dyn Write,
    mut progress: impl FnMut(u64),
) -> Result<Exported, ExportError> {
    let from = from.unwrap_or(spool.acked() + 1).max(1);
    let to = to.unwrap_or(spool.head()).min(spool.head());
    if from > to {
        return Err(ExportError::Nothing { from, to });
    }
    let epoch = Epoch::from_uuid(spool.epoch())?;
    let at = Timestamp::now();
    let header =
        Header { holdfast_export: VERSION, node_id, epoch, from_seq: from, to_seq: to, at };
    line(out, &header)?;
    let mut done = Exported { from_seq: from, to_seq: to, records: 0, gaps: 0 };
    let mut reader = spool.reader(from);
    while let Some(item) = reader.next()? {
        let last = match item {
            Item::Record { seq, .. } if seq > to => break,
            Item::Record { seq, written_at_ms, bytes, .. } => {
                match serde_json::from_slice::<&RawValue>(&bytes) {
                    Ok(event) => {
                        line(out, &RecordLine { seq, event })?;
                        done.records += 1;
                    }
                    Err(_) => {
                        let at = Timestamp::from_millisecond(written_at_ms).ok();
                        gap(out, (seq, seq), (at, at), GapReason::Unsendable)?;
                        done.gaps += 1;
                    }
                }
                seq
            }
            Item::Gap(found) if found.from_seq > to => break,
            Item::Gap(found) => {
                let at = |ms: Option<i64>| Timestamp::from_millisecond(ms?).ok();
                let times = (at(found.first_at_ms), at(found.last_at_ms));
                let range = (found.from_seq.max(from), found.to_seq.min(to));
                gap(out, range, times, reason_of(found.reason))?;
                done.gaps += 1;
                found.to_seq
            }
        };
        progress(last);
        if last >= to {
            break;
        }
    }
    line(out, &Trailer { end: true, records: done.records, gaps: done.gaps })?;
    Ok(done)
}

fn gap(
    out: &mut dyn Write,
    (from_seq, to_seq): (u64, u64),
    (first_at, last_at): (Option<Timestamp>, Option<Timestamp>),
    reason: GapReason,
) -> Result<(), ExportError> {
    line(out, &GapLine { gap: GapBody { from_seq, to_seq, first_at, last_at, reason } })
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), ExportError> {
    let mut json = serde_json::to_vec(value).map_err(io::Error::from)?;
    json.push(b'\n');
    out.write_all(&json)?;
    Ok(())
}
