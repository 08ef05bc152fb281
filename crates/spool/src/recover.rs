//! Opening a folder for writing: repair what a crash or a failing card left, then say what was done.
//!
//! The rules are in `docs/spec/spool-format.md` under "Recovery". Nothing is served before it is synced, and nothing is
//! appended before the gaps that were found are durable. Any I/O error stops the opening; a full disk does not.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::cursor::{CURSOR_FILE, Cursor, EPOCH_FILE, encode_epoch};
use crate::disk::{Disk, DiskFile};
use crate::error::Error;
use crate::gaps::{GAPS_FILE, Gap};
use crate::retention::save;
use crate::scan::Tail;
use crate::segment::{self, Footer, HEADER_BYTES, Summary};
use crate::state::{Clock, Segment, State};
use crate::survey::{LastSegment, Survey, survey};

/// What opening the spool found and did.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// The head was unknown, so the spool got a new identity. See the format's page.
    pub epoch_renewed: bool,
    /// Bytes of an unfinished write that were cut off.
    pub truncated_bytes: u64,
    /// Gaps that were not known before.
    pub new_gaps: Vec<Gap>,
    /// How many segments there are.
    pub segments: usize,
    /// Oddities worth telling a person.
    pub notes: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// The segment that is being written.
pub(crate) struct OpenSegment {
    pub(crate) base: u64,
    pub(crate) file: Box<dyn DiskFile>,
    /// Where the next frame goes: all before it is written.
    pub(crate) len: u64,
    pub(crate) summary: Summary,
    pub(crate) last_write: Instant,
}

pub(crate) struct Recovered {
    pub(crate) epoch: Uuid,
    pub(crate) state: State,
    pub(crate) open: Option<OpenSegment>,
    pub(crate) report: Recovery,
}

pub(crate) fn recover(disk: &dyn Disk, clock: &Clock) -> Result<Recovered, Error> {
    let started = Instant::now();
    let mut found = survey(disk)?;
    for name in std::mem::take(&mut found.leftovers) {
        disk.remove(&name).map_err(|e| Error::io("remove", &name, e))?;
    }
    if found.epoch.is_none() && !found.segments.is_empty() {
        return Err(Error::NoIdentity { segments: found.segments.len() });
    }
    let known = found.epoch.filter(|_| !found.segments.is_empty() || found.cursor.is_some());
    let Some(epoch) = known else {
        return begin(disk, &found, started);
    };
    if !found.epoch_file_is_whole {
        save(disk, EPOCH_FILE, &encode_epoch(epoch))?;
    }
    let mut state = found.state();
    let mut report = Recovery { notes: found.notes.clone(), ..Recovery::default() };
    report.new_gaps = state
        .gaps
        .as_slice()
        .iter()
        .filter(|gap| !found.gaps.as_slice().contains(gap))
        .copied()
        .collect();
    let open = settle_last(disk, epoch, &found, &mut state, &mut report, clock)?;
    rename_interrupted(disk, &mut state, open.as_ref().map(|o| o.base))?;
    if state.gaps_dirty {
        save(disk, GAPS_FILE, &state.gaps.encode(epoch))?;
        state.gaps_dirty = false;
    }
    if found.cursor.is_none() {
        let cursor = Cursor {
            epoch,
            acked: state.acked,
            head: state.synced,
            bytes_written: state.bytes_written,
            lost_records: state.lost_records,
        };
        save(disk, CURSOR_FILE, &cursor.encode())?;
    }
    report.segments = state.segments.len();
    report.took = started.elapsed();
    Ok(Recovered { epoch, state, open, report })
}

/// A new spool, or one whose head nobody knows: it gets a new identity, so that no sequence is given twice.
fn begin(disk: &dyn Disk, found: &Survey, started: Instant) -> Result<Recovered, Error> {
    let epoch = Uuid::now_v7();
    save(disk, GAPS_FILE, &State::default().gaps.encode(epoch))?;
    save(disk, CURSOR_FILE, &Cursor { epoch, ..Cursor::default() }.encode())?;
    save(disk, EPOCH_FILE, &encode_epoch(epoch))?;
    let report = Recovery {
        epoch_renewed: found.epoch_file_is_whole || !found.notes.is_empty(),
        notes: found.notes.clone(),
        took: started.elapsed(),
        ..Recovery::default()
    };
    Ok(Recovered { epoch, state: State::default(), open: None, report })
}

/// Truncates, syncs, and then either goes on with the last segment or seals it.
fn settle_last(
    disk: &dyn Disk,
    epoch: Uuid,
    found: &Survey,
    state: &mut State,
    report: &mut Recovery,
    clock: &Clock,
) -> Result<Option<OpenSegment>, Error> {
    let Some(last) = &found.last else {
        return Ok(None);
    };
    let base = last.base;
    if state.segments.get(&base).is_some_and(|segment| segment.sealed) {
        return Ok(None);
    }
    let name = segment::file_name(base, false);
    if last.is_empty() && state.synced + 1 != base {
        // Nothing was ever acknowledged in it, and the head has gone beyond it: its name is of no use.
        disk.remove(&name).map_err(|e| Error::io("remove", &name, e))?;
        state.segments.remove(&base);
        return Ok(None);
    }
    let file = disk.open_write(&name).map_err(|e| Error::io("open", &name, e))?;
    let len = mend(file.as_ref(), epoch, last, report, clock)
        .map_err(|e| Error::io("repair", &name, e))?;
    let goes_on = last.footer.is_none() && !last.ends_in_damage && last.next == state.synced + 1;
    let Some(segment) = state.segments.get_mut(&base) else {
        return Ok(None);
    };
    segment.file_len = len;
    if goes_on {
        *segment = Segment {
            sealed: false,
            closed: false,
            file_len: len,
            data_end: Some(len),
            ..Segment::default()
        };
        let summary = last.summary;
        return Ok(Some(OpenSegment { base, file, len, summary, last_write: Instant::now() }));
    }
    if last.footer.is_none() {
        let footer =
            Footer { epoch, base, last: last.next - 1, data_len: len, summary: last.summary };
        // A footer only saves a scan, so a disk that cannot take it does not stop the opening.
        let written = file.write_all_at(&footer.encode(), len).and_then(|()| file.sync_data());
        match written {
            Ok(()) => segment.file_len = len + segment::FOOTER_BYTES as u64,
            Err(_) => file.set_len(len).map_err(|e| Error::io("truncate", &name, e))?,
        }
    }
    Ok(None)
}

/// Cuts off what is torn and makes durable what is left. Returns the length.
fn mend(
    file: &dyn DiskFile,
    epoch: Uuid,
    last: &LastSegment,
    report: &mut Recovery,
    clock: &Clock,
) -> std::io::Result<u64> {
    let mut len = last.file_len;
    if last.footer.is_none() && last.tail != Tail::Junk {
        let keep = if last.ends_in_damage { last.file_len } else { last.good_end };
        if last.file_len > keep {
            report.truncated_bytes = last.file_len - keep;
            file.set_len(keep)?;
        }
        len = keep;
    }
    if !last.header_is_whole {
        file.write_all_at(&segment::encode_header(epoch, last.base, clock()), 0)?;
        len = len.max(HEADER_BYTES);
    }
    file.sync_data()?;
    Ok(len)
}

/// Gives every `.open` that is not written to any more its sealed name.
fn rename_interrupted(disk: &dyn Disk, state: &mut State, open: Option<u64>) -> Result<(), Error> {
    let mut renamed = false;
    for (base, segment) in &mut state.segments {
        if segment.sealed || Some(*base) == open {
            continue;
        }
        let name = segment::file_name(*base, false);
        disk.rename(&name, &segment::file_name(*base, true))
            .map_err(|e| Error::io("rename", &name, e))?;
        segment.sealed = true;
        renamed = true;
    }
    if renamed {
        disk.sync_dir().map_err(|e| Error::io("sync", ".", e))?;
    }
    Ok(())
}
