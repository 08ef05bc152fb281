//! What an operator may turn, and the values that cannot work.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::frame::MAX_PAYLOAD_BYTES;

/// When a record counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Every group of records is synced before its callers are told. Nothing acknowledged is lost in a power cut.
    EveryBatch,
    /// Callers are told as soon as the bytes are handed to the kernel, and a sync follows at most this much later.
    ///
    /// **This is a window of possible loss.** A power cut loses every record that was acknowledged within it, and
    /// their sequences are given again. Readers still see synced records only, so an uplink is never ahead of the disk.
    Interval(Duration),
}

/// What to do when the disk has no room, or less than the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// Refuse new records with [`Error::Full`] until there is room.
    Backpressure,
    /// Drop the least precious, oldest segment with a durable tombstone (`disk_full`), and go on.
    DropOldest,
}

/// How a spool behaves. [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The spool's folder. Made if it is not there.
    pub dir: PathBuf,
    /// A segment is sealed at about this size. At most a quarter of `max_spool_bytes` is used.
    pub segment_bytes: u64,
    /// The largest record.
    pub max_record_bytes: u32,
    /// Retention: above this size the oldest segments are dropped, with a tombstone (`drop_oldest`).
    pub max_spool_bytes: u64,
    /// Retention: a segment whose last record is older than this is dropped, with a tombstone (`expired`).
    pub max_spool_age: Option<Duration>,
    /// Space on the file system that the spool leaves to others.
    pub free_space_reserve: u64,
    /// An open segment that is fully acked and has been idle this long is sealed, so that it can be deleted.
    pub idle_seal: Duration,
    /// A group, which is one sync, takes no further submission that would bring it above this many payload bytes.
    pub group_bytes: usize,
    /// When a record counts as written.
    pub sync: SyncPolicy,
    /// What to do when the disk is full.
    pub on_full: OnFull,
    /// The cursor is written at most this often, unless space is needed.
    pub cursor_every: Duration,
}

impl Config {
    /// The defaults, for a node on a microSD card.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            segment_bytes: 16 << 20,
            max_record_bytes: 1 << 20,
            max_spool_bytes: 8 << 30,
            max_spool_age: None,
            free_space_reserve: 64 << 20,
            idle_seal: Duration::from_secs(60),
            group_bytes: 1 << 20,
            sync: SyncPolicy::EveryBatch,
            on_full: OnFull::Backpressure,
            cursor_every: Duration::from_secs(10),
        }
    }

    /// Refuses a value that cannot work, naming it.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |key, value: &dyn std::fmt::Display, problem| {
            Err(Error::Config { key, value: value.to_string(), problem })
        };
        if self.max_record_bytes == 0 || self.max_record_bytes > MAX_PAYLOAD_BYTES {
            return refuse(
                "max_record_bytes",
                &self.max_record_bytes,
                "it must be between 1 and 16777216 (16 MiB)",
            );
        }
        if self.segment_bytes < 1024 {
            return refuse("segment_bytes", &self.segment_bytes, "it must be at least 1024");
        }
        if self.max_spool_bytes < 4096 {
            return refuse("max_spool_bytes", &self.max_spool_bytes, "it must be at least 4096");
        }
        if self.sync == SyncPolicy::Interval(Duration::ZERO) {
            return refuse("sync", &"interval of 0", "say every batch, or an interval above 0");
        }
        Ok(())
    }

    /// The size at which a segment is sealed: small enough that dropping one does not empty the spool.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.segment_bytes.min(self.max_spool_bytes / 4)
    }

    /// Room held back for `gaps` and `cursor`: they are small when segments are small.
    pub(crate) fn ballast_bytes(&self) -> u64 {
        (self.segment_bytes / 4).clamp(4 << 10, 256 << 10)
    }
}
