//! What to send next: the pure heart of the forwarder.
//!
//! State in, actions out; time is passed in; no I/O. The driver tells what happened (`head`, `connected`,
//! `sent`, `delivered`, `ack`, …) and asks [`Replay::step`] what to do.
//!
//! Two lanes. What was written before the link came up is **backlog**; what is written later is **live** and
//! goes first. Backlog is never listed: it is whatever lies above `acked` and below the live cursor and is
//! neither held by the edge (islands) nor on its way (`sent`). So a restart needs nothing but `acked`.
//!
//! Promises, which the property tests hold it to:
//! - Nothing beyond head is sent; at most `window` batches wait for their PUBACK and at most `unacked` for
//!   their ack.
//! - One slot is always left for live, and the share of backfill is always left for backfill.
//! - What was sent and is not acked is sent again: see `patience` for when. A broker that takes nothing for too long
//!   is left for a new connection: see `window`.
//! - An ack that is foreign, regresses or lies beyond head changes nothing and is counted.
//! - What the edge asks for again is sent once for every time it asks, before any other backlog: the edge asks until it
//!   has it. A command that is foreign or lies beyond head changes nothing and is counted.

use super::bucket::Bucket;
use super::bulk::{Bulk, Opening};
use super::islands::Islands;
use super::limits::{BatchId, Lane, Limits, Plan, Route, Step};
use super::patience::Patience;
use super::window::Window;
use event::ledger::RangeSet;
use event::wire::{Ack, Command};
use std::time::{Duration, Instant};

/// How long backfill waits after a connect for the retained ack, which may save it from re-sending.
const SETTLE: Duration = Duration::from_millis(300);
/// How long to wait when the spool had nothing to read where something should be.
const STALL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
struct Sent {
    id: BatchId,
    from: u64,
    to: u64,
    /// When the broker took it; until then the client still carries it and no clock runs.
    delivered_at: Option<Instant>,
    /// Nothing in it was under way before.
    sent_once: bool,
}

/// Why an ack was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// Lower than what is known.
    Regressed,
    /// About another life of the spool.
    ForeignEpoch,
    /// About records that do not exist.
    BeyondHead,
}

/// The node's side of the replay protocol.
#[derive(Debug)]
pub struct Replay {
    limits: Limits,
    head: u64,
    acked: u64,
    islands: Islands,
    connected: bool,
    live_next: u64,
    live_since: Instant,
    sent: Vec<Sent>,
    /// What `sent` covers, and perhaps some that is acked by now.
    under_way: RangeSet,
    window: Window,
    next_id: u64,
    bucket: Bucket,
    backfill_after: Instant,
    stalled_until: Instant,
    patience: Patience,
    /// Acknowledged once, and asked for again by an edge that lost it.
    again: RangeSet,
    /// Everything up to here was sent at some time.
    highest_sent: u64,
    /// The next backfill batch is a probe, which the bound on unacked batches does not hold back.
    probing: bool,
    bulk: Bulk,
    resent_batches: u64,
}

impl Replay {
    /// A node that starts with what its spool knows.
    pub fn new(limits: Limits, head: u64, acked: u64, now: Instant) -> Replay {
        let burst = limits.batch_records.max(limits.http.map_or(0, |http| http.batch_records));
        Replay {
            limits,
            head,
            acked,
            islands: Islands::default(),
            connected: false,
            live_next: head + 1,
            live_since: now,
            sent: Vec::new(),
            under_way: RangeSet::new(),
            window: Window::new(limits.window, limits.puback_after, now),
            next_id: 1,
            bucket: Bucket::new(limits.backfill_rate, burst * 2, now),
            backfill_after: now,
            stalled_until: now,
            patience: Patience::new(limits.resend_after),
            again: RangeSet::new(),
            highest_sent: 0,
            probing: false,
            bulk: Bulk::new(limits.http, now),
            resent_batches: 0,
        }
    }

    /// The highest seq that is durable and may be sent.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The highest seq up to which everything is at the edge or declared lost.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// How many records the edge does not have yet.
    pub fn backlog(&self) -> u64 {
        self.head.saturating_sub(self.acked).saturating_sub(self.islands.count())
    }

    /// Batches that wait for their PUBACK.
    pub fn in_flight(&self) -> usize {
        self.window.len()
    }

    /// Batches that were sent again.
    pub fn resent_batches(&self) -> u64 {
        self.resent_batches
    }

    /// Whether backfill goes over HTTP at the moment.
    pub fn on_http(&self) -> bool {
        self.bulk.is_active()
    }

    /// The spool has synced up to `seq`.
    pub fn advance_head(&mut self, seq: u64, now: Instant) {
        if seq <= self.head {
            return;
        }
        if self.live_next > self.head {
            self.live_since = now;
        }
        self.head = seq;
        if !self.connected {
            self.live_next = seq + 1;
        }
    }

    /// The link is up. Everything that is there by now is backlog: the live cursor has followed head while it was down.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.backfill_after = now + SETTLE;
        self.patience.reconnected();
        self.window.reconnected(now);
    }

    /// The link is down. What waits for its PUBACK stays with the client, which carries it over.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.live_next = self.head + 1;
    }

    /// What to do now.
    pub fn step(&mut self, now: Instant) -> Step {
        let given_up = self.window.given_up_at().filter(|_| self.connected);
        if given_up.is_some_and(|at| now >= at) {
            self.window.reconnected(now);
            return Step::Reconnect;
        }
        let mut wake = earlier(self.expire(now), given_up);
        if now < self.stalled_until {
            return Step::Wait(earlier(wake, Some(self.stalled_until)));
        }
        // A live lane that has fallen this far behind is backlog by any other name; starting over at head
        // keeps what a person looks at fresh.
        let lag = (self.head + 1).saturating_sub(self.live_next);
        if lag > self.limits.live_lag {
            self.live_next = self.head + 1;
        }
        match self.live(now) {
            Ok(plan) => return Step::Send(plan),
            Err(until) => wake = earlier(wake, until),
        }
        match self.backfill(now) {
            Ok(plan) => Step::Send(plan),
            Err(until) => Step::Wait(earlier(wake, until)),
        }
    }

    /// A live batch, or when to ask again.
    fn live(&self, now: Instant) -> Result<Plan, Option<Instant>> {
        let slots = self.limits.window - self.limits.backfill_slots;
        let blocked = !self.connected
            || self.live_next > self.head
            || self.window.in_lane(Lane::Live) >= slots
            || self.window.is_full()
            || self.sent.len() >= self.limits.unacked;
        if blocked {
            return Err(None);
        }
        let waiting = self.head + 1 - self.live_next;
        let due = self.live_since + self.limits.live_linger;
        if waiting < self.limits.batch_records && now < due {
            return Err(Some(due));
        }
        let (from, records) = (self.live_next, waiting.min(self.limits.batch_records));
        Ok(Plan { lane: Lane::Live, route: Route::Mqtt, from, to: from + records - 1 })
    }

    /// A backfill batch, or when to ask again.
    fn backfill(&mut self, now: Instant) -> Result<Plan, Option<Instant>> {
        if let Some(&(from, to)) = self.again.ranges().first() {
            return self.once_more(from, to, now);
        }
        let Some((from, to)) = self.lowest_hole() else {
            self.bulk.rest();
            return Err(None);
        };
        let (route, most) = match self.bulk.opening(self.backlog(), now) {
            Opening::Busy => return Err(None),
            Opening::Open(records) => (Route::Http, records),
            Opening::Closed if self.mqtt_is_blocked() => return Err(None),
            Opening::Closed if now < self.backfill_after => return Err(Some(self.backfill_after)),
            Opening::Closed => (Route::Mqtt, self.limits.batch_records),
        };
        // Small tokens gather for a quarter of a second, so that a slow rate does not make tiny batches.
        let chunk = (self.limits.backfill_rate / 4).clamp(1, most).min(to - from + 1);
        let tokens = self.bucket.available(now);
        if tokens < chunk {
            return Err(Some(self.bucket.when(chunk, now)));
        }
        let records = (to - from + 1).min(most).min(tokens);
        Ok(Plan { lane: Lane::Backfill, route, from, to: from + records - 1 })
    }

    /// A batch of what the edge has asked for again. It waits for no ack, so the bound on unacked batches is not its.
    fn once_more(&mut self, from: u64, to: u64, now: Instant) -> Result<Plan, Option<Instant>> {
        if !self.connected
            || self.window.in_lane(Lane::Backfill) + 1 >= self.limits.window
            || self.window.is_full()
        {
            return Err(None);
        }
        let chunk = (to - from + 1).min(self.limits.batch_records);
        let tokens = self.bucket.available(now);
        if tokens < chunk {
            return Err(Some(self.bucket.when(chunk, now)));
        }
        Ok(Plan { lane: Lane::Backfill, route: Route::Mqtt, from, to: from + chunk - 1 })
    }

    /// Whether backfill over MQTT has to wait. Live keeps a slot, and a window's worth of unacked batches, whatever
    /// the backlog does.
    fn mqtt_is_blocked(&self) -> bool {
        let unacked = self.sent.len() + self.limits.window >= self.limits.unacked;
        !self.connected
            || self.window.in_lane(Lane::Backfill) + 1 >= self.limits.window
            || self.window.is_full()
            || (unacked && !self.probing)
    }

    /// The driver has handed over a batch for `plan` that really covers `plan.from..=to`.
    pub fn sent(&mut self, plan: Plan, to: u64, now: Instant) -> BatchId {
        let id = BatchId::new(self.next_id);
        self.next_id += 1;
        if plan.from <= self.acked {
            self.again.remove(plan.from, to);
            self.window.take(id, plan.lane, now);
            self.bucket.take((to + 1).saturating_sub(plan.from), now);
            return id;
        }
        self.sent.push(Sent {
            id,
            from: plan.from,
            to,
            delivered_at: None,
            sent_once: plan.from > self.highest_sent,
        });
        self.under_way.insert(plan.from, to);
        self.highest_sent = self.highest_sent.max(to);
        match plan.route {
            Route::Mqtt => self.window.take(id, plan.lane, now),
            Route::Http => self.bulk.started(id),
        }
        self.live_next = self.live_next.max(to + 1);
        if plan.lane == Lane::Live {
            self.live_since = now;
        } else {
            self.probing = false;
            self.bucket.take((to + 1).saturating_sub(plan.from), now);
        }
        id
    }

    /// The spool had nothing to read for a plan, or could not be read.
    pub fn stalled(&mut self, now: Instant) {
        self.stalled_until = now + STALL;
    }

    /// The broker has taken a batch (PUBACK).
    pub fn delivered(&mut self, id: BatchId, now: Instant) {
        self.window.free(id, now);
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.id == id) {
            sent.delivered_at = Some(now);
        }
    }

    /// The client has lost a batch: the broker forgot the session. Its records are backlog again.
    pub fn undelivered(&mut self, id: BatchId, now: Instant) {
        self.window.free(id, now);
        self.sent.retain(|sent| sent.id != id);
        self.forget_given_up();
    }

    /// The edge has answered a post; its ack comes separately.
    pub fn http_done(&mut self, id: BatchId, now: Instant) {
        self.delivered(id, now);
        self.bulk.done();
    }

    /// A post failed. `our_fault` is a batch that the edge cannot read or that is too large for it: the next
    /// one is half as large. Until `retry_at` backfill goes over MQTT.
    pub fn http_failed(&mut self, id: BatchId, our_fault: bool, retry_at: Instant, now: Instant) {
        self.undelivered(id, now);
        self.bulk.failed(our_fault, retry_at);
    }

    /// The edge has spoken. `retained` marks what the broker had kept: it is true, but says nothing of whether
    /// the edge is there now. Returns the new `acked` if it has moved.
    pub fn ack(
        &mut self,
        ack: &Ack,
        own_epoch: bool,
        retained: bool,
        now: Instant,
    ) -> Result<Option<u64>, Ignored> {
        if !own_epoch {
            return Err(Ignored::ForeignEpoch);
        }
        if ack.acked_seq > self.head || ack.ranges.iter().any(|(_, to)| *to > self.head) {
            return Err(Ignored::BeyondHead);
        }
        if ack.acked_seq < self.acked {
            return Err(Ignored::Regressed);
        }
        let moved = ack.acked_seq > self.acked;
        self.acked = ack.acked_seq;
        if moved {
            self.under_way.remove(1, self.acked);
        }
        self.islands.learn(&ack.ranges, self.acked);
        let (acked, islands, patience) = (self.acked, &self.islands, &mut self.patience);
        self.sent.retain(|sent| {
            let covered = islands.cover(sent.from.max(acked + 1), sent.to);
            if let (true, Some(at)) = (covered, sent.delivered_at) {
                patience.acked(sent.id, at, sent.sent_once, now);
            }
            !covered
        });
        if retained {
            self.backfill_after = self.backfill_after.min(now);
        } else {
            self.patience.heard(now);
        }
        Ok(moved.then_some(self.acked))
    }

    /// The edge asks for records again. What it was thought to hold above `acked` is backlog again; what lies below is
    /// sent once more. Returns how many records it asks for.
    pub fn command(&mut self, command: &Command, own_epoch: bool) -> Result<u64, Ignored> {
        if !own_epoch {
            return Err(Ignored::ForeignEpoch);
        }
        if command.highest() > self.head {
            return Err(Ignored::BeyondHead);
        }
        let mut asked = 0u64;
        for &(from, to) in &command.resend {
            self.again.insert(from, to.min(self.acked));
            self.islands.forget(from, to);
            asked = asked.saturating_add(to - from + 1);
        }
        // What an island covered is under way no more.
        self.forget_given_up();
        Ok(asked)
    }

    /// Gives up waiting for lost batches: their records are backlog again. Returns when to look next.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        let before = self.sent.len();
        let patience = &self.patience;
        self.sent
            .retain(|sent| !sent.delivered_at.is_some_and(|at| patience.is_lost(sent.id, at, now)));
        let given_up = before - self.sent.len();
        if given_up > 0 {
            self.forget_given_up();
            self.resent_batches += given_up as u64;
        }
        let oldest = self.sent.iter().filter_map(|sent| Some((sent.delivered_at?, sent.id))).min();
        let (oldest_at, oldest_id) = oldest?;
        let mut next = self.patience.probe_at(oldest_at);
        if now >= next {
            self.sent.retain(|sent| sent.id != oldest_id);
            self.forget_given_up();
            self.resent_batches += 1;
            self.patience.probed(now);
            self.probing = true;
            next = self.patience.probe_at(now);
        }
        let delivered = self.sent.iter().filter_map(|sent| sent.delivered_at);
        let due = delivered.map(|at| self.patience.due(at)).filter(|at| *at > now).min();
        earlier(Some(next), due)
    }

    /// The lowest run of records that nobody has and that is not on its way.
    fn lowest_hole(&self) -> Option<(u64, u64)> {
        let not_sent = self.under_way.missing(self.acked + 1, self.live_next - 1);
        not_sent.flat_map(|(from, to)| self.islands.missing(from, to)).next()
    }

    /// After batches were given up. It happens seldom; sending and acking keep `under_way` up to date as they go.
    fn forget_given_up(&mut self) {
        self.under_way = RangeSet::new();
        for sent in &self.sent {
            self.under_way.insert(sent.from, sent.to);
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    [a, b].into_iter().flatten().min()
}
