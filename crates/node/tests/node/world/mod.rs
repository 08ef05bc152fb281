//! A node's replay core, a network that misbehaves, and an edge made of a frontier, in one thread and without time.
#![allow(clippy::unwrap_used, reason = "this is test code outside #[test] functions")]

use event::id::Epoch;
use event::ledger::{Frontier, RangeSet};
use event::wire::Ack;
use node::forward::{BatchId, Ignored, Limits, Replay, Route, Step};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};

/// Small bounds, so that they are reached.
pub(crate) fn limits() -> Limits {
    Limits {
        window: 4,
        backfill_slots: 1,
        unacked: 12,
        batch_records: 10,
        live_linger: Duration::from_millis(20),
        live_lag: 200,
        resend_after: Duration::from_secs(2),
        puback_after: Duration::from_secs(4),
        backfill_rate: 0,
        http: None,
    }
}

/// A batch between node and edge.
#[derive(Debug, Clone, Copy)]
struct Flight {
    id: BatchId,
    from: u64,
    to: u64,
    life: u32,
}

pub(crate) struct World {
    rng: SmallRng,
    limits: Limits,
    now: Instant,
    epoch: Epoch,
    node: Replay,
    /// The node's process; what belonged to an earlier one is nobody's any more.
    life: u32,
    connected: bool,
    pub(crate) head: u64,
    cursor: u64,
    pub(crate) dropped: RangeSet,
    /// With the client, not yet taken by the broker.
    uplink: Vec<Flight>,
    /// With the broker, on the way to the edge.
    broker: Vec<Flight>,
    post: Option<Flight>,
    acks: Vec<Ack>,
    pub(crate) edge: Frontier,
}

impl World {
    pub(crate) fn new(seed: u64, limits: Limits) -> World {
        let now = Instant::now();
        World {
            rng: SmallRng::seed_from_u64(seed),
            limits,
            now,
            epoch: Epoch::mint(),
            node: Replay::new(limits, 0, 0, now),
            life: 0,
            connected: false,
            head: 0,
            cursor: 0,
            dropped: RangeSet::new(),
            uplink: Vec::new(),
            broker: Vec::new(),
            post: None,
            acks: Vec::new(),
            edge: Frontier::new(),
        }
    }

    fn write(&mut self, records: u64) {
        self.head += records;
        self.node.advance_head(self.head, self.now);
    }

    /// Drops the oldest records that are not acked, as a full spool does.
    fn drop_oldest(&mut self) {
        let acked = self.node.acked();
        if acked < self.head {
            let to = self.rng.random_range(acked + 1..=self.head);
            self.dropped.insert(acked + 1, to);
        }
    }

    /// Lets the node do all it wants to do now; checks every wish. Returns when it wants to be asked again.
    pub(crate) fn step(&mut self) -> Option<Instant> {
        for _ in 0..100 {
            let plan = match self.node.step(self.now) {
                Step::Wait(until) => return until,
                Step::Send(plan) => plan,
                // The session stays, so what the broker did not take goes over the new connection.
                Step::Reconnect => {
                    assert!(
                        self.connected && self.node.in_flight() > 0,
                        "nothing to reconnect for"
                    );
                    self.disconnect(false);
                    self.connect();
                    continue;
                }
            };
            assert!(plan.from >= 1 && plan.from <= plan.to, "{plan:?}");
            assert!(plan.to <= self.head, "{plan:?} is beyond head {}", self.head);
            assert!(plan.from > self.node.acked(), "{plan:?} is acked");
            assert!(plan.to - plan.from < self.limits.batch_records.max(50));
            // A gap that begins inside the batch reaches as far as it reaches.
            let to = match self.dropped.range_of(plan.to) {
                Some((_, end)) => end,
                None => plan.to,
            };
            // Sometimes the bytes run out first.
            let to = match self.dropped.range_of(plan.from) {
                None if self.rng.random_bool(0.3) => plan.from,
                _ => to,
            };
            let id = self.node.sent(plan, to, self.now);
            let flight = Flight { id, from: plan.from, to, life: self.life };
            match plan.route {
                Route::Mqtt => {
                    assert!(self.connected, "sent over a broken link");
                    self.uplink.push(flight);
                }
                Route::Http => {
                    assert!(self.post.is_none(), "two posts at once");
                    self.post = Some(flight);
                }
            }
            let mine = self.uplink.iter().filter(|flight| flight.life == self.life).count();
            assert_eq!(self.node.in_flight(), mine);
            assert!(mine <= self.limits.window, "{mine} in flight");
        }
        panic_never_idle()
    }

    fn broker_takes(&mut self, at: usize, puback: bool) {
        let flight = self.uplink[at];
        self.broker.push(flight);
        if puback {
            self.uplink.remove(at);
            if flight.life == self.life {
                self.node.delivered(flight.id, self.now);
            }
        }
    }

    fn edge_takes(&mut self, flight: Flight) -> Ack {
        for seq in flight.from..=flight.to {
            if self.dropped.contains(seq) {
                self.edge.declare_lost(seq, seq).unwrap();
            } else {
                self.edge.observe(seq).unwrap();
            }
        }
        Ack::of(self.epoch, &self.edge)
    }

    fn node_hears(&mut self, ack: &Ack, retained: bool) {
        let before = self.node.acked();
        match self.node.ack(ack, true, retained, self.now) {
            Ok(_) => assert!(self.node.acked() >= before),
            Err(reason) => {
                assert_eq!(reason, Ignored::Regressed);
                assert_eq!(self.node.acked(), before);
            }
        }
        assert!(self.node.acked() <= self.edge.acked(), "acked what the edge does not have");
    }

    fn connect(&mut self) {
        self.connected = true;
        self.node.connected(self.now);
        // The retained ack, if the broker has one.
        if self.rng.random_bool(0.7) {
            let ack = Ack::of(self.epoch, &self.edge);
            self.node_hears(&ack, true);
        }
    }

    fn disconnect(&mut self, session_lost: bool) {
        self.connected = false;
        self.node.disconnected();
        if session_lost {
            for flight in std::mem::take(&mut self.uplink) {
                if flight.life == self.life {
                    self.node.undelivered(flight.id, self.now);
                }
            }
        }
    }

    /// SIGKILL: everything but the spool is gone, and the cursor may be old.
    fn restart(&mut self) {
        self.cursor = self.rng.random_range(self.cursor..=self.node.acked());
        self.life += 1;
        self.connected = false;
        self.post = None;
        self.uplink.clear();
        self.node = Replay::new(self.limits, self.head, self.cursor, self.now);
    }

    fn forge(&mut self) {
        let (acked, head) = (self.node.acked(), self.node.head());
        let ack = |acked_seq, ranges| Ack { epoch: self.epoch, acked_seq, ranges };
        let foreign = ack(head, vec![]);
        assert_eq!(self.node.ack(&foreign, false, false, self.now), Err(Ignored::ForeignEpoch));
        let beyond = ack(head + 1, vec![]);
        assert_eq!(self.node.ack(&beyond, true, false, self.now), Err(Ignored::BeyondHead));
        let beyond = ack(acked, vec![(head + 5, head + 6)]);
        assert_eq!(self.node.ack(&beyond, true, false, self.now), Err(Ignored::BeyondHead));
        if acked > 0 {
            let stale = ack(acked - 1, vec![]);
            assert_eq!(self.node.ack(&stale, true, false, self.now), Err(Ignored::Regressed));
        }
        assert_eq!(self.node.acked(), acked);
    }

    pub(crate) fn chaos(&mut self) {
        match self.rng.random_range(0..100) {
            0..25 => {
                let records = self.rng.random_range(1..40);
                self.write(records);
            }
            25..45 if self.connected && !self.uplink.is_empty() => {
                let at = self.rng.random_range(0..self.uplink.len());
                // Without a PUBACK the client sends it again: a duplicate.
                let puback = self.rng.random_bool(0.8);
                self.broker_takes(at, puback);
            }
            45..65 if !self.broker.is_empty() => {
                let at = self.rng.random_range(0..self.broker.len());
                let flight = match self.rng.random_bool(0.2) {
                    true => self.broker[at],
                    false => self.broker.swap_remove(at),
                };
                let ack = self.edge_takes(flight);
                self.acks.push(ack);
            }
            65..75 if self.connected && !self.acks.is_empty() => {
                let at = self.rng.random_range(0..self.acks.len());
                let ack = match self.rng.random_bool(0.3) {
                    true => self.acks[at].clone(),
                    false => self.acks.swap_remove(at),
                };
                self.node_hears(&ack, false);
            }
            75..78 => drop(self.acks.pop()),
            78..80 => drop(self.broker.pop()),
            80..84 if !self.connected => self.connect(),
            84..86 if self.connected => {
                let lost = self.rng.random_bool(0.3);
                self.disconnect(lost);
            }
            86..88 => self.restart(),
            88..90 => self.drop_oldest(),
            90..92 => self.forge(),
            92..95 => self.finish_post(),
            _ => self.now += Duration::from_millis(self.rng.random_range(1..700)),
        }
    }

    fn finish_post(&mut self) {
        let Some(flight) = self.post.take() else {
            return;
        };
        match self.rng.random_range(0..4) {
            0 => self.node.http_failed(flight.id, true, self.now, self.now),
            1 => {
                self.node.http_failed(flight.id, false, self.now + Duration::from_secs(1), self.now)
            }
            // The answer is lost, the batch is not.
            2 => {
                self.edge_takes(flight);
                self.node.http_failed(flight.id, false, self.now, self.now);
            }
            _ => {
                let ack = self.edge_takes(flight);
                self.node.http_done(flight.id, self.now);
                self.node_hears(&ack, false);
            }
        }
    }

    /// Everything works from now on. How many rounds until all is at the edge and the node knows it?
    pub(crate) fn settle(&mut self) -> u32 {
        if !self.connected {
            self.connect();
        }
        for round in 0..2_000 {
            let wake = self.step();
            while !self.uplink.is_empty() {
                self.broker_takes(0, true);
            }
            for flight in std::mem::take(&mut self.broker) {
                let ack = self.edge_takes(flight);
                self.acks.push(ack);
            }
            for ack in std::mem::take(&mut self.acks) {
                self.node_hears(&ack, false);
            }
            if let Some(flight) = self.post.take() {
                let ack = self.edge_takes(flight);
                self.node.http_done(flight.id, self.now);
                self.node_hears(&ack, false);
            }
            if self.node.acked() == self.head {
                return round;
            }
            self.now = wake.unwrap_or(self.now).max(self.now + Duration::from_millis(5));
        }
        let (acked, head) = (self.node.acked(), self.head);
        assert_eq!(acked, head, "did not converge: {:?}", self.edge.missing(head));
        0
    }
}

#[allow(clippy::panic, reason = "a test that finds the core spinning must fail")]
fn panic_never_idle() -> ! {
    panic!("the core wants to send for ever")
}
