//! What the parts of a running node tell each other about its health.
//!
//! The forwarder writes, the socket reads; neither waits for the other.

use crate::clock::ClockWatch;
use crate::config::Config;
use crate::pace::Pace;
use crate::status::{Link, LinkState, Local, NodeStatus};
use event::id::Epoch;
use event::wire::{Clock, IgnoredAcks, IgnoredCommands, Report, State, Status, VERSION};
use jiff::Timestamp;
use spool::{Item, Spool};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What the forwarder knows.
#[derive(Debug)]
pub(crate) struct Forwarding {
    pub(crate) link: Link,
    pub(crate) in_flight: u64,
    pub(crate) resent_batches: u64,
    pub(crate) unsendable: u64,
    /// Sequences in messages that were sent, those sent again too.
    pub(crate) sent: u64,
    pub(crate) http: bool,
    pub(crate) last_ack_at: Option<Timestamp>,
    pub(crate) ignored_acks: IgnoredAcks,
    pub(crate) ignored_commands: IgnoredCommands,
}

/// What metrics show.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) head: u64,
    pub(crate) acked: u64,
    pub(crate) backlog: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: u64,
    pub(crate) gaps: u64,
    pub(crate) free_bytes: u64,
    pub(crate) oldest_seconds: f64,
    pub(crate) sent: u64,
    pub(crate) connected: bool,
    pub(crate) clock_set: bool,
    pub(crate) samplers: u64,
}

/// The health of a running node.
pub(crate) struct Vitals {
    config: Config,
    spool: Spool,
    epoch: Epoch,
    clock: ClockWatch,
    started_at: Timestamp,
    started: Instant,
    written_at_start: u64,
    samplers: AtomicU64,
    forwarding: Mutex<Forwarding>,
    pace: Mutex<Pace>,
}

impl Vitals {
    pub(crate) fn new(config: Config, spool: Spool, epoch: Epoch) -> Vitals {
        let link = Link { state: LinkState::Down, since: None, detail: None };
        let forwarding = Forwarding {
            link,
            in_flight: 0,
            resent_batches: 0,
            unsendable: 0,
            sent: 0,
            http: false,
            last_ack_at: None,
            ignored_acks: IgnoredAcks::default(),
            ignored_commands: IgnoredCommands::default(),
        };
        Vitals {
            clock: ClockWatch::new(config.clock.clone()),
            written_at_start: spool.stats().bytes_written_total,
            config,
            spool,
            epoch,
            started_at: Timestamp::now(),
            started: Instant::now(),
            samplers: AtomicU64::new(0),
            forwarding: Mutex::new(forwarding),
            pace: Mutex::new(Pace::default()),
        }
    }

    pub(crate) fn clock_is_set(&self) -> bool {
        self.clock.is_set()
    }

    /// What the forwarder writes into.
    pub(crate) fn forwarding(&self) -> MutexGuard<'_, Forwarding> {
        self.forwarding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message goes out that covers so many sequences, and declares so many records unsendable.
    pub(crate) fn sends(&self, sequences: u64, unsendable: u64) {
        let mut forwarding = self.forwarding();
        forwarding.sent += sequences;
        forwarding.unsendable += unsendable;
    }

    /// A sampler came (`true`) or went; returns how many there are now.
    pub(crate) fn sampler(&self, came: bool) -> u64 {
        if came {
            self.samplers.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.samplers.fetch_sub(1, Ordering::Relaxed) - 1
        }
    }

    /// Takes note of how far the node is, for the drain estimate.
    pub(crate) fn observe_pace(&self, head: u64, acked: u64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.observe(Instant::now(), head, acked);
    }

    /// What the edge is told.
    pub(crate) fn wire_status(&self) -> Status {
        Status::online(self.epoch, self.report())
    }

    /// Reads a record from the disk.
    fn report(&self) -> Report {
        let stats = self.spool.stats();
        let clock = if self.clock.is_set() { Clock::Set } else { Clock::Unset };
        let written = stats.bytes_written_total.saturating_sub(self.written_at_start);
        let (ignored_acks, ignored_commands) = {
            let forwarding = self.forwarding();
            (forwarding.ignored_acks, forwarding.ignored_commands)
        };
        Report {
            head: stats.head,
            acked: stats.acked,
            oldest: stats.oldest,
            bytes: stats.bytes,
            backlog: stats.head.saturating_sub(stats.acked),
            drops: stats.dropped_records,
            gaps: stats.gaps as u64,
            clock,
            at: Timestamp::now(),
            free_bytes: Some(stats.free_bytes).filter(|free| *free > 0),
            oldest_at: oldest_at(self.spool.reader(stats.acked + 1)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written_bytes_per_day: crate::pace::per_day(written, self.started.elapsed()),
            ignored_acks,
            ignored_commands,
        }
    }

    /// What metrics show. Reads a record from the disk.
    pub(crate) fn reading(&self) -> Reading {
        let stats = self.spool.stats();
        let (sent, connected) = {
            let forwarding = self.forwarding();
            (forwarding.sent, forwarding.link.state == LinkState::Up)
        };
        Reading {
            head: stats.head,
            acked: stats.acked,
            backlog: stats.head.saturating_sub(stats.acked),
            bytes: stats.bytes,
            drops: stats.dropped_records,
            gaps: stats.gaps as u64,
            free_bytes: stats.free_bytes,
            oldest_seconds: self.oldest_seconds(stats.acked),
            sent,
            connected,
            clock_set: self.clock.is_set(),
            samplers: self.samplers.load(Ordering::Relaxed),
        }
    }

    /// For how long the first record after this one has been on the disk; 0 when there is none, or when it cannot be read, which the status says.
    fn oldest_seconds(&self, acked: u64) -> f64 {
        let written_at = oldest_at(self.spool.reader(acked + 1));
        let age = written_at.map(|at| Timestamp::now().duration_since(at).as_secs_f64());
        age.unwrap_or(0.0).max(0.0)
    }

    /// What a person on the spot is told.
    pub(crate) fn node_status(&self) -> NodeStatus {
        let report = self.report();
        let stats = self.spool.stats();
        let drain_seconds = {
            let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.drain_seconds(report.backlog)
        };
        let forwarding = self.forwarding();
        NodeStatus {
            v: VERSION,
            state: State::Online,
            epoch: self.epoch,
            local: Local {
                node_id: self.config.identity.node_id.clone(),
                link: forwarding.link.clone(),
                broker: self.config.broker.address.to_string(),
                in_flight: forwarding.in_flight,
                resent_batches: forwarding.resent_batches,
                unsendable: forwarding.unsendable,
                http: forwarding.http,
                drain_seconds,
                last_ack_at: forwarding.last_ack_at,
                samplers: self.samplers.load(Ordering::Relaxed),
                max_spool_bytes: self.config.spool.max_spool_bytes,
                segments: stats.segments as u64,
                started_at: Some(self.started_at),
                last_error: stats.last_error,
            },
            report,
        }
    }
}

/// When the first record that a reader finds was written, by the clock of its node; none when there is none, or when it cannot be read.
pub fn oldest_at(mut reader: spool::Reader) -> Option<Timestamp> {
    let written_at_ms = match reader.next() {
        Ok(Some(Item::Record { written_at_ms, .. })) => Some(written_at_ms),
        Ok(Some(Item::Gap(gap))) => gap.first_at_ms,
        Ok(None) | Err(_) => None,
    };
    written_at_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok())
}
