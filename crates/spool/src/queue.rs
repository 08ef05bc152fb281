//! The bounded queue between many appenders and the one writer.
//!
//! Bounded by bytes and by count, so that memory does not follow the load. Closing it lets the writer finish what is
//! queued; nothing that was accepted is left unanswered.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::state::lock;

/// The most payload bytes that may wait.
pub const QUEUE_BYTES: usize = 4 << 20;
/// The most submissions that may wait.
pub const QUEUE_JOBS: usize = 4096;

/// Told the sequences of a submission, or why there are none. Runs on the writer's thread: it must be quick, and
/// must not wait for the spool.
pub type Done = Box<dyn FnOnce(Result<RangeInclusive<u64>, Error>) + Send>;

/// One submission.
pub(crate) struct Job {
    /// The records as frames without sequences: copying them together is the appender's work, not the writer's, who is waited for.
    pub(crate) frames: Vec<u8>,
    /// How many there are.
    pub(crate) records: u64,
    /// The bytes of their payloads.
    pub(crate) bytes: usize,
    pub(crate) done: Done,
}

/// What the writer should do next.
pub(crate) enum Work {
    Group(Vec<Job>),
    /// Housekeeping as of this time, and whom to tell.
    Maintain(i64, SyncSender<()>),
    DeadlinePassed,
    Closed,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    maintain: Option<(i64, SyncSender<()>)>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    drained: Condvar,
}

impl Queue {
    /// Adds a submission. When there is no room: waits for it, or returns [`Error::Busy`].
    pub(crate) fn push(&self, job: Job, wait: bool) -> Result<(), Error> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.closed {
                return Err(Error::Closed);
            }
            // One submission always fits an empty queue; its size has its own limit.
            let fits = waiting.jobs.len() < QUEUE_JOBS
                && (waiting.bytes + job.bytes <= QUEUE_BYTES || waiting.jobs.is_empty());
            if fits {
                break;
            }
            if !wait {
                return Err(Error::Busy);
            }
            waiting = self.drained.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.bytes += job.bytes;
        waiting.jobs.push_back(job);
        self.filled.notify_one();
        Ok(())
    }

    /// Asks for housekeeping. At most one request waits; a further one waits for its turn.
    pub(crate) fn push_maintain(&self, now_ms: i64, done: SyncSender<()>) -> Result<(), Error> {
        let mut waiting = lock(&self.waiting);
        while waiting.maintain.is_some() && !waiting.closed {
            waiting = self.drained.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.closed {
            return Err(Error::Closed);
        }
        waiting.maintain = Some((now_ms, done));
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for work until `deadline`. A group has `group_bytes` of payload at the most, or one submission.
    pub(crate) fn take(&self, deadline: Instant, group_bytes: usize) -> Work {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some((now_ms, done)) = waiting.maintain.take() {
                self.drained.notify_all();
                return Work::Maintain(now_ms, done);
            }
            if !waiting.jobs.is_empty() {
                let group = waiting.take_group(group_bytes);
                self.drained.notify_all();
                return Work::Group(group);
            }
            if waiting.closed {
                return Work::Closed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Work::DeadlinePassed;
            }
            let (guard, _) =
                self.filled.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
            waiting = guard;
        }
    }

    /// Accepts nothing more.
    pub(crate) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Closes, and answers what is queued: for a writer that cannot go on.
    pub(crate) fn close_and_refuse(&self) {
        self.close();
        let jobs = std::mem::take(&mut lock(&self.waiting).jobs);
        for job in jobs {
            (job.done)(Err(Error::Closed));
        }
    }
}

impl Waiting {
    fn take_group(&mut self, group_bytes: usize) -> Vec<Job> {
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(job) = self.jobs.front() {
            if !group.is_empty() && bytes + job.bytes > group_bytes {
                break;
            }
            bytes += job.bytes;
            self.bytes -= job.bytes;
            group.extend(self.jobs.pop_front());
        }
        group
    }
}
