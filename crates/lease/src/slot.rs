//! The loop of one slot: choose lanes, claim, hand over, hold, write the outcomes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use uuid::Uuid;

use crate::breaker::{Admission, Breaker};
use crate::error::Error;
use crate::id::RowId;
use crate::lanes::Ask;
use crate::queue::{Batch, Handler, Item, Outcome, Verdict};
use crate::settle::Settle;
use crate::store::{Claim, Claimed, Found, Hold};
use crate::verdict::{Judged, judge, lane_delay, suspects_together};
use crate::worker::{Options, Shared, lock, said};

/// A lane that somebody else works on is looked at again after this, at the least.
const BRIEFLY: Duration = Duration::from_millis(20);
/// A lane whose rows a handler gave back untouched rests this long.
const UNTRIED_REST: Duration = Duration::from_millis(50);

/// What a slot may do next.
enum Next {
    Claim(Admission, Vec<Ask>),
    /// Nothing until something happens, or for this long.
    Rest(Option<Duration>),
}

pub(crate) async fn run<T, H>(shared: Arc<Shared<T, H>>, mut stop: watch::Receiver<bool>)
where
    T: Send + 'static,
    H: Handler<T>,
{
    while !*stop.borrow() {
        // Listening comes before looking: a lane that becomes ready in between is heard.
        let mut changed = std::pin::pin!(shared.desk.work.notified());
        changed.as_mut().enable();
        match shared.next() {
            Next::Claim(admission, asks) => shared.work(admission, asks, &mut stop).await,
            Next::Rest(limit) => {
                let limit = limit.unwrap_or(shared.options.poll).min(shared.options.poll);
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep(limit) => {}
                    () = said(&mut stop) => {}
                }
            }
        }
    }
}

impl<T, H> Shared<T, H>
where
    T: Send + 'static,
    H: Handler<T>,
{
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn next(&self) -> Next {
        let now = self.options.clock.now();
        let mut lanes = lock(&self.desk.lanes);
        let mut breakers = lock(&self.desk.breakers);
        let mut rest: Option<Duration> = None;
        for destination in lanes.ready(self.now()) {
            let breaker = breakers
                .entry(destination.clone())
                .or_insert_with(|| Breaker::new(self.options.breaker.clone()));
            if let Admission::Wait(until) = breaker.look(now) {
                if let Some(until) = until {
                    let wait = self.options.clock.real_time(until.saturating_sub(now));
                    rest = Some(rest.map_or(wait, |rest| rest.min(wait)));
                }
                continue;
            }
            let asks = lanes.pick(&destination, self.options.batch);
            if !asks.is_empty() {
                return Next::Claim(breaker.admit(now), asks);
            }
        }
        if let Some(until) = lanes.next_ready() {
            let wait = until.saturating_sub(self.now());
            rest = Some(rest.map_or(wait, |rest| rest.min(wait)));
        }
        Next::Rest(rest)
    }

    async fn work(&self, admission: Admission, asks: Vec<Ask>, stop: &mut watch::Receiver<bool>) {
        let token = Uuid::new_v4();
        let began = Instant::now();
        let Options { worker, lease, max_attempts, .. } = &self.options;
        let claimed =
            self.queue.claim(&self.pool, worker, token, *lease, *max_attempts, &asks).await;
        self.meter.claim_took(began.elapsed());
        let claim = match claimed {
            Ok(claim) => claim,
            Err(error) => {
                self.claim_failed(admission, &asks, token, &error, stop).await;
                return;
            }
        };
        self.count_claim(&claim);
        let Claim { found, rows, hold, .. } = claim;
        for (ask, found) in asks.iter().zip(&found) {
            self.note_untaken(ask, found);
        }
        if rows.is_empty() {
            self.unused(admission, &asks);
            self.note_settled(&asks, &found, &[]);
            return;
        }
        let (kept, aside) = self.set_aside(rows, *stop.borrow());
        let ids: Vec<(usize, RowId)> =
            kept.iter().map(|row| (row.ask, row.item.id.clone())).collect();
        let mut all_written = true;
        if !aside.is_empty() {
            all_written &= self.write(&hold, &aside, &ids, stop).await;
        }
        if kept.is_empty() {
            self.unused(admission, &asks);
            self.note_settled(&asks, &found, &aside);
            return;
        }
        let mut settles = self.hand_over(admission, &asks, &hold, &ids, kept, stop).await;
        all_written &= self.write(&hold, &settles, &[], stop).await;
        if !all_written {
            self.note_unsure(&asks, &found);
            return;
        }
        settles.extend(aside);
        self.note_settled(&asks, &found, &settles);
    }

    fn count_claim(&self, claim: &Claim<T>) {
        let claimed = claim.rows.len() as u64 + claim.buried;
        self.meter.claimed.increment(claimed);
        self.meter.reclaimed.increment(claim.reclaimed);
        self.meter.buried.increment(claim.buried);
        let tally = &self.desk.tally;
        tally.claimed.fetch_add(claimed, Ordering::Relaxed);
        tally.reclaimed.fetch_add(claim.reclaimed, Ordering::Relaxed);
        tally.buried.fetch_add(claim.buried, Ordering::Relaxed);
        if claim.reclaimed > 0 {
            let (queue, reclaimed, buried) = (self.queue.name, claim.reclaimed, claim.buried);
            tracing::warn!(queue, reclaimed, buried, "rows taken over from lost leases");
        }
    }

    /// Nobody knows whether the claim went through. Were its rows left alone, their lease would
    /// expire and count an attempt for an outage of the database.
    async fn claim_failed(
        &self,
        admission: Admission,
        asks: &[Ask],
        token: Uuid,
        error: &Error,
        stop: &watch::Receiver<bool>,
    ) {
        let queue = self.queue.name;
        tracing::warn!(queue, %error, "a claim failed");
        self.meter.database_errors.increment(1);
        self.unused(admission, asks);
        let worker = &self.options.worker;
        let abandoned =
            self.until_done(stop, || self.queue.abandon(&self.pool, worker, token, asks)).await;
        if let Ok((rows @ 1.., _)) = abandoned {
            tracing::info!(queue, rows, "rows of a claim whose answer was lost were given back");
        }
        let until = self.now() + BRIEFLY;
        let mut lanes = lock(&self.desk.lanes);
        for ask in asks {
            lanes.wait(ask, ask.mark.clone(), until);
        }
    }

    fn note_untaken(&self, ask: &Ask, found: &Found) {
        let mut lanes = lock(&self.desk.lanes);
        lanes.entered(ask, !found.missing);
        if found.head.is_none() {
            lanes.forget(ask);
        } else if found.missing {
            // It was removed in between: it is made with the next claim.
            lanes.wait(ask, found.head.clone(), self.now());
        } else if found.taken == 0 {
            let wait = found.wait.clamp(BRIEFLY, self.options.poll.max(BRIEFLY));
            lanes.wait(ask, found.head.clone(), self.now() + wait);
        }
    }

    /// Nobody knows what became of the rows: another has taken them over, or the server crashed and
    /// took the claim back, so that they wait again. The lanes are looked at from where they were.
    fn note_unsure(&self, asks: &[Ask], found: &[Found]) {
        let until = self.now() + BRIEFLY;
        let mut lanes = lock(&self.desk.lanes);
        for (ask, _) in asks.iter().zip(found).filter(|(_, found)| found.taken > 0) {
            lanes.wait(ask, ask.mark.clone(), until);
        }
    }

    /// Notes what is left in the lanes that gave rows.
    fn note_settled(&self, asks: &[Ask], found: &[Found], settles: &[Settle]) {
        let mut of_lane: Vec<Vec<&Settle>> = asks.iter().map(|_| Vec::new()).collect();
        for settle in settles {
            if let Some(list) = of_lane.get_mut(settle.ask) {
                list.push(settle);
            }
        }
        let mut lanes = lock(&self.desk.lanes);
        for ((ask, found), rows) in asks.iter().zip(found).zip(of_lane) {
            if found.taken == 0 {
                continue;
            }
            let full = found.taken >= ask.take;
            match lane_delay(&rows) {
                Some(delay) => lanes.wait(ask, found.head.clone(), self.now() + delay),
                None if full || found.more => {
                    lanes.keep(ask, found.last.clone(), found.taken, full)
                }
                None => lanes.forget(ask),
            }
        }
        drop(lanes);
        self.desk.work.notify_waiters();
    }

    /// Puts aside what this batch does not try: all of it at a stop, rows behind one that was not
    /// taken, and the neighbours of a row whose last failure took its worker along.
    fn set_aside(&self, rows: Vec<Claimed<T>>, stopping: bool) -> (Vec<Claimed<T>>, Vec<Settle>) {
        let suspect = rows.iter().filter(|row| row.suspect).map(|row| row.item.attempts).max();
        let mut aside = Vec::new();
        if suspect.is_none() && !stopping && !rows.iter().any(|row| row.behind) {
            return (rows, aside);
        }
        let together = suspects_together(self.options.batch, suspect.unwrap_or_default());
        let lanes: std::collections::HashSet<usize> =
            rows.iter().filter(|row| row.suspect).map(|row| row.ask).collect();
        let mut kept = Vec::new();
        for row in rows {
            let chosen = suspect.is_none() || (lanes.contains(&row.ask) && kept.len() < together);
            if chosen && !stopping && !row.behind {
                kept.push(row);
            } else {
                let (ask, id, outcome) = (row.ask, row.item.id, Outcome::NotTried);
                aside.push(Settle { ask, id, outcome, delay: Duration::ZERO });
            }
        }
        (kept, aside)
    }

    /// Gives the batch to the handler and holds it until there is a verdict.
    async fn hand_over(
        &self,
        admission: Admission,
        asks: &[Ask],
        hold: &Hold,
        ids: &[(usize, RowId)],
        rows: Vec<Claimed<T>>,
        stop: &mut watch::Receiver<bool>,
    ) -> Vec<Settle> {
        let mut judged: Vec<Judged> = Vec::with_capacity(rows.len());
        let mut items: Vec<Item<T>> = Vec::with_capacity(rows.len());
        let mut unread = Vec::new();
        for (n, Claimed { ask, item, .. }) in rows.into_iter().enumerate() {
            let Item { id, lane, attempts, row } = item;
            let (outcome, delay) = (Outcome::NotTried, UNTRIED_REST);
            let settle = Settle { ask, id: id.clone(), outcome, delay };
            judged.push(Judged { attempts, settle });
            match row {
                Ok(row) => items.push(Item { id, lane, attempts, row }),
                Err(message) => unread.push((n, message)),
            }
        }
        let destination = asks.first().map(|ask| ask.destination.clone()).unwrap_or_default();
        let verdict = if items.is_empty() {
            self.unused(admission, asks);
            Some(Verdict::each(Vec::new()))
        } else {
            let probe = admission == Admission::Probe;
            let batch = Batch { token: hold.token, destination, probe, items };
            let verdict = self.hold(batch, hold, ids, stop).await;
            self.heed(admission, asks, verdict.as_ref());
            verdict
        };
        let mut outcomes = verdict.map(|verdict| verdict.outcomes).unwrap_or_default().into_iter();
        let mut unread = unread.into_iter().peekable();
        for (n, row) in judged.iter_mut().enumerate() {
            if let Some((_, message)) = unread.next_if(|(at, _)| *at == n) {
                let (reason, code) = ("unreadable_row".to_owned(), "ROW_UNREADABLE".to_owned());
                row.settle.outcome = Outcome::Bury { reason, code, message };
            } else {
                row.settle.outcome = outcomes.next().unwrap_or(Outcome::NotTried);
            }
        }
        let Options { max_attempts, backoff, .. } = &self.options;
        let disordered = judge(&mut judged, *max_attempts, backoff, rand::random::<f64>);
        self.meter.disordered.increment(disordered);
        judged.into_iter().map(|row| row.settle).collect()
    }

    /// Tells the breaker what the batch met.
    fn heed(&self, admission: Admission, asks: &[Ask], verdict: Option<&Verdict>) {
        let Some(ask) = asks.first() else { return };
        let now = self.options.clock.now();
        let mut breakers = lock(&self.desk.breakers);
        let Some(breaker) = breakers.get_mut(&ask.destination) else { return };
        let (queue, destination) = (self.queue.name, &*ask.destination);
        match verdict {
            Some(Verdict { down: Some(down), .. }) => {
                if breaker.down(now, admission, down.retry_after, rand::random()) {
                    self.meter.opened.increment(1);
                    let failures = breaker.failures();
                    tracing::warn!(queue, destination, failures, why = %down.why, "destination down");
                }
            }
            Some(_) => {
                if breaker.reached(admission) {
                    tracing::info!(queue, destination, "destination back");
                }
            }
            None => breaker.unused(now, admission),
        }
        let closed = |b: &&Breaker| b.state() != crate::breaker::State::Closed;
        self.meter.open_breakers(breakers.values().filter(closed).count());
        drop(breakers);
        self.desk.work.notify_waiters();
    }

    fn unused(&self, admission: Admission, asks: &[Ask]) {
        let now = self.options.clock.now();
        if let Some(ask) = asks.first()
            && let Some(breaker) = lock(&self.desk.breakers).get_mut(&ask.destination)
        {
            breaker.unused(now, admission);
        }
    }
}
