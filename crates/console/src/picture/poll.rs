//! Asks the upstreams: a task for each, one request at a time, at its own pace.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::board::Board;
use super::meter::{Meter, Slope};
use super::nodes::produced;
use super::tick::{CloudRates, Outbox, ProducerOutbox, age};
use super::{Breaker, Presence};
use crate::upstream::cloud::{self, CloudFacts};
use crate::upstream::historian::{self, HistorianFacts};
use crate::upstream::producer::{self, ProducerFacts};
use crate::upstream::schedule::{self, ScheduleFacts};
use crate::upstream::site::{self, NodeFact, SiteFacts, TenantOutbox};
use crate::upstream::{Fault, Upstreams};

/// An upstream that took so long is left alone for at least four times as long.
const PAUSE_PER_ANSWER: u32 = 4;
/// The longest pause that this makes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often a site is asked for its disk: that changes slowly, and its answer is long.
const DISK_EVERY: Duration = Duration::from_secs(10);
/// The most nodes of a site; further ones are not shown.
const MAX_NODES: usize = 20_000;

/// What an upstream said last.
#[derive(Debug)]
pub(super) struct Slot<T>(Mutex<Said<T>>);

/// See [`Slot`].
#[derive(Debug)]
pub(super) struct Said<T> {
    pub(super) presence: Presence,
    pub(super) since: Timestamp,
    pub(super) error: Option<String>,
    pub(super) took: Option<Duration>,
    pub(super) data: Option<Arc<T>>,
    /// How often it was asked, by what came of it.
    pub(super) polls: Polls,
}

/// See [`Said::polls`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Polls {
    pub(super) answered: u64,
    pub(super) busy: u64,
    pub(super) failed: u64,
}

impl<T> Clone for Said<T> {
    fn clone(&self) -> Said<T> {
        Said { error: self.error.clone(), data: self.data.clone(), ..*self }
    }
}

impl<T> Slot<T> {
    pub(super) fn new(now: Timestamp) -> Slot<T> {
        Slot(Mutex::new(Said {
            presence: Presence::Asking,
            since: now,
            error: None,
            took: None,
            data: None,
            polls: Polls::default(),
        }))
    }

    pub(super) fn said(&self) -> Said<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn put(&self, answer: Result<T, Fault>, took: Duration) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let polls = &mut said.polls;
        *match &answer {
            Ok(_) => &mut polls.answered,
            Err(fault) if fault.is_busy() => &mut polls.busy,
            Err(_) => &mut polls.failed,
        } += 1;
        // Others ask it as well: what it said last holds until it has time for us again.
        if answer.as_ref().is_err_and(Fault::is_busy) && said.presence == Presence::Here {
            return;
        }
        let presence = if answer.is_ok() { Presence::Here } else { Presence::Away };
        if said.presence != presence {
            (said.presence, said.since) = (presence, Timestamp::now());
        }
        said.took = Some(took);
        match answer {
            Ok(data) => (said.data, said.error) = (Some(Arc::new(data)), None),
            Err(fault) => said.error = Some(fault.to_string()),
        }
    }
}

/// A site with the rates that were taken of it.
#[derive(Debug, Default)]
pub(super) struct SiteSeen {
    pub(super) nodes: Vec<(Arc<NodeFact>, Option<f64>)>,
    /// Produced and stored, a second, by tenant.
    pub(super) rates: BTreeMap<Uuid, (Option<f64>, Option<f64>)>,
    pub(super) outbox: Option<BTreeMap<Uuid, Outbox>>,
    pub(super) clock_off_s: Option<f64>,
    pub(super) disk_over_bytes: Option<f64>,
}

/// A SCADA node with the rate that was taken of it.
#[derive(Debug)]
pub(super) struct ProducerSeen {
    pub(super) outbox: ProducerOutbox,
    pub(super) published_per_s: Option<f64>,
    pub(super) growth_per_s: Option<f64>,
}

/// The cloud with the rates that were taken of it.
#[derive(Debug)]
pub(super) struct CloudSeen {
    pub(super) facts: CloudFacts,
    pub(super) rates: BTreeMap<Uuid, CloudRates>,
    /// By how much what waits for the consumers grows a second.
    pub(super) growth_per_s: Option<f64>,
}

/// The slots of every upstream.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) sites: Vec<(String, Slot<SiteSeen>)>,
    pub(super) cloud: Option<Slot<CloudSeen>>,
    pub(super) historian: Option<Slot<HistorianFacts>>,
    pub(super) producers: Vec<(String, Slot<ProducerSeen>)>,
    pub(super) schedule: Option<Slot<ScheduleFacts>>,
    pub(super) control: Option<Slot<BTreeMap<String, String>>>,
}

impl Slots {
    pub(super) fn new(upstreams: &Upstreams, now: Timestamp) -> Slots {
        let slot = |name: &str| (name.to_owned(), Slot::new(now));
        Slots {
            sites: upstreams.sites.iter().map(|site| slot(&site.name)).collect(),
            cloud: upstreams.cloud.as_ref().map(|_| Slot::new(now)),
            historian: upstreams.historian.as_ref().map(|_| Slot::new(now)),
            producers: upstreams
                .producers
                .iter()
                .map(|one| (one.name.clone(), Slot::new(now)))
                .collect(),
            schedule: upstreams.schedule.as_ref().map(|_| Slot::new(now)),
            control: upstreams.control.as_ref().map(|_| Slot::new(now)),
        }
    }
}

/// Starts a task for each upstream, and the one that draws the picture.
pub(crate) fn start(
    upstreams: &Arc<Upstreams>,
    board: &Arc<Board>,
    every: Duration,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for index in 0..upstreams.sites.len() {
        let (upstreams, board) = (Arc::clone(upstreams), Arc::clone(board));
        tasks.spawn(until(stop, async move {
            let (remote, mut meters) = (&upstreams.sites[index], SiteMeters::default());
            let mut disk: Option<(Instant, Option<f64>)> = None;
            loop {
                let asked = Instant::now();
                let answer = site::poll(remote).await;
                if answer.is_ok() && disk.is_none_or(|(at, _)| at.elapsed() >= DISK_EVERY) {
                    disk = Some((asked, site::disk_over_bytes(remote).await));
                }
                let answer = answer.map(|facts| SiteSeen {
                    disk_over_bytes: disk.and_then(|(_, over)| over),
                    ..meters.look(facts, Instant::now())
                });
                rest(&board.slots().sites[index].1, answer, asked, every).await;
            }
        }));
    }
    for index in 0..upstreams.producers.len() {
        let (upstreams, board) = (Arc::clone(upstreams), Arc::clone(board));
        tasks.spawn(until(stop, async move {
            let (mut published, mut held) = (Meter::default(), Slope::default());
            loop {
                let asked = Instant::now();
                let answer = producer::poll(&upstreams.producers[index]).await;
                let answer =
                    answer.map(|facts| seen(&facts, &mut published, &mut held, Instant::now()));
                rest(&board.slots().producers[index].1, answer, asked, every).await;
            }
        }));
    }
    let (all, shown) = (Arc::clone(upstreams), Arc::clone(board));
    tasks.spawn(until(stop, async move {
        let (Some(cloud), Some(slot)) = (&all.cloud, &shown.slots().cloud) else { return };
        let mut meters = CloudMeters::default();
        loop {
            let asked = Instant::now();
            let answer = cloud::poll(cloud).await;
            rest(slot, answer.map(|facts| meters.look(facts, Instant::now())), asked, every).await;
        }
    }));
    let (all, shown) = (Arc::clone(upstreams), Arc::clone(board));
    tasks.spawn(until(stop, async move {
        let (Some(remote), Some(slot)) = (&all.historian, &shown.slots().historian) else { return };
        loop {
            let asked = Instant::now();
            rest(slot, historian::poll(remote).await, asked, every).await;
        }
    }));
    let (all, shown) = (Arc::clone(upstreams), Arc::clone(board));
    tasks.spawn(until(stop, async move {
        let (Some(remote), Some(slot)) = (&all.schedule, &shown.slots().schedule) else { return };
        loop {
            let asked = Instant::now();
            rest(slot, schedule::poll(remote).await, asked, every).await;
        }
    }));
    let (all, shown) = (Arc::clone(upstreams), Arc::clone(board));
    tasks.spawn(until(stop, async move {
        let (Some(control), Some(slot)) = (&all.control, &shown.slots().control) else { return };
        loop {
            let asked = Instant::now();
            rest(slot, control.states().await, asked, every).await;
        }
    }));
    let board = Arc::clone(board);
    tasks.spawn(until(stop, async move {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            board.draw(Timestamp::now());
        }
    }));
    tasks
}

/// The work, cut off when the console stops: nothing is lost with a poll.
fn until(
    stop: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let stop = stop.clone();
    async move {
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Keeps the answer, and waits for the next time to ask.
async fn rest<T>(slot: &Slot<T>, answer: Result<T, Fault>, asked: Instant, every: Duration) {
    let took = asked.elapsed();
    slot.put(answer, took);
    let pause = (took * PAUSE_PER_ANSWER).min(LONGEST_PAUSE).max(every.saturating_sub(took));
    tokio::time::sleep(pause).await;
}

#[derive(Debug, Default)]
pub(super) struct SiteMeters {
    nodes: HashMap<String, Meter>,
    tenants: BTreeMap<Uuid, (Meter, Meter)>,
}

impl SiteMeters {
    pub(super) fn look(&mut self, facts: SiteFacts, now: Instant) -> SiteSeen {
        let mut facts = facts;
        facts.nodes.truncate(MAX_NODES);
        let known: std::collections::HashSet<&str> =
            facts.nodes.iter().map(|node| node.node_id.as_str()).collect();
        self.nodes.retain(|name, _| known.contains(name.as_str()));
        let mut sums: BTreeMap<Uuid, (u64, u64)> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(facts.nodes.len());
        for fact in facts.nodes {
            let stored = u64::try_from(fact.stored).unwrap_or(0);
            let sum = sums.entry(fact.tenant_id).or_default();
            sum.0 += produced(&fact);
            sum.1 += stored;
            let rate = self.nodes.entry(fact.node_id.clone()).or_default().look(now, stored);
            nodes.push((Arc::new(fact), rate));
        }
        self.tenants.retain(|tenant, _| sums.contains_key(tenant));
        let rates = sums.into_iter().map(|(tenant, (produced, stored))| {
            let (by_nodes, by_site) = self.tenants.entry(tenant).or_default();
            (tenant, (by_nodes.look(now, produced), by_site.look(now, stored)))
        });
        let rates = rates.collect();
        let outbox = facts.outbox.map(|stats| {
            let each = stats.tenants.iter();
            each.map(|one| (one.tenant_id, outbox(one, stats.at))).collect()
        });
        let clock_off_s = facts.clock_off_s;
        SiteSeen { nodes, rates, outbox, clock_off_s, disk_over_bytes: None }
    }
}

/// A SCADA node, in the words of the picture.
fn seen(
    facts: &ProducerFacts,
    published: &mut Meter,
    held: &mut Slope,
    now: Instant,
) -> ProducerSeen {
    let outbox = ProducerOutbox {
        pending: facts.pending,
        oldest_s: facts.oldest_s,
        failed: facts.failed,
        in_progress: facts.in_progress,
        batch_size: facts.batch_size,
        // A node tells how many of its breakers are not closed, and not whether one tries again.
        breaker: facts.breakers_open.map(|open| match open > 0.0 {
            true => Breaker::Open,
            false => Breaker::Closed,
        }),
    };
    ProducerSeen {
        outbox,
        published_per_s: published.look(now, facts.published),
        growth_per_s: held.look(now, facts.pending + facts.in_progress),
    }
}

/// A tenant's outbox, in the words of the picture.
fn outbox(of: &TenantOutbox, at: Timestamp) -> Outbox {
    let rows = |states: &[&str]| {
        let found = states.iter().filter_map(|state| of.rows.get(*state));
        found.map(|count| u64::try_from(*count).unwrap_or(0)).sum::<u64>()
    };
    let waiting = rows(&["pending", "claimed", "sending"]);
    let oldest_age_s = of.oldest_at.map(|oldest| age(at, oldest));
    let open = of.paused_until.is_some_and(|until| until > at);
    let breaker = match (open, of.consecutive_failures) {
        (true, _) => Breaker::Open,
        (false, 0) => Breaker::Closed,
        (false, _) => Breaker::HalfOpen,
    };
    let since_last = of.last_acked_at.map_or(f64::INFINITY, |last| age(at, last));
    Outbox {
        waiting,
        dead: rows(&["dlq"]),
        stuck: u64::try_from(of.stuck).unwrap_or(0),
        oldest_age_s,
        in_per_s: of.arriving_per_second,
        out_per_s: of.acked_per_second,
        breaker: Some(breaker),
        paused_until: of.paused_until.filter(|_| open),
        last_failure: of.last_failure.clone(),
        still_s: if waiting == 0 { 0.0 } else { since_last.min(oldest_age_s.unwrap_or(0.0)) },
    }
}

#[derive(Debug, Default)]
struct CloudMeters {
    tenants: BTreeMap<Uuid, TenantMeter>,
    waiting: Slope,
}

#[derive(Debug)]
struct TenantMeter {
    accepted: Meter,
    left: Meter,
    /// What has left for the bus, as far as it can be told, and when it last grew.
    gone: u64,
    moved: Instant,
}

impl CloudMeters {
    fn look(&mut self, facts: CloudFacts, now: Instant) -> CloudSeen {
        self.tenants.retain(|tenant, _| facts.tenants.iter().any(|one| one.tenant_id == *tenant));
        let rates = facts.tenants.iter().map(|one| {
            let new = || TenantMeter {
                accepted: Meter::default(),
                left: Meter::default(),
                gone: 0,
                moved: now,
            };
            let meter = self.tenants.entry(one.tenant_id).or_insert_with(new);
            // Events without a sequence wait too and are not counted as accepted: what has left never goes down.
            let gone = one.accepted.saturating_sub(one.relay.waiting).max(meter.gone);
            if gone > meter.gone || one.relay.waiting == 0 {
                meter.moved = now;
            }
            meter.gone = gone;
            let rates = CloudRates {
                in_per_s: meter.accepted.look(now, one.accepted),
                out_per_s: meter.left.look(now, gone),
                still_s: now.saturating_duration_since(meter.moved).as_secs_f64(),
            };
            (one.tenant_id, rates)
        });
        let rates = rates.collect();
        let known = facts.consumers.as_ref().filter(|consumers| consumers.unknown.is_none());
        let waiting: Option<u64> =
            known.and_then(|known| known.queues.iter().map(|queue| queue.waiting).sum());
        let growth_per_s = match waiting {
            Some(waiting) => self.waiting.look(now, waiting),
            None => {
                self.waiting.forget();
                None
            }
        };
        CloudSeen { facts, rates, growth_per_s }
    }
}
