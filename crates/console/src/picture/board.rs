//! The board that everybody looks at: what was said last, drawn once a second, with its last ten minutes.
//!
//! Promise: drawing costs the same however many look; a picture is put into words once a tick for each set of tenants that somebody sees.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use super::nodes::{Around, NodeEntry, Signature, Tally, row};
use super::poll::{Polls, Said, Slot, Slots};
use super::tick::{
    CloudTick, PlantTick, ProducerTick, ScheduleTick, SiteTenant, SiteTick, Tick, age,
};
use super::{
    AlarmCounts, AlertCounts, LinkState, NodeCounts, NodeHistory, Picture, Presence, Upstream,
    UpstreamKind, flow,
};
use crate::access::Scope;
use crate::alerts::{Alert, Watch};
use crate::upstream::Upstreams;

/// Ten minutes at a tick a second.
pub(crate) const HISTORY: usize = 600;
/// A node's history has a point for so many ticks, and so many points.
const NODE_STEP: u64 = 5;
const NODE_POINTS: usize = 120;
/// Sets of tenants whose picture is kept in words during a tick; beyond it they are made anew each time.
const MAX_SCOPES: usize = 64;
/// A board that was not drawn for so long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// Everything of one tick.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) tick: Arc<Tick>,
    pub(crate) nodes: Vec<NodeEntry>,
    /// Places in `nodes` of those about which something changed.
    pub(crate) changed: Vec<usize>,
    pub(crate) removed: Vec<(String, String, Uuid)>,
    pub(crate) alerts: Vec<Alert>,
}

/// How often an upstream was asked.
#[derive(Debug)]
pub(crate) struct Poll {
    /// The id of the upstream.
    pub(crate) upstream: String,
    pub(crate) presence: Presence,
    pub(crate) answered: u64,
    /// It had no time for us.
    pub(crate) busy: u64,
    pub(crate) failed: u64,
}

type NodeKey = (String, String);
type NodePoint = (Timestamp, Option<u64>, Option<f64>, Option<f64>);

/// What is remembered from tick to tick.
#[derive(Debug, Default)]
struct Memory {
    ring: VecDeque<Arc<Tick>>,
    links: BTreeMap<String, (LinkState, Timestamp)>,
    signatures: HashMap<NodeKey, (Signature, Uuid)>,
    histories: HashMap<NodeKey, VecDeque<NodePoint>>,
    watch: Watch,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Board {
    slots: Slots,
    now: RwLock<Arc<Snapshot>>,
    memory: Mutex<Memory>,
    words: Mutex<(u64, BTreeMap<Scope, Bytes>)>,
    ticks: watch::Sender<u64>,
    drawn: Mutex<Instant>,
}

impl Board {
    pub(crate) fn new(upstreams: &Upstreams) -> Board {
        let board = Board {
            slots: Slots::new(upstreams, Timestamp::now()),
            now: RwLock::default(),
            memory: Mutex::default(),
            words: Mutex::default(),
            ticks: watch::Sender::new(0),
            drawn: Mutex::new(Instant::now()),
        };
        // So that whoever comes at once sees which upstreams there are.
        board.draw(Timestamp::now());
        board
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// What is known now.
    pub(crate) fn now(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows the ticks.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < DEAD_AFTER
    }

    /// How often each upstream was asked, and what came of it.
    pub(crate) fn polls(&self) -> Vec<Poll> {
        fn poll<T>(upstream: String, slot: &Slot<T>) -> Poll {
            let Said { presence, polls, .. } = slot.said();
            let Polls { answered, busy, failed } = polls;
            Poll { upstream, presence, answered, busy, failed }
        }
        let Slots { sites, cloud, historian, producers, schedule, control } = &self.slots;
        let mut all: Vec<Poll> = Vec::new();
        all.extend(sites.iter().map(|(name, slot)| poll(format!("site:{name}"), slot)));
        all.extend(cloud.iter().map(|slot| poll("cloud".to_owned(), slot)));
        all.extend(historian.iter().map(|slot| poll("historian".to_owned(), slot)));
        all.extend(producers.iter().map(|(name, slot)| poll(format!("producer:{name}"), slot)));
        all.extend(schedule.iter().map(|slot| poll("schedule".to_owned(), slot)));
        all.extend(control.iter().map(|slot| poll("up".to_owned(), slot)));
        all
    }

    /// The last ticks, oldest first.
    pub(crate) fn ring(&self) -> Vec<Arc<Tick>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.ring.iter().cloned().collect()
    }

    /// The tenants that any upstream has named, of those that somebody may see.
    pub(crate) fn tenants(&self, scope: &Scope) -> Vec<Uuid> {
        let tick = Arc::clone(&self.now().tick);
        let of_sites = tick.sites.iter().flat_map(|site| site.tenants.keys());
        let of_cloud = tick.cloud.iter().flat_map(|cloud| cloud.tenants.keys());
        let all: BTreeSet<Uuid> = of_sites.chain(of_cloud).copied().collect();
        all.into_iter().filter(|tenant| scope.allows(*tenant)).collect()
    }

    /// The last minutes of a node.
    pub(crate) fn node_history(&self, site: &str, node: &str) -> NodeHistory {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut history = NodeHistory { step_s: NODE_STEP, ..NodeHistory::default() };
        let key = (site.to_owned(), node.to_owned());
        for (at, backlog, rate, age) in memory.histories.get(&key).into_iter().flatten() {
            history.at.push(*at);
            history.backlog.push(*backlog);
            history.rate_per_s.push(*rate);
            history.sample_age_s.push(*age);
        }
        history
    }

    /// The picture in words, for whoever sees so much.
    pub(crate) fn words(&self, scope: &Scope) -> (u64, Bytes) {
        let snapshot = self.now();
        let number = snapshot.tick.number;
        let mut kept = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0 != number {
            *kept = (number, BTreeMap::new());
        }
        if let Some(words) = kept.1.get(scope) {
            return (number, words.clone());
        }
        // Numbers and names only: they can always be written.
        let words = Bytes::from(serde_json::to_vec(&show(&snapshot, scope)).unwrap_or_default());
        if kept.1.len() < MAX_SCOPES {
            kept.1.insert(scope.clone(), words.clone());
        }
        (number, words)
    }

    /// Puts together what was said last.
    pub(super) fn draw(&self, at: Timestamp) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let number = memory.ring.back().map_or(1, |last| last.number + 1);
        let (mut tick, nodes) = self.gather(number, at);
        let whole = flow::draw(&tick, &Scope::All);
        memory.links = flow::since(at, &whole, &memory.links);
        tick.since = memory.links.iter().map(|(id, (_, since))| (id.clone(), *since)).collect();
        let (changed, removed) = compare(&mut memory.signatures, &nodes);
        if number % NODE_STEP == 1 {
            remember(&mut memory.histories, &nodes, at);
        }
        let alerts = memory.watch.look(&tick, &nodes);
        let tick = Arc::new(tick);
        memory.ring.push_back(Arc::clone(&tick));
        if memory.ring.len() > HISTORY {
            memory.ring.pop_front();
        }
        let snapshot = Snapshot { tick, nodes, changed, removed, alerts };
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        drop(memory);
        *self.drawn.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.ticks.send_replace(number);
    }

    fn gather(&self, number: u64, at: Timestamp) -> (Tick, Vec<NodeEntry>) {
        let mut tick = Tick { number, at, ..Tick::default() };
        let mut nodes = Vec::new();
        let cables = self.slots.control.as_ref().map(|slot| {
            let said = slot.said();
            tick.upstreams.push(upstream("up".to_owned(), UpstreamKind::Up, "up", &said));
            said.data.filter(|_| said.presence == Presence::Here)
        });
        tick.cables = cables.flatten();
        for (index, (name, slot)) in self.slots.sites.iter().enumerate() {
            let said = slot.said();
            tick.upstreams.push(upstream(format!("site:{name}"), UpstreamKind::Site, name, &said));
            let here = said.presence == Presence::Here;
            let mut site = SiteTick { name: name.clone(), here, ..SiteTick::default() };
            if let Some(seen) = &said.data {
                (site.disk_over_bytes, site.clock_off_s) = (seen.disk_over_bytes, seen.clock_off_s);
                site.forwards = seen.outbox.is_some();
                let cables = tick.cables.as_deref().filter(|_| index == 0);
                for (fact, rate) in &seen.nodes {
                    let around = Around { site: name, here, now: at, rate_per_s: *rate, cables };
                    let entry = NodeEntry { row: row(fact, &around), fact: Arc::clone(fact) };
                    site.tenants.entry(fact.tenant_id).or_default().nodes.add(&entry, at);
                    nodes.push(entry);
                }
                for (tenant, (produced, stored)) in &seen.rates {
                    let part: &mut SiteTenant = site.tenants.entry(*tenant).or_default();
                    (part.produced_per_s, part.stored_per_s) = (*produced, *stored);
                }
                for (tenant, outbox) in seen.outbox.iter().flatten() {
                    site.tenants.entry(*tenant).or_default().outbox = Some(outbox.clone());
                }
            }
            tick.sites.push(site);
        }
        tick.cloud = self.slots.cloud.as_ref().map(|slot| {
            let said = slot.said();
            tick.upstreams.push(upstream("cloud".to_owned(), UpstreamKind::Cloud, "cloud", &said));
            let here = said.presence == Presence::Here;
            let seen = said
                .data
                .map(|seen| CloudTick::of(&seen.facts, &seen.rates, seen.growth_per_s, at));
            CloudTick { here, ..seen.unwrap_or_else(CloudTick::unknown) }
        });
        tick.plant = self.slots.historian.as_ref().map(|slot| {
            let said = slot.said();
            let kind = UpstreamKind::Historian;
            tick.upstreams.push(upstream("historian".to_owned(), kind, "historian", &said));
            let here = said.presence == Presence::Here;
            match said.data {
                None => PlantTick::default(),
                Some(facts) => PlantTick {
                    here,
                    stored_per_s: facts.stored_per_second,
                    newest_age_s: facts.newest_at.map(|newest| age(at, newest)),
                    dead_letters: facts.dead_letters,
                    problems: facts.problems.clone(),
                    alarms: facts.alarms.clone(),
                    floods: facts.floods.clone(),
                },
            }
        });
        for (name, slot) in &self.slots.producers {
            let (said, kind) = (slot.said(), UpstreamKind::Producer);
            tick.upstreams.push(upstream(format!("producer:{name}"), kind, name, &said));
            let mut producer = ProducerTick { name: name.clone(), ..ProducerTick::default() };
            producer.here = said.presence == Presence::Here;
            if let Some(seen) = &said.data {
                producer.outbox = seen.outbox.clone();
                producer.published_per_s = seen.published_per_s;
                producer.growth_per_s = seen.growth_per_s;
            }
            tick.producers.push(producer);
        }
        if let Some(slot) = &self.slots.schedule {
            let (said, kind) = (slot.said(), UpstreamKind::Schedule);
            tick.upstreams.push(upstream("schedule".to_owned(), kind, "schedules", &said));
            tick.schedule = said.data.as_ref().map(|facts| ScheduleTick {
                here: said.presence == Presence::Here,
                captures_oldest_s: facts.sessions_oldest_seconds,
                messages_oldest_s: facts.messages_oldest_seconds,
            });
        }
        (tick, nodes)
    }
}

fn upstream<T>(id: String, kind: UpstreamKind, name: &str, said: &Said<T>) -> Upstream {
    Upstream {
        id,
        kind,
        name: name.to_owned(),
        state: said.presence,
        since: said.since,
        error: said.error.clone(),
        took_ms: said.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn key(entry: &NodeEntry) -> NodeKey {
    (entry.row.site.clone(), entry.row.node_id.clone())
}

/// Which nodes changed, and which are gone.
fn compare(
    known: &mut HashMap<NodeKey, (Signature, Uuid)>,
    nodes: &[NodeEntry],
) -> (Vec<usize>, Vec<(String, String, Uuid)>) {
    let mut before = std::mem::take(known);
    let mut changed = Vec::new();
    for (index, entry) in nodes.iter().enumerate() {
        let (key, signature) = (key(entry), Signature::of(&entry.row));
        if before.remove(&key).is_none_or(|(last, _)| last != signature) {
            changed.push(index);
        }
        known.insert(key, (signature, entry.row.tenant_id));
    }
    let gone = before.into_iter().map(|((site, node), (_, tenant))| (site, node, tenant));
    (changed, gone.collect())
}

fn remember(
    histories: &mut HashMap<NodeKey, VecDeque<NodePoint>>,
    nodes: &[NodeEntry],
    at: Timestamp,
) {
    let mut before = std::mem::take(histories);
    for entry in nodes {
        let (key, row) = (key(entry), &entry.row);
        let mut points = before.remove(&key).unwrap_or_default();
        points.push_back((at, row.backlog, row.rate_per_s, row.sample_age_s));
        if points.len() > NODE_POINTS {
            points.pop_front();
        }
        histories.insert(key, points);
    }
}

/// The picture, for whoever sees so much.
pub(crate) fn show(snapshot: &Snapshot, scope: &Scope) -> Picture {
    let tick = &snapshot.tick;
    let seen = snapshot.nodes.iter().filter(|entry| scope.allows(entry.row.tenant_id));
    let mut tally = Tally::default();
    seen.for_each(|entry| tally.add(entry, tick.at));
    let counts: NodeCounts = tally.counts;
    let mut alerts = AlertCounts::default();
    for alert in snapshot.alerts.iter().filter(|alert| alert.is_for(scope)) {
        *if alert.is_critical() { &mut alerts.critical } else { &mut alerts.warning } += 1;
    }
    let plant = tick.plant.as_ref().filter(|plant| scope.is_all() && plant.here);
    Picture {
        tick: tick.number,
        at: tick.at,
        upstreams: tick.upstreams.iter().filter(|one| visible(one, tick, scope)).cloned().collect(),
        flow: flow::draw(tick, scope),
        totals: flow::totals(tick, scope),
        nodes: counts,
        alerts,
        alarms: plant.map(|plant| AlarmCounts {
            active_unacknowledged: plant.alarms.active_unacknowledged,
            active_acknowledged: plant.alarms.active_acknowledged,
            cleared_unacknowledged: plant.alarms.cleared_unacknowledged,
            shelved: plant.alarms.shelved,
            flood: !plant.floods.is_empty(),
        }),
    }
}

/// A site is shown to those who see something of it, the historian and schedules to those who see everything.
fn visible(one: &Upstream, tick: &Tick, scope: &Scope) -> bool {
    match one.kind {
        UpstreamKind::Cloud => true,
        UpstreamKind::Up
        | UpstreamKind::Historian
        | UpstreamKind::Producer
        | UpstreamKind::Schedule => scope.is_all(),
        UpstreamKind::Site => {
            let site = tick.sites.iter().find(|site| site.name == one.name);
            site.is_some_and(|site| flow::site_part(site, scope).is_some())
        }
    }
}
