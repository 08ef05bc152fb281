//! What all threads of a spool share: the table of segments, the gaps, and the watermarks.
//!
//! The watermarks have one meaning each. `synced`: every sequence up to here is durable or in a gap; readers see nothing
//! above it. `acked`: downstream has everything up to here. `durable_acked`: the cursor on disk says so, and only it allows
//! a segment to be deleted. Always `durable_acked <= acked <= synced`.
//!
//! The lock on [`State`] is never held over I/O.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::config::Config;
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::Error;
use crate::frame::Salt;
use crate::gaps::{Gap, GapReason, GapSet};
use crate::segment::{self, FOOTER_BYTES, Footer, Summary};

/// Milliseconds since 1970, as the machine believes.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A hook that is told the new head after each sync.
pub type SyncedHook = Box<dyn Fn(u64) + Send + Sync>;

/// What is known of one segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    /// Whether the file is called `.seg`.
    pub(crate) sealed: bool,
    /// Whether it may be deleted or dropped: the writer has done with it.
    pub(crate) closed: bool,
    pub(crate) file_len: u64,
    /// Where the synced frames end. Known for what this process wrote; otherwise the footer says it.
    pub(crate) data_end: Option<u64>,
    pub(crate) last: Option<u64>,
    pub(crate) summary: Option<Summary>,
    /// Somebody else deleted the file.
    pub(crate) vanished: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) segments: BTreeMap<u64, Segment>,
    pub(crate) gaps: GapSet,
    /// Whether `gaps` has something that its file has not.
    pub(crate) gaps_dirty: bool,
    pub(crate) synced: u64,
    pub(crate) acked: u64,
    pub(crate) durable_acked: u64,
    pub(crate) bytes_written: u64,
    pub(crate) lost_records: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) closed: bool,
}

/// What a reader at some sequence should do.
#[derive(Debug)]
pub(crate) enum Plan {
    AtHead,
    /// Everything below this is acked and gone.
    Skip(u64),
    Gap(Gap),
    Read(Place),
}

/// Where in which segment to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) base: u64,
    pub(crate) sealed: bool,
    /// The first sequence that is not of this segment, or not synced.
    pub(crate) bound: u64,
    pub(crate) data_end: Option<u64>,
    pub(crate) last: Option<u64>,
    /// The first sequence that a known gap takes, or `u64::MAX`.
    pub(crate) next_gap: u64,
}

impl State {
    pub(crate) fn plan(&self, next: u64) -> Plan {
        if next > self.synced {
            return Plan::AtHead;
        }
        let known = self.gaps.at_or_after(next);
        if let Some(gap) = known.filter(|gap| gap.from_seq <= next) {
            let to_seq = gap.to_seq.min(self.synced);
            return Plan::Gap(Gap { from_seq: next, to_seq, ..gap });
        }
        let next_gap = known.map_or(u64::MAX, |gap| gap.from_seq);
        let holder = self.segments.range(..=next).next_back();
        let after = self.segments.range(next.saturating_add(1)..).next().map(|(base, _)| *base);
        let bound = after.unwrap_or(u64::MAX).min(self.synced.saturating_add(1));
        match holder.filter(|(_, s)| !s.vanished && s.last.is_none_or(|last| next <= last)) {
            Some((base, segment)) => Plan::Read(Place {
                base: *base,
                sealed: segment.sealed,
                bound,
                data_end: segment.data_end,
                last: segment.last,
                next_gap,
            }),
            None if next <= self.acked => Plan::Skip(bound.min(self.acked + 1).min(next_gap)),
            None => Plan::Gap(Gap::untimed(next, bound.min(next_gap) - 1, GapReason::Lost)),
        }
    }

    /// Remembers a gap that was found, unless nobody needs to know any more.
    pub(crate) fn found(&mut self, gap: Gap) {
        if gap.to_seq <= self.acked {
            return;
        }
        if let Some(added @ 1..) = self.gaps.insert(gap) {
            self.lost_records = self.lost_records.saturating_add(added);
            self.gaps_dirty = true;
        }
    }

    /// The last sequence that can be in the segment at `base`.
    pub(crate) fn last_of(&self, base: u64) -> u64 {
        let known = self.segments.get(&base).and_then(|segment| segment.last);
        known.unwrap_or_else(|| {
            let after = self.segments.range(base.saturating_add(1)..).next();
            after.map_or(self.synced, |(next, _)| next - 1)
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.file_len).sum()
    }

    /// The lowest sequence that a segment may still hold; one past the head if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.segments.keys().next().copied().unwrap_or(self.synced + 1)
    }
}

/// The shared heart of a spool.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) config: Config,
    pub(crate) epoch: Uuid,
    pub(crate) clock: Clock,
    pub(crate) state: Mutex<State>,
    /// Signalled when `synced` moves and when the spool closes.
    pub(crate) moved: Condvar,
    pub(crate) hooks: Mutex<Vec<SyncedHook>>,
}

impl Inner {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn salt(&self, base: u64) -> Salt {
        Salt::new(self.epoch, base)
    }

    pub(crate) fn note(&self, error: &Error) {
        self.state().last_error = Some(error.to_string());
    }

    /// Opens a segment for reading under whichever of its two names it has at this moment. `None`: it has none.
    pub(crate) fn open_segment(
        &self,
        base: u64,
        sealed: bool,
    ) -> Result<Option<Box<dyn DiskFile>>, Error> {
        for sealed in [sealed, !sealed, sealed] {
            let name = segment::file_name(base, sealed);
            match self.disk.open_read(&name) {
                Ok(file) => return Ok(Some(file)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("open", &name, e)),
            }
        }
        Ok(None)
    }
}

/// The footer at the end of `file`, if it is whole and of this spool, and the length of the file.
pub(crate) fn read_footer(
    file: &dyn DiskFile,
    epoch: Uuid,
    base: u64,
) -> std::io::Result<(Option<Footer>, u64)> {
    let len = file.len()?;
    let Some(at) = len.checked_sub(FOOTER_BYTES as u64) else {
        return Ok((None, len));
    };
    let mut bytes = [0; FOOTER_BYTES];
    read_full(file, &mut bytes, at)?;
    Ok((Footer::decode(&bytes, base, len).filter(|footer| footer.epoch == epoch), len))
}

/// A panic while the lock was held is in a caller's hook at worst; the state itself is changed in small whole steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
