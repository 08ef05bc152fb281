//! What may go, in which order, and what must be durable before it does.
//!
//! Acked segments go once the cursor that says so is durable. Unacked ones go only by size, age or a full disk, the least
//! precious and oldest first, and only once their tombstone is durable. On a full disk the ballast makes room for both files.
//! An error here never stops appending by itself: it is noted, and the next round tries again.

use std::time::Instant;

use crate::cursor::{CURSOR_FILE, Cursor};
use crate::disk::{Disk, write_atomically};
use crate::error::{Error, is_no_space};
use crate::gaps::{GAPS_FILE, Gap, GapReason, MAX_GAPS};
use crate::scan::{Found, Scanner, to_usize};
use crate::segment::{self, HEADER_BYTES, Summary};
use crate::state::read_footer;
use crate::writer::Writer;

const BALLAST_FILE: &str = "ballast";
/// 2020-01-01. A clock that says less was not set, so an age by it means nothing.
const CLOCK_WAS_SET_MS: i64 = 1_577_836_800_000;

/// Replaces a small file; on a full disk it takes the ballast's room.
pub(crate) fn save(disk: &dyn Disk, name: &'static str, bytes: &[u8]) -> Result<(), Error> {
    let saved = match write_atomically(disk, name, bytes) {
        Err(e) if is_no_space(&e) && disk.remove(BALLAST_FILE).is_ok() => {
            write_atomically(disk, name, bytes)
        }
        saved => saved,
    };
    saved.map_err(|e| Error::io("write", name, e))
}

impl Writer {
    /// One round of housekeeping.
    pub(crate) fn maintain(&mut self, now_ms: i64) {
        let round = [
            self.save_gaps_if_dirty(),
            self.seal_if_idle(),
            self.delete_acked(false).map(drop),
            self.drop_expired(now_ms),
            self.drop_over_limit(0),
            self.restore_ballast().map(drop),
        ];
        for error in round.into_iter().filter_map(Result::err) {
            self.inner.note(&error);
        }
    }

    pub(crate) fn save_on_close(&mut self) {
        let behind = {
            let state = self.inner.state();
            state.acked > state.durable_acked
        };
        let saved = [self.save_gaps_if_dirty(), if behind { self.save_cursor() } else { Ok(()) }];
        for error in saved.into_iter().filter_map(Result::err) {
            self.inner.note(&error);
        }
    }

    /// Makes room for a group: within the spool's limit by retention, above the reserve by nothing but acked segments.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        self.drop_over_limit(bytes)?;
        let reserve = self.inner.config.free_space_reserve;
        if reserve == 0 {
            return Ok(());
        }
        loop {
            let free = self.inner.disk.free_bytes().map_err(|e| Error::io("measure", ".", e))?;
            if free >= reserve.saturating_add(bytes) {
                return Ok(());
            }
            if !self.delete_acked(true)? {
                let why = format!("{free} bytes are free, and {reserve} are reserved");
                return Err(Error::Full { why });
            }
        }
    }

    /// Brings the spool, with `coming` more bytes, within `max_spool_bytes`.
    fn drop_over_limit(&mut self, coming: u64) -> Result<(), Error> {
        let max = self.inner.config.max_spool_bytes;
        loop {
            let bytes = self.inner.state().bytes();
            if bytes.saturating_add(coming) <= max {
                return Ok(());
            }
            if !self.delete_acked(true)? && !self.drop_one(GapReason::DropOldest)? {
                let why = format!("{coming} bytes do not fit max_spool_bytes = {max}");
                return Err(Error::Full { why });
            }
        }
    }

    fn drop_expired(&mut self, now_ms: i64) -> Result<(), Error> {
        let Some(age) = self.inner.config.max_spool_age else {
            return Ok(());
        };
        let oldest_kept = now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let age_is_known = |s: &Summary| s.last_at_ms >= CLOCK_WAS_SET_MS;
        let expired = |s: &Summary| age_is_known(s) && s.last_at_ms < oldest_kept;
        if self.open.as_ref().is_some_and(|open| expired(&open.summary)) {
            self.seal_open()?;
        }
        for base in self.closed() {
            let summary = self.summary_of(base)?;
            if expired(&summary) {
                self.drop_segment(base, summary, GapReason::Expired)?;
            } else if age_is_known(&summary) {
                // Those that follow are younger; they are not even looked at.
                break;
            }
        }
        Ok(())
    }

    /// Drops the least precious, oldest segment. `false`: there is none.
    pub(crate) fn drop_one(&mut self, reason: GapReason) -> Result<bool, Error> {
        let mut closed = self.closed();
        if closed.is_empty() {
            self.seal_open()?;
            closed = self.closed();
        }
        let mut choice: Option<(Summary, u64)> = None;
        for base in closed {
            // A segment that cannot be read goes last: it may hold alarms that a later reader gets out.
            let summary = self.summary_of(base).unwrap_or_else(|error| {
                self.inner.note(&error);
                Summary { highest_class: u8::MAX, ..Summary::default() }
            });
            if choice.is_none_or(|(best, _)| summary.highest_class < best.highest_class) {
                choice = Some((summary, base));
            }
        }
        let Some((summary, base)) = choice else {
            return Ok(false);
        };
        self.drop_segment(base, summary, reason)?;
        Ok(true)
    }

    /// The segments that the writer has done with, oldest first.
    fn closed(&self) -> Vec<u64> {
        let state = self.inner.state();
        state.segments.iter().filter(|(_, s)| s.closed).map(|(base, _)| *base).collect()
    }

    /// Tombstone first, then the file.
    fn drop_segment(
        &mut self,
        base: u64,
        summary: Summary,
        reason: GapReason,
    ) -> Result<(), Error> {
        let holds_acked = {
            let state = self.inner.state();
            base <= state.acked && state.durable_acked < state.acked
        };
        if holds_acked {
            self.save_cursor()?;
        }
        let (gap, bytes) = {
            let state = self.inner.state();
            let gap = Gap {
                from_seq: base.max(state.durable_acked + 1),
                to_seq: state.last_of(base),
                first_at_ms: (summary.records > 0).then_some(summary.first_at_ms),
                last_at_ms: (summary.records > 0).then_some(summary.last_at_ms),
                reason,
            };
            let mut gaps = state.gaps.clone();
            if gap.from_seq <= gap.to_seq && gaps.insert(gap).is_none() {
                return Err(Error::TooManyGaps { max: MAX_GAPS });
            }
            (gap, gaps.encode(self.inner.epoch))
        };
        if gap.from_seq <= gap.to_seq {
            save(self.inner.disk.as_ref(), GAPS_FILE, &bytes)?;
            let mut state = self.inner.state();
            state.bytes_written += bytes.len() as u64;
            if let Some(added) = state.gaps.insert(gap) {
                state.lost_records = state.lost_records.saturating_add(added);
            }
        }
        self.unlink(base)
    }

    /// Drops for a full disk, and until the ballast is back: the records that this makes room for would otherwise take its
    /// place, and the next tombstone would find none. `false`: there is nothing to drop.
    pub(crate) fn drop_for_room(&mut self) -> Result<bool, Error> {
        if !self.drop_one(GapReason::DiskFull)? {
            return Ok(false);
        }
        while !self.restore_ballast()? && !self.closed().is_empty() {
            self.drop_one(GapReason::DiskFull)?;
        }
        Ok(true)
    }

    /// Deletes what is acked and what is wholly in gaps. Returns whether anything went.
    pub(crate) fn delete_acked(&mut self, space_is_needed: bool) -> Result<bool, Error> {
        let due =
            space_is_needed || self.cursor_written.elapsed() >= self.inner.config.cursor_every;
        let behind = {
            let state = self.inner.state();
            state.acked > state.durable_acked
        };
        if behind && due {
            self.save_cursor()?;
        }
        let gone: Vec<u64> = {
            let state = self.inner.state();
            let may_go = |base: u64| {
                let last = state.last_of(base);
                last <= state.durable_acked || (!state.gaps_dirty && state.gaps.covers(base, last))
            };
            let closed = state.segments.iter().filter(|(_, s)| s.closed);
            closed.map(|(base, _)| *base).filter(|base| may_go(*base)).collect()
        };
        for base in &gone {
            self.unlink(*base)?;
        }
        Ok(!gone.is_empty())
    }

    fn unlink(&mut self, base: u64) -> Result<(), Error> {
        let sealed = self.inner.state().segments.get(&base).is_some_and(|s| s.sealed);
        let name = segment::file_name(base, sealed);
        match self.inner.disk.remove(&name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &name, e))
            }
            _ => {
                self.inner.state().segments.remove(&base);
                Ok(())
            }
        }
    }

    fn seal_if_idle(&mut self) -> Result<(), Error> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let idle = open.last_write.elapsed() >= self.inner.config.idle_seal;
        let all_acked = {
            let state = self.inner.state();
            state.acked == state.synced
        };
        // Sealing what is not acked would free nothing, and a slow sampler would make a file for each record.
        if idle && all_acked {
            self.seal_open()?;
        }
        Ok(())
    }

    fn save_cursor(&mut self) -> Result<(), Error> {
        let cursor = {
            let state = self.inner.state();
            Cursor {
                epoch: self.inner.epoch,
                acked: state.acked,
                head: state.synced,
                bytes_written: state.bytes_written,
                lost_records: state.lost_records,
            }
        };
        let bytes = cursor.encode();
        save(self.inner.disk.as_ref(), CURSOR_FILE, &bytes)?;
        self.cursor_written = Instant::now();
        let mut state = self.inner.state();
        state.bytes_written += bytes.len() as u64;
        state.durable_acked = cursor.acked;
        if state.gaps.forget_acked(cursor.acked) {
            state.gaps_dirty = true;
        }
        Ok(())
    }

    fn save_gaps_if_dirty(&mut self) -> Result<(), Error> {
        if self.inner.state().gaps_dirty { self.save_gaps() } else { Ok(()) }
    }

    pub(crate) fn save_gaps(&mut self) -> Result<(), Error> {
        let gaps = self.inner.state().gaps.clone();
        let bytes = gaps.encode(self.inner.epoch);
        save(self.inner.disk.as_ref(), GAPS_FILE, &bytes)?;
        let mut state = self.inner.state();
        state.bytes_written += bytes.len() as u64;
        // A reader may have found another one meanwhile.
        state.gaps_dirty = state.gaps != gaps;
        Ok(())
    }

    /// What a segment holds: remembered, or from its footer, or by reading it.
    fn summary_of(&mut self, base: u64) -> Result<Summary, Error> {
        let (known, sealed, bound) = {
            let state = self.inner.state();
            let segment = state.segments.get(&base);
            let bound = state.last_of(base).saturating_add(1);
            (segment.and_then(|s| s.summary), segment.is_some_and(|s| s.sealed), bound)
        };
        if let Some(summary) = known {
            return Ok(summary);
        }
        let Some(file) = self.inner.open_segment(base, sealed)? else {
            return Ok(Summary::default());
        };
        let failed = |e| Error::io("read", &segment::file_name(base, sealed), e);
        let (footer, len) = read_footer(file.as_ref(), self.inner.epoch, base).map_err(failed)?;
        let mut summary = Summary::default();
        if let Some(footer) = footer {
            summary = footer.summary;
        } else {
            let mut scanner = Scanner::new(file, self.inner.salt(base), base, HEADER_BYTES, len);
            scanner.bound = bound;
            loop {
                match scanner.step(0).map_err(failed)? {
                    Found::Frame(header) => summary.add(header.class, header.written_at_ms),
                    Found::Damage(_) => {}
                    Found::End(_) => break,
                }
            }
        }
        if let Some(segment) = self.inner.state().segments.get_mut(&base) {
            segment.summary = Some(summary);
            segment.last = segment.last.or(footer.map(|f| f.last));
        }
        Ok(summary)
    }

    /// Puts the ballast back when there is room for it. Returns whether it is there.
    pub(crate) fn restore_ballast(&mut self) -> Result<bool, Error> {
        let disk = self.inner.disk.as_ref();
        let bytes = self.inner.config.ballast_bytes();
        let there = disk.open_read(BALLAST_FILE).and_then(|file| file.len());
        if there.is_ok_and(|len| len >= bytes) {
            return Ok(true);
        }
        // On a disk that is still full it would only fail, at the cost of a write each round.
        let free = disk.free_bytes().map_err(|e| Error::io("measure", ".", e))?;
        if free < bytes {
            return Ok(false);
        }
        let made = disk.create(BALLAST_FILE).and_then(|file| {
            file.write_all_at(&vec![0; to_usize(bytes)], 0)?;
            file.sync_data()
        });
        match made {
            Ok(()) => Ok(true),
            Err(e) => {
                let _ = disk.remove(BALLAST_FILE);
                if is_no_space(&e) { Ok(false) } else { Err(Error::io("write", BALLAST_FILE, e)) }
            }
        }
    }
}
