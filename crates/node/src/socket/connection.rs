//! One sampler's connection: reads lines, hands records to the spool, answers in order.
//!
//! What arrives together goes to the spool together: all records of one read are one submission, so a sampler
//! that pipelines pays for one sync, not for one a line.

use super::MAX_LINE_BYTES;
use super::listen::{Samplers, told_to_stop};
use super::reply::{self, Refusal};
use super::request::{self, Moment, Request};
use event::id::EventId;
use jiff::Timestamp;
use std::ops::RangeInclusive;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

/// How much is read at a time.
const READ_BYTES: usize = 32 * 1024;
/// Reads of one connection that may wait for their replies.
const GROUPS_IN_FLIGHT: usize = 16;

type Outcome = Result<RangeInclusive<u64>, spool::Error>;

/// The reply to one line, once the outcome of its group is known.
enum Slot {
    /// Known already.
    Ready(Vec<u8>),
    /// The next record of the submission.
    Record(EventId, Option<String>),
}

/// The lines of one read.
struct Group {
    slots: Vec<Slot>,
    outcome: Option<oneshot::Receiver<Outcome>>,
}

/// Serves a sampler until it goes, or the node stops.
pub(super) async fn serve(stream: UnixStream, samplers: Samplers, stop: watch::Receiver<bool>) {
    let (read, write) = stream.into_split();
    let (sender, receiver) = mpsc::channel(GROUPS_IN_FLIGHT);
    let lines = Lines { samplers, buffer: Vec::new(), skipping: false, stopping: false };
    tokio::join!(lines.read(read, sender, stop), write_replies(write, receiver));
}

struct Lines {
    samplers: Samplers,
    buffer: Vec<u8>,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
    stopping: bool,
}

impl Lines {
    async fn read(
        mut self,
        mut read: OwnedReadHalf,
        groups: mpsc::Sender<Group>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            self.buffer.reserve(READ_BYTES);
            let count = tokio::select! {
                count = read.read_buf(&mut self.buffer) => count,
                // What has arrived by now is answered, with a refusal.
                () = told_to_stop(&mut stop) => {
                    self.stopping = true;
                    read.try_read_buf(&mut self.buffer)
                }
            };
            // A sampler that breaks off in the middle of a line has not finished its request.
            let ended = !matches!(count, Ok(n) if n > 0);
            let group = self.take_lines().await;
            if !group.slots.is_empty() && groups.send(group).await.is_err() {
                return;
            }
            if ended || self.stopping {
                return;
            }
        }
    }

    /// Takes every whole line out of the buffer and submits its records.
    async fn take_lines(&mut self) -> Group {
        let mut slots = Vec::new();
        let mut records = Vec::new();
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = buffer.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.skipping || line.len() > MAX_LINE_BYTES {
                self.skipping = false;
                slots.push(refusal(Refusal::TooLarge, None));
            } else if !line.trim_ascii().is_empty() {
                slots.push(self.take_line(line, &mut records));
            }
        }
        // The buffer of a long line is kept as it is; a used one shrinks to what is left of it.
        if self.skipping || rest.len() > MAX_LINE_BYTES {
            self.skipping = true;
        } else if rest.len() == buffer.len() {
            self.buffer = buffer;
        } else {
            self.buffer = rest.to_vec();
        }
        let outcome = match records.is_empty() {
            true => None,
            false => Some(self.samplers.submit(records).await),
        };
        Group { slots, outcome }
    }

    fn take_line(&self, line: &[u8], records: &mut Vec<(u8, Vec<u8>)>) -> Slot {
        let moment =
            Moment { now: Timestamp::now(), clock_set: self.samplers.vitals.clock_is_set() };
        let parsed = request::parse(line, &self.samplers.identity, moment);
        let tag = parsed.tag;
        let mut ready = Vec::new();
        match parsed.request {
            Ok(Request::Record(_)) if self.stopping => {
                return refusal(Refusal::Stopping, tag.as_deref());
            }
            Ok(Request::Record(record)) => {
                records.push((record.class, record.bytes));
                return Slot::Record(record.event_id, tag);
            }
            Ok(Request::Ping) => reply::ok(&mut ready, tag.as_deref()),
            Ok(Request::Status) => {
                let status = self.samplers.vitals.node_status();
                match serde_json::to_string(&status) {
                    Ok(json) => reply::object(&mut ready, &json, tag.as_deref()),
                    Err(error) => {
                        tracing::error!(%error, "the status cannot be written as JSON");
                        reply::refused(&mut ready, Refusal::NotDurable, tag.as_deref());
                    }
                }
            }
            Err(invalid) => reply::invalid(&mut ready, &invalid, tag.as_deref()),
        }
        Slot::Ready(ready)
    }
}

fn refusal(refusal: Refusal, tag: Option<&str>) -> Slot {
    let mut line = Vec::new();
    reply::refused(&mut line, refusal, tag);
    Slot::Ready(line)
}

async fn write_replies(mut write: OwnedWriteHalf, mut groups: mpsc::Receiver<Group>) {
    let mut out = Vec::new();
    while let Some(group) = groups.recv().await {
        let outcome = match group.outcome {
            // The sender goes without a word only if the spool's writer has died.
            Some(outcome) => Some(outcome.await.unwrap_or(Err(spool::Error::Closed))),
            None => None,
        };
        let (mut seqs, refused) = match outcome {
            Some(Ok(seqs)) => (seqs, None),
            Some(Err(error)) => (RangeInclusive::new(1, 0), Some(Refusal::from(&error))),
            None => (RangeInclusive::new(1, 0), None),
        };
        out.clear();
        for slot in group.slots {
            match slot {
                Slot::Ready(line) => out.extend_from_slice(&line),
                Slot::Record(event_id, tag) => match seqs.next() {
                    Some(seq) => reply::spooled(&mut out, seq, event_id, tag.as_deref()),
                    None => {
                        let why = refused.unwrap_or(Refusal::NotDurable);
                        reply::refused(&mut out, why, tag.as_deref());
                    }
                },
            }
        }
        if write.write_all(&out).await.is_err() {
            // The sampler has gone; it will send again what it has no reply for.
            return;
        }
    }
}
