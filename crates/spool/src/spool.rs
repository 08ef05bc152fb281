//! The handle that callers hold.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::config::Config;
use crate::disk::{Disk, Folder};
use crate::error::Error;
use crate::frame;
use crate::gaps::Gap;
use crate::inspect::Inspection;
use crate::queue::{Done, Job, QUEUE_BYTES, Queue};
use crate::reader::Reader;
use crate::recover::{Recovery, recover};
use crate::state::{Clock, Inner, SyncedHook, lock};
use crate::writer::Writer;

/// An open spool. Clones share it; when the last one is dropped, what is queued is written, the cursor is saved, and the folder
/// is free for another writer.
#[derive(Clone)]
pub struct Spool {
    handle: Arc<Handle>,
}

struct Handle {
    inner: Arc<Inner>,
    queue: Arc<Queue>,
    recovery: Recovery,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The spool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The highest synced sequence.
    pub head: u64,
    /// Downstream has everything up to here.
    pub acked: u64,
    /// The lowest sequence that a segment holds; one past the head if there is none.
    pub oldest: u64,
    /// The size of all segments.
    pub bytes: u64,
    /// How many segments there are.
    pub segments: usize,
    /// Records given up in the life of the spool, for whatever reason.
    pub dropped_records: u64,
    /// Outstanding gaps.
    pub gaps: usize,
    /// What the file system would still give, or 0 if it does not say.
    pub free_bytes: u64,
    /// Bytes written to the folder in its life: the card's wear. After a crash, since the last cursor.
    pub bytes_written_total: u64,
    /// The last thing that went wrong in the background, for a person to read.
    pub last_error: Option<String>,
}

impl Spool {
    /// Opens the spool in `config.dir`, making it if there is none, and repairs what a crash left.
    pub fn open(config: Config) -> Result<Self, Error> {
        let disk = Folder::create(&config.dir)
            .map_err(|e| Error::io("make the folder", &config.dir.display().to_string(), e))?;
        Self::open_on(config, Arc::new(disk), Arc::new(now_ms))
    }

    /// As [`Spool::open`], on another disk and by another clock.
    pub fn open_on(config: Config, disk: Arc<dyn Disk>, clock: Clock) -> Result<Self, Error> {
        config.check()?;
        let lock = disk.lock().map_err(|e| Error::io("lock", "lock", e))?;
        let lock = lock.ok_or_else(|| Error::Locked { dir: config.dir.display().to_string() })?;
        let recovered = recover(disk.as_ref(), &clock)?;
        let inner = Arc::new(Inner {
            disk,
            config,
            epoch: recovered.epoch,
            clock,
            state: Mutex::new(recovered.state),
            moved: Condvar::new(),
            hooks: Mutex::new(Vec::new()),
        });
        let queue = Arc::new(Queue::default());
        let mut writer = Writer::new(inner.clone(), queue.clone(), recovered.open, lock);
        if let Err(error) = writer.restore_ballast() {
            inner.note(&error);
        }
        let thread = std::thread::Builder::new()
            .name("spool-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|e| Error::io("start the writer of", ".", e))?;
        let thread = Mutex::new(Some(thread));
        let recovery = recovered.report;
        Ok(Self { handle: Arc::new(Handle { inner, queue, recovery, thread }) })
    }

    /// Looks at a spool without writing anything, not even the lock. The spool may be in use.
    pub fn open_read_only(dir: &Path) -> Result<Inspection, Error> {
        let disk = Folder::existing(dir)
            .map_err(|e| Error::io("read the folder", &dir.display().to_string(), e))?;
        Inspection::open(Config::new(dir), Arc::new(disk))
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.handle.recovery
    }

    /// The identity under which sequences are unique.
    pub fn epoch(&self) -> Uuid {
        self.handle.inner.epoch
    }

    /// Appends one record and waits until it is durable (or, under [`crate::SyncPolicy::Interval`], written). Returns its sequence.
    ///
    /// `class` says how precious it is: 0 telemetry, 1 event, 2 alarm. Segments with a lower highest class are dropped first.
    pub fn append(&self, class: u8, bytes: &[u8]) -> Result<u64, Error> {
        let (tell, told) = sync_channel(1);
        let done: Done = Box::new(move |result| {
            // The receiver waits below; it can only be gone if its thread is.
            let _ = tell.send(result);
        });
        self.submit(vec![(class, bytes.to_vec())], done)?;
        Ok(*told.recv().map_err(|_| Error::Closed)??.start())
    }

    /// Hands over records that get consecutive sequences. Waits while the queue is full.
    ///
    /// If this returns `Ok`, `done` is called exactly once, on the writer's thread, after the sync: it must be quick and must not
    /// wait for the spool. If this returns an error, `done` is not called.
    pub fn submit(&self, records: Vec<(u8, Vec<u8>)>, done: Done) -> Result<(), Error> {
        self.handle.queue.push(self.job(records, done)?, true)
    }

    /// As [`Spool::submit`], but returns [`Error::Busy`] rather than wait: for callers that must not block.
    pub fn try_submit(&self, records: Vec<(u8, Vec<u8>)>, done: Done) -> Result<(), Error> {
        self.handle.queue.push(self.job(records, done)?, false)
    }

    fn job(&self, records: Vec<(u8, Vec<u8>)>, done: Done) -> Result<Job, Error> {
        let max = self.handle.inner.config.max_record_bytes;
        if records.is_empty() {
            return Err(Error::EmptyBatch);
        }
        let mut bytes: usize = 0;
        for (_, record) in &records {
            if u32::try_from(record.len()).map_or(true, |len| len > max) {
                return Err(Error::RecordTooLarge { len: record.len(), max });
            }
            bytes += record.len();
        }
        let limit = QUEUE_BYTES.max(usize::try_from(max).unwrap_or(usize::MAX));
        if bytes > limit {
            return Err(Error::BatchTooLarge { len: bytes, max: limit });
        }
        let mut frames = Vec::with_capacity(bytes + records.len() * frame::OVERHEAD_BYTES);
        for (class, record) in &records {
            if !frame::lay_out(&mut frames, *class, record) {
                return Err(Error::RecordTooLarge { len: record.len(), max });
            }
        }
        Ok(Job { frames, records: records.len() as u64, bytes, done })
    }

    /// The head: every sequence up to here is durable, or is named in a gap.
    pub fn synced(&self) -> u64 {
        self.handle.inner.state().synced
    }

    /// Every sequence up to here was acked.
    pub fn acked(&self) -> u64 {
        self.handle.inner.state().acked
    }

    /// Downstream has everything up to `seq`. Lower than known is ignored; beyond the head is refused. Takes effect at once;
    /// it reaches the cursor, and segments go, in the background.
    pub fn ack(&self, seq: u64) -> Result<(), Error> {
        let mut state = self.handle.inner.state();
        if seq > state.synced {
            return Err(Error::AckBeyondHead { seq, head: state.synced });
        }
        state.acked = state.acked.max(seq);
        Ok(())
    }

    /// Outstanding gaps, ascending.
    pub fn gaps(&self) -> Vec<Gap> {
        let state = self.handle.inner.state();
        state.gaps.as_slice().iter().filter(|gap| gap.to_seq > state.acked).copied().collect()
    }

    /// The spool at this moment.
    pub fn stats(&self) -> Stats {
        let free_bytes = self.handle.inner.disk.free_bytes().unwrap_or(0);
        let state = self.handle.inner.state();
        Stats {
            head: state.synced,
            acked: state.acked,
            oldest: state.oldest(),
            bytes: state.bytes(),
            segments: state.segments.len(),
            dropped_records: state.lost_records,
            gaps: state.gaps.as_slice().iter().filter(|gap| gap.to_seq > state.acked).count(),
            free_bytes,
            bytes_written_total: state.bytes_written,
            last_error: state.last_error.clone(),
        }
    }

    /// Calls `hook` with the new head after every sync, on the writer's thread: to wake an async reader.
    pub fn on_synced(&self, hook: SyncedHook) {
        lock(&self.handle.inner.hooks).push(hook);
    }

    /// A reader that begins at `from_seq`.
    pub fn reader(&self, from_seq: u64) -> Reader {
        Reader::new(self.handle.inner.clone(), from_seq)
    }

    /// One round of housekeeping as of `now_ms`, done when this returns. The writer does it by itself every few seconds.
    pub fn maintain(&self, now_ms: i64) -> Result<(), Error> {
        let (tell, told) = sync_channel(1);
        self.handle.queue.push_maintain(now_ms, tell)?;
        told.recv().map_err(|_| Error::Closed)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        // A callback may hold the last clone; the writer cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Milliseconds since 1970 by the system's clock; 0 if that is before 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
