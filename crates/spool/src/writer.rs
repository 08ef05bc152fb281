//! The one thread that writes: groups of records, seals, and (in `retention`) everything that is deleted.
//!
//! A group is one write and one fdatasync; its callers are told after that. A failed write is taken back to the known length, a
//! failed sync abandons the file for good: the kernel may have dropped the pages and would report success the next time. In
//! either case the callers get the error, no sequence that was acknowledged or read is given again, and the next group tries anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{OnFull, SyncPolicy};
use crate::error::{Error, is_no_space};
use crate::frame;
use crate::gaps::{Gap, GapReason};
use crate::queue::{Job, Queue, Work};
use crate::recover::OpenSegment;
use crate::segment::{self, Footer, HEADER_BYTES, Summary};
use crate::state::{Inner, Segment, lock};

/// The group buffer is kept between groups up to this size; one large group does not hold its memory for ever.
const BUFFER_KEPT_BYTES: usize = 2 << 20;

pub(crate) struct Writer {
    pub(crate) inner: Arc<Inner>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) open: Option<OpenSegment>,
    /// The highest sequence that was given. Above `synced` only under [`SyncPolicy::Interval`].
    written: u64,
    /// Since when something is written and not synced.
    dirty_since: Option<Instant>,
    /// A gap of acknowledged records that must be durable before anything else is acknowledged.
    gap_owed: bool,
    /// Where the frames of several jobs come together.
    buffer: Vec<u8>,
    pub(crate) cursor_written: Instant,
    /// Held as long as this thread may write.
    _lock: Box<dyn Send + Sync>,
}

/// Leaves nobody waiting if the thread ends by a panic in a caller's hook.
struct CloseOnExit(Arc<Inner>, Arc<Queue>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        self.1.close_and_refuse();
        self.0.state().closed = true;
        self.0.moved.notify_all();
    }
}

impl Writer {
    pub(crate) fn new(
        inner: Arc<Inner>,
        queue: Arc<Queue>,
        open: Option<OpenSegment>,
        lock: Box<dyn Send + Sync>,
    ) -> Self {
        let written = inner.state().synced;
        Self {
            inner,
            queue,
            open,
            written,
            dirty_since: None,
            gap_owed: false,
            buffer: Vec::new(),
            cursor_written: Instant::now(),
            _lock: lock,
        }
    }

    pub(crate) fn run(mut self) {
        let _close = CloseOnExit(self.inner.clone(), self.queue.clone());
        let config = &self.inner.config;
        let pause = config.cursor_every.min(config.idle_seal).min(Duration::from_secs(5));
        let pause = pause.max(Duration::from_millis(50));
        let mut next_round = Instant::now() + pause;
        loop {
            let sync_at = self.sync_due();
            let until = sync_at.map_or(next_round, |at| at.min(next_round));
            match self.queue.take(until, self.inner.config.group_bytes) {
                Work::Group(jobs) => self.commit(jobs),
                Work::Maintain(now_ms, done) => {
                    self.maintain(now_ms);
                    let _ = done.send(());
                }
                Work::DeadlinePassed => {}
                Work::Closed => break,
            }
            if self.sync_due().is_some_and(|at| at <= Instant::now()) {
                self.sync_noted();
            }
            if next_round <= Instant::now() {
                self.maintain((self.inner.clock)());
                next_round = Instant::now() + pause;
            }
        }
        self.sync_noted();
        self.save_on_close();
    }

    fn sync_due(&self) -> Option<Instant> {
        match self.inner.config.sync {
            SyncPolicy::EveryBatch => None,
            SyncPolicy::Interval(every) => self.dirty_since.map(|since| since + every),
        }
    }

    fn commit(&mut self, mut jobs: Vec<Job>) {
        match self.write_group(&mut jobs) {
            Ok(first) => {
                let mut seq = first;
                for job in jobs {
                    let next = seq + job.records;
                    (job.done)(Ok(seq..=next - 1));
                    seq = next;
                }
            }
            Err(error) => {
                self.inner.note(&error);
                for job in jobs {
                    (job.done)(Err(error.clone()));
                }
            }
        }
    }

    /// Writes a group, dropping old segments for it if that is configured. Returns its first sequence.
    fn write_group(&mut self, jobs: &mut [Job]) -> Result<u64, Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let frames = match jobs {
            [job] => &mut job.frames,
            jobs => {
                buffer.clear();
                jobs.iter().for_each(|job| buffer.extend_from_slice(&job.frames));
                &mut buffer
            }
        };
        let written = self.write_frames(frames);
        buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.buffer = buffer;
        written
    }

    fn write_frames(&mut self, frames: &mut [u8]) -> Result<u64, Error> {
        let bytes = frames.len() as u64;
        loop {
            let tried = self.make_room(bytes).and_then(|()| self.try_frames(frames));
            match tried {
                Err(e) if e.is_full() => {
                    let may_drop = self.inner.config.on_full == OnFull::DropOldest;
                    if !may_drop || !self.drop_for_room().map_err(as_full)? {
                        return Err(as_full(e));
                    }
                }
                tried => return tried,
            }
        }
    }

    fn try_frames(&mut self, frames: &mut [u8]) -> Result<u64, Error> {
        if self.gap_owed {
            self.save_gaps()?;
            self.gap_owed = false;
        }
        let seal_at = self.inner.config.seal_bytes();
        if self.open.as_ref().is_some_and(|open| open.len + frames.len() as u64 > seal_at) {
            // The sync that makes the next segment's name durable covers this one's new name too.
            self.seal(Durable::WithTheNext)?;
        }
        let first = self.written + 1;
        if self.open.is_none() {
            self.open = Some(self.create_segment(first)?);
        }
        let Some(open) = self.open.as_mut() else {
            return Err(Error::Closed);
        };
        let now_ms = (self.inner.clock)();
        let salt = self.inner.salt(open.base);
        let mut summary = open.summary;
        let mut seq = first;
        let mut rest = &mut *frames;
        while let Some((class, behind)) = frame::number(rest, salt, seq, now_ms) {
            summary.add(class, now_ms);
            seq += 1;
            rest = behind;
        }
        if let Err(e) = open.file.write_all_at(frames, open.len) {
            let error = Error::io("write", &segment::file_name(open.base, false), e);
            self.take_back()?;
            return Err(error);
        }
        open.len += frames.len() as u64;
        open.summary = summary;
        open.last_write = Instant::now();
        self.inner.state().bytes_written += frames.len() as u64;
        self.written = seq - 1;
        self.dirty_since.get_or_insert_with(Instant::now);
        if self.inner.config.sync == SyncPolicy::EveryBatch {
            self.sync_open()?;
        }
        Ok(first)
    }

    /// No part of a frame may stay before later good frames.
    fn take_back(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.as_ref() else {
            return Ok(());
        };
        if open.file.set_len(open.len).is_err() {
            // What is synced in this file stays readable; what was acknowledged before a sync gets its sync now.
            self.sync_open()?;
            if let Some(open) = self.open.take() {
                self.close_segment(&open, self.written);
            }
        }
        Ok(())
    }

    /// Makes everything written durable and visible to readers.
    fn sync_open(&mut self) -> Result<(), Error> {
        if self.dirty_since.take().is_none() {
            return Ok(());
        }
        let Some(open) = self.open.as_ref() else {
            return Ok(());
        };
        if let Err(e) = open.file.sync_data() {
            let error = Error::io("sync", &segment::file_name(open.base, false), e);
            self.abandon();
            return Err(error);
        }
        let (base, len, head) = (open.base, open.len, self.written);
        {
            let mut state = self.inner.state();
            if let Some(segment) = state.segments.get_mut(&base) {
                segment.file_len = len;
                segment.data_end = Some(len);
            }
            state.synced = head;
        }
        self.inner.moved.notify_all();
        for hook in lock(&self.inner.hooks).iter() {
            hook(head);
        }
        Ok(())
    }

    fn sync_noted(&mut self) {
        if let Err(error) = self.sync_open() {
            self.inner.note(&error);
        }
    }

    /// Gives up the open file at its synced length. It is never synced again.
    fn abandon(&mut self) {
        let Some(open) = self.open.take() else { return };
        let mut state = self.inner.state();
        let synced = state.synced;
        let synced_end = state.segments.get(&open.base).and_then(|s| s.data_end);
        if self.inner.config.sync == SyncPolicy::EveryBatch {
            // Nobody was told these sequences, and no reader saw them.
            self.written = synced;
        } else if self.written > synced {
            state.found(Gap::untimed(synced + 1, self.written, GapReason::Lost));
            self.gap_owed = true;
        }
        drop(state);
        // The pages above may still be in the cache without being on the disk; a restart must not take them for records.
        let _ = open.file.set_len(synced_end.unwrap_or(HEADER_BYTES));
        if synced < open.base {
            self.forget_segment(open.base);
        } else {
            self.close_segment(&open, synced);
        }
    }

    /// Removes a segment in which nothing was ever acknowledged.
    fn forget_segment(&mut self, base: u64) {
        self.inner.state().segments.remove(&base);
        let _ = self.inner.disk.remove(&segment::file_name(base, false));
    }

    /// Leaves a segment under its `.open` name, without a footer: a reader is bounded by the next segment's base.
    fn close_segment(&mut self, open: &OpenSegment, last: u64) {
        if open.summary.records == 0 {
            return self.forget_segment(open.base);
        }
        if let Some(segment) = self.inner.state().segments.get_mut(&open.base) {
            segment.closed = true;
            segment.last = Some(last);
            // An abandoned group is in the summary and not in the segment; it is read again when it is needed.
            segment.summary =
                (last == open.base + open.summary.records - 1).then_some(open.summary);
        }
    }

    fn create_segment(&mut self, base: u64) -> Result<OpenSegment, Error> {
        let name = segment::file_name(base, false);
        let disk = &self.inner.disk;
        let header = segment::encode_header(self.inner.epoch, base, (self.inner.clock)());
        let made = disk.create(&name).and_then(|file| {
            file.write_all_at(&header, 0)?;
            disk.sync_dir()?;
            Ok(file)
        });
        let file = match made {
            Ok(file) => file,
            Err(e) => {
                let _ = disk.remove(&name);
                return Err(Error::io("create", &name, e));
            }
        };
        let mut state = self.inner.state();
        state.bytes_written += HEADER_BYTES;
        let (file_len, data_end) = (HEADER_BYTES, Some(HEADER_BYTES));
        state.segments.insert(base, Segment { file_len, data_end, ..Segment::default() });
        drop(state);
        let summary = Summary::default();
        Ok(OpenSegment { base, file, len: HEADER_BYTES, summary, last_write: Instant::now() })
    }

    /// Seals the open segment, if it has a record, and makes that durable.
    pub(crate) fn seal_open(&mut self) -> Result<(), Error> {
        self.seal(Durable::Now)
    }

    /// Only the sync of records can fail; footer and name are a convenience.
    fn seal(&mut self, durable: Durable) -> Result<(), Error> {
        self.sync_open()?;
        let Some(open) = self.open.take_if(|open| open.summary.records > 0) else {
            return Ok(());
        };
        self.close_segment(&open, self.written);
        let (epoch, base, data_len) = (self.inner.epoch, open.base, open.len);
        let footer = Footer { epoch, base, last: self.written, data_len, summary: open.summary };
        let bytes = footer.encode();
        let written = open.file.write_all_at(&bytes, data_len).and_then(|()| match durable {
            Durable::Now => open.file.sync_data(),
            Durable::WithTheNext => Ok(()),
        });
        let name = segment::file_name(base, false);
        if let Err(e) = &written {
            let _ = open.file.set_len(data_len);
            self.inner.note(&Error::io(
                "seal",
                &name,
                std::io::Error::new(e.kind(), e.to_string()),
            ));
        }
        let renamed = self.inner.disk.rename(&name, &segment::file_name(base, true));
        let mut state = self.inner.state();
        if let Some(segment) = state.segments.get_mut(&base) {
            segment.sealed = renamed.is_ok();
            segment.file_len = data_len + if written.is_ok() { bytes.len() as u64 } else { 0 };
        }
        state.bytes_written += bytes.len() as u64;
        drop(state);
        // A rename that is not durable leaves an `.open` with a footer; recovery knows it.
        let renamed = renamed.and_then(|()| match durable {
            Durable::Now => self.inner.disk.sync_dir(),
            Durable::WithTheNext => Ok(()),
        });
        if let Err(e) = renamed {
            self.inner.note(&Error::io("rename", &name, e));
        }
        Ok(())
    }
}

/// When the footer and the name of a sealed segment are on the disk. A crash before that costs nothing but a scan.
#[derive(Clone, Copy)]
enum Durable {
    /// On return: nothing may be written for a long time.
    Now,
    /// With the segment that is made next.
    WithTheNext,
}

/// A full disk has one name, whichever call met it.
fn as_full(error: Error) -> Error {
    match error {
        Error::Io { op, file, source } if is_no_space(&source) => {
            Error::Full { why: format!("no space to {op} {file}") }
        }
        error => error,
    }
}
