//! What can go wrong, said so that the caller can decide.
//!
//! An [`Error`] is about the record (refuse it), about the destination disk ([`Error::is_full`]: wait), or about
//! the folder (stop). It is `Clone`, because one failed sync answers every caller of its group.

use std::io;
use std::sync::Arc;

/// Why the spool could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a file of the spool.
    #[error("spool: cannot {op} {file}: {source}")]
    Io {
        /// What was being done, as a verb.
        op: &'static str,
        /// The file's name within the spool's folder.
        file: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Another writer holds the folder.
    #[error("spool: the folder {dir} is in use by another writer")]
    Locked {
        /// The spool's folder.
        dir: String,
    },
    /// One record is larger than the configuration allows.
    #[error("spool: a record of {len} bytes is over the limit of {max} (max_record_bytes)")]
    RecordTooLarge {
        /// The record's size.
        len: usize,
        /// The configured limit.
        max: u32,
    },
    /// A batch has more bytes than the queue may hold.
    #[error("spool: a batch of {len} bytes is over the limit of {max}; split it")]
    BatchTooLarge {
        /// The batch's size.
        len: usize,
        /// The queue's bound.
        max: usize,
    },
    /// A batch without a record has no sequence to answer with.
    #[error("spool: a batch must have at least one record")]
    EmptyBatch,
    /// The disk, or what the spool may use of it, is full. Try again later: it resumes by itself.
    #[error("spool: full: {why}")]
    Full {
        /// Which limit was met.
        why: String,
    },
    /// The queue to the writer is full at this moment.
    #[error("spool: the queue to the disk is full")]
    Busy,
    /// The spool is being closed.
    #[error("spool: closed")]
    Closed,
    /// An ack names a sequence that this spool has not reached.
    #[error("spool: ack of {seq} is beyond the head {head}")]
    AckBeyondHead {
        /// The sequence in the ack.
        seq: u64,
        /// The highest synced sequence.
        head: u64,
    },
    /// A configured value cannot work.
    #[error("spool: {key} = {value} cannot work: {problem}")]
    Config {
        /// The field of [`crate::Config`].
        key: &'static str,
        /// Its value.
        value: String,
        /// Why not.
        problem: &'static str,
    },
    /// There are segments, but their epoch is damaged everywhere it was kept.
    #[error(
        "spool: {segments} segments are here, but the epoch is damaged in every place it is kept; \
         move the folder away and look at it with `spool inspect`"
    )]
    NoIdentity {
        /// How many segments were found.
        segments: usize,
    },
    /// So many tombstones are outstanding that no further one can be kept.
    #[error("spool: {max} gaps are outstanding; nothing more is dropped until some are acked")]
    TooManyGaps {
        /// The bound.
        max: usize,
    },
}

impl Error {
    pub(crate) fn io(op: &'static str, file: &str, source: io::Error) -> Self {
        Self::Io { op, file: file.to_owned(), source: Arc::new(source) }
    }

    /// True when the same call may succeed later without anybody's doing: space may come back, the queue will drain.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Busy | Self::TooManyGaps { .. } => true,
            Self::Io { source, .. } => is_no_space(source),
            _ => false,
        }
    }
}

/// The two ways in which a file system says that there is no room.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
