//! Carrying a card's records by hand: a file that a person takes from a node that cannot reach the edge to a machine that can.
//!
//! JSON, one object a line, optionally as one zstd stream: a header, then records and gaps in ascending order with their epoch's
//! sequences, then a trailer with the counts, so that a file that was cut short is noticed. Reading and writing are
//! streams; memory does not follow the size.

mod export;
mod import;

pub use export::{ExportError, Exported, export};
pub use import::{ImportError, Imported, Progress, import};

use event::id::{Epoch, NodeId};
use event::wire::GapReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the file's form.
const VERSION: u64 = 1;
/// The longest line that is read: the largest event and what stands around it.
const MAX_LINE_BYTES: usize = event::MAX_EVENT_BYTES + 4096;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the form.
    pub holdfast_export: u64,
    /// Whose records.
    pub node_id: NodeId,
    /// Of which life of its spool.
    pub epoch: Epoch,
    /// The first seq.
    pub from_seq: u64,
    /// The last seq.
    pub to_seq: u64,
    /// When it was written.
    pub at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordLine<'a> {
    seq: u64,
    #[serde(borrow)]
    event: &'a RawValue,
}

#[derive(Debug, Serialize, Deserialize)]
struct GapLine {
    gap: GapBody,
}

#[derive(Debug, Serialize, Deserialize)]
struct GapBody {
    from_seq: u64,
    to_seq: u64,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    reason: GapReason,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Trailer {
    end: bool,
    records: u64,
    gaps: u64,
}
