//! What one worker process knows of the lanes that have work, and whom it asks next. Pure.
//!
//! A lane is the rows of one tenant, priority and ordering key; its rows leave in order, so the
//! whole lane is taken by one claim at a time. The database is the truth: this is a bounded note of
//! where to look. A lane missing here is found again by the sweep, one too many costs one look.
//!
//! Promises of [`Lanes::pick`]: tenants share a batch evenly, as far as they have work; within a
//! tenant a higher priority goes first; within a priority lanes take turns, with up to [`RUN`] rows
//! each, or evenly more when that does not fill the batch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::id::RowId;
use crate::share::fair;

/// What a lane is taken to hold until it is known better; it doubles whenever that was not enough.
const UNKNOWN_ROWS: u32 = 64;

/// What a lane gives in one turn, if it has as much. Every lane of a claim costs about as much as ten
/// rows do, so a few rows of each of many would be dear.
const RUN: u32 = 50;

/// The rows of one tenant, priority and ordering key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The tenant, as text.
    pub tenant: Arc<str>,
    /// The rank: lower goes first. A table with a priority column has its negative here.
    pub rank: i32,
    /// The ordering key, as text. A row without one has its own id here.
    pub key: Arc<str>,
}

/// A place in a lane's order, before which no unfinished row was seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) at: Timestamp,
    /// `None` stands before every id of that time.
    pub(crate) id: Option<RowId>,
}

/// One lane to be asked in a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) destination: Arc<str>,
    pub(crate) lane: Lane,
    pub(crate) mark: Option<Mark>,
    pub(crate) take: u32,
    /// Its lane row was there when it was last asked. Without meaning where rows have the leases.
    pub(crate) entered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ready,
    Asked,
    Waiting,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    mark: Option<Mark>,
    rows: u32,
    entered: bool,
    /// News came while it was asked: look again afterwards, whatever the answer.
    again: bool,
}

#[derive(Debug, Default)]
struct Band {
    lanes: HashMap<Arc<str>, Entry>,
    ready: VecDeque<Arc<str>>,
    ready_rows: u64,
}

type Bands = BTreeMap<i32, Band>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lanes {
    destinations: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Bands>>,
    waiting: BinaryHeap<Reverse<(Duration, Arc<str>, Lane)>>,
    count: usize,
    max: usize,
    slots: usize,
    turn: usize,
}

impl Lanes {
    /// Room for `max` lanes, and for a fair part of that for every tenant beyond. `slots` is how
    /// many pick side by side: none takes more than its part of the lanes.
    pub(crate) fn new(max: usize, slots: usize) -> Lanes {
        let (destinations, waiting) = (BTreeMap::new(), BinaryHeap::new());
        Lanes { destinations, waiting, count: 0, max, slots, turn: 0 }
    }

    /// Notes that a lane has work. `rows` is how many rows are new, if known; `from` the place of
    /// the first of them, which may be before rows that have left. False when there is no room.
    pub(crate) fn learn(
        &mut self,
        destination: &Arc<str>,
        lane: Lane,
        rows: Option<u32>,
        from: Option<Mark>,
    ) -> bool {
        let (count, max) = (self.count, self.max);
        let tenants = self.destinations.entry(destination.clone()).or_default();
        let fair_part = max / (tenants.len() + 1);
        let bands = tenants.entry(lane.tenant.clone()).or_default();
        let of_tenant: usize = bands.values().map(|band| band.lanes.len()).sum();
        let band = bands.entry(lane.rank).or_default();
        let Some(entry) = band.lanes.get_mut(&lane.key) else {
            if count >= max && of_tenant >= fair_part {
                return false;
            }
            let rows = rows.unwrap_or(UNKNOWN_ROWS).max(1);
            let (standing, mark) = (Standing::Ready, None);
            let entry = Entry { standing, mark, rows, entered: false, again: false };
            band.lanes.insert(lane.key.clone(), entry);
            band.ready.push_back(lane.key);
            band.ready_rows += u64::from(rows);
            self.count += 1;
            return true;
        };
        let Some(rows) = rows else {
            // A sweep tells what is known already, but for a row that came late and that no fresh
            // look saw: the next claim looks for it from the lane's beginning.
            entry.mark = None;
            entry.again |= entry.standing == Standing::Asked;
            return true;
        };
        if from < entry.mark {
            entry.mark = from;
        }
        match entry.standing {
            Standing::Ready => {
                band.ready_rows += u64::from(rows);
                entry.rows = entry.rows.saturating_add(rows);
            }
            Standing::Asked => {
                entry.again = true;
                entry.rows = entry.rows.saturating_add(rows);
            }
            Standing::Waiting => {
                entry.standing = Standing::Ready;
                entry.rows = entry.rows.saturating_add(rows);
                band.ready_rows += u64::from(entry.rows);
                band.ready.push_back(lane.key);
            }
        }
        true
    }

    /// The destinations that have lanes ready now, the one whose turn it is first.
    pub(crate) fn ready(&mut self, now: Duration) -> Vec<Arc<str>> {
        while let Some(Reverse((until, _, _))) = self.waiting.peek()
            && *until <= now
            && let Some(Reverse((_, destination, lane))) = self.waiting.pop()
        {
            self.make_ready(&destination, &lane, Standing::Waiting);
        }
        let mut ready: Vec<Arc<str>> = self
            .destinations
            .iter()
            .filter(|(_, tenants)| tenants.values().any(has_ready))
            .map(|(destination, _)| destination.clone())
            .collect();
        if !ready.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            let turn = self.turn % ready.len();
            ready.rotate_left(turn);
        }
        ready
    }

    /// When the next waiting lane becomes ready.
    pub(crate) fn next_ready(&self) -> Option<Duration> {
        self.waiting.peek().map(|Reverse((until, _, _))| *until)
    }

    /// How many lanes are noted.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Chooses lanes of a destination for a claim of `limit` rows. They count as asked until
    /// [`Lanes::keep`], [`Lanes::wait`] or [`Lanes::forget`].
    pub(crate) fn pick(&mut self, destination: &Arc<str>, limit: u32) -> Vec<Ask> {
        let Some(tenants) = self.destinations.get_mut(destination) else {
            return Vec::new();
        };
        let mut working: Vec<(&Arc<str>, &mut Bands)> =
            tenants.iter_mut().filter(|(_, bands)| has_ready(bands)).collect();
        if working.is_empty() {
            return Vec::new();
        }
        // A batch smaller than the number of tenants must not always go to the same ones.
        let turn = self.turn % working.len();
        working.rotate_left(turn);
        let demands: Vec<u32> = working
            .iter()
            .map(|(_, bands)| bands.values().map(|band| band.ready_rows).sum::<u64>())
            .map(|rows| u32::try_from(rows).unwrap_or(u32::MAX))
            .collect();
        let mut asks = Vec::new();
        for ((tenant, bands), mut left) in working.into_iter().zip(fair(limit, &demands)) {
            for (rank, band) in bands.iter_mut() {
                for (key, take) in band.pick(left, self.slots) {
                    left -= take;
                    let entry = band.lanes.get(&key);
                    let mark = entry.and_then(|entry| entry.mark.clone());
                    let entered = entry.is_some_and(|entry| entry.entered);
                    let lane = Lane { tenant: tenant.clone(), rank: *rank, key };
                    asks.push(Ask { destination: destination.clone(), lane, mark, take, entered });
                }
            }
        }
        asks
    }

    /// The lane was asked and may have more: it is ready again. `mark` is the place before which
    /// nothing is unfinished, `taken` how many rows it gave, `full` whether that was all it was
    /// asked for.
    pub(crate) fn keep(&mut self, ask: &Ask, mark: Option<Mark>, taken: u32, full: bool) {
        if let Some(entry) = self.entry(ask) {
            entry.mark = lower(entry.mark.take(), mark, ask, entry.again);
            let left = entry.rows.saturating_sub(taken);
            entry.rows = if full { left.max(taken.saturating_mul(2)) } else { left }.max(1);
            entry.again = false;
        }
        self.make_ready(&ask.destination, &ask.lane, Standing::Asked);
    }

    /// The lane was asked and gives nothing before `until`.
    pub(crate) fn wait(&mut self, ask: &Ask, mark: Option<Mark>, until: Duration) {
        let Some(entry) = self.entry(ask) else { return };
        entry.mark = lower(entry.mark.take(), mark, ask, entry.again);
        if entry.again {
            entry.again = false;
            self.make_ready(&ask.destination, &ask.lane, Standing::Asked);
        } else {
            entry.standing = Standing::Waiting;
            self.waiting.push(Reverse((until, ask.destination.clone(), ask.lane.clone())));
        }
    }

    /// The lane was asked and is empty.
    pub(crate) fn forget(&mut self, ask: &Ask) {
        let Some(entry) = self.entry(ask) else { return };
        if entry.again {
            entry.again = false;
            entry.rows = 1;
            self.make_ready(&ask.destination, &ask.lane, Standing::Asked);
            return;
        }
        if let Some(tenants) = self.destinations.get_mut(&ask.destination)
            && let Some(bands) = tenants.get_mut(&ask.lane.tenant)
            && let Some(band) = bands.get_mut(&ask.lane.rank)
        {
            band.lanes.remove(&ask.lane.key);
            self.count -= 1;
            if band.lanes.is_empty() {
                bands.remove(&ask.lane.rank);
            }
            if bands.is_empty() {
                tenants.remove(&ask.lane.tenant);
            }
        }
    }

    /// Whether the lane's row is there.
    pub(crate) fn entered(&mut self, ask: &Ask, entered: bool) {
        if let Some(entry) = self.entry(ask) {
            entry.entered = entered;
        }
    }

    fn entry(&mut self, ask: &Ask) -> Option<&mut Entry> {
        let bands = self.destinations.get_mut(&ask.destination)?.get_mut(&ask.lane.tenant)?;
        bands.get_mut(&ask.lane.rank)?.lanes.get_mut(&ask.lane.key)
    }

    /// Only from the standing given: a wait that was cut short by news leaves its timer behind.
    fn make_ready(&mut self, destination: &Arc<str>, lane: &Lane, from: Standing) {
        if let Some(tenants) = self.destinations.get_mut(destination)
            && let Some(bands) = tenants.get_mut(&lane.tenant)
            && let Some(band) = bands.get_mut(&lane.rank)
            && let Some(entry) = band.lanes.get_mut(&lane.key)
            && entry.standing == from
        {
            entry.standing = Standing::Ready;
            band.ready_rows += u64::from(entry.rows);
            band.ready.push_back(lane.key.clone());
        }
    }
}

/// The lane's mark after an answer. News that came meanwhile may lie before what the answer says.
fn lower(noted: Option<Mark>, answered: Option<Mark>, ask: &Ask, again: bool) -> Option<Mark> {
    if again && noted < ask.mark { noted } else { answered.or(noted) }
}

fn has_ready(bands: &Bands) -> bool {
    bands.values().any(|band| !band.ready.is_empty())
}

impl Band {
    fn pick(&mut self, limit: u32, slots: usize) -> Vec<(Arc<str>, u32)> {
        let (mut asked, mut wanted) = (0, 0);
        let mut rows: Vec<u32> = Vec::new();
        for key in self.ready.iter().take(self.ready.len().div_ceil(slots)) {
            if wanted >= limit {
                break;
            }
            rows.push(self.lanes.get(key).map_or(0, |entry| entry.rows));
            wanted = wanted.saturating_add(rows[asked].clamp(1, RUN));
            asked += 1;
        }
        let keys: Vec<Arc<str>> = self.ready.drain(..asked).collect();
        for key in &keys {
            if let Some(entry) = self.lanes.get_mut(key) {
                entry.standing = Standing::Asked;
                self.ready_rows -= u64::from(entry.rows);
            }
        }
        let takes = fair(limit, &rows);
        keys.into_iter().zip(takes).collect()
    }
}

#[cfg(test)]
mod tests;
