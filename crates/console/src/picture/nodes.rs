//! Nodes as they are shown: a row from a site's words, counts, and lists that are filtered and ordered. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::tick::age;
use super::{Liveness, NodeCounts, NodeRow};
use crate::upstream::WHOLE;
use crate::upstream::site::NodeFact;

/// A node at one moment: what is shown of it, and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct NodeEntry {
    pub(crate) row: NodeRow,
    pub(crate) fact: Arc<NodeFact>,
}

/// What a row is made of beside the site's words.
pub(super) struct Around<'a> {
    pub(super) site: &'a str,
    pub(super) here: bool,
    pub(super) now: Timestamp,
    pub(super) rate_per_s: Option<f64>,
    /// The cables of `up`, when this site is its site.
    pub(super) cables: Option<&'a BTreeMap<String, String>>,
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn row(fact: &NodeFact, around: &Around<'_>) -> NodeRow {
    let words = fact.status.as_ref();
    let liveness = match (around.here, fact.state.as_str()) {
        (false, _) => Liveness::Unknown,
        (true, "online") => Liveness::Online,
        (true, "late") => Liveness::Late,
        (true, "offline") => Liveness::Offline,
        (true, "never") => Liveness::Never,
        (true, _) => Liveness::Unknown,
    };
    let cable = around.cables.and_then(|cables| cables.get(&fact.node_id));
    let since = |then: Option<Timestamp>| then.map(|then| age(around.now, then));
    NodeRow {
        site: around.site.to_owned(),
        node_id: fact.node_id.clone(),
        label: fact.label.clone(),
        tenant_id: fact.tenant_id,
        farm_id: fact.farm_id,
        barn_id: fact.barn_id,
        device_id: fact.device_id,
        liveness,
        last_rx_at: fact.last_rx_at,
        rx_age_s: since(fact.last_rx_at),
        last_sample_at: fact.last_sample_ts,
        sample_age_s: since(fact.last_sample_ts),
        backlog: words.and_then(|words| words.backlog),
        oldest_age_s: oldest_age(fact, around.now),
        spool_bytes: words.and_then(|words| words.bytes),
        disk_free_bytes: words.and_then(|words| words.free_bytes),
        clock: words.and_then(|words| words.clock.clone()),
        drops: words.and_then(|words| words.drops),
        stored: count(fact.stored),
        lost: count(fact.lost) + count(fact.lost_before),
        quarantined: count(fact.quarantined),
        rate_per_s: around.rate_per_s.filter(|_| around.here),
        version: words.and_then(|words| words.version.clone()),
        disabled: fact.disabled_at.is_some(),
        flagged: fact
            .flagged_at
            .map(|_| fact.flag_reason.clone().unwrap_or_else(|| "flagged".to_owned())),
        cuttable: cable.is_some(),
        cut: cable.is_some_and(|state| state != WHOLE),
    }
}

/// For how long a node's oldest record waits: what it said, and what has passed since that came. The node's clock is compared with itself alone, so it may
/// show any time.
fn oldest_age(fact: &NodeFact, now: Timestamp) -> Option<f64> {
    let words = fact.status.as_ref()?;
    let waited = age(words.at?, words.oldest_at?);
    Some(waited + age(now, fact.status_at?))
}

/// Nodes added up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) counts: NodeCounts,
    pub(crate) produced: u64,
    pub(crate) backlog: u64,
    /// Seconds that the oldest record of any of them waits.
    pub(crate) oldest_age_s: Option<f64>,
    /// What the silent ones of them held when they said so last.
    pub(crate) silent_backlog: u64,
    /// Seconds since the first of these words came.
    pub(crate) silent_said_s: Option<f64>,
    pub(crate) lost: u64,
    pub(crate) quarantined: u64,
    pub(crate) cut: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, entry: &NodeEntry, now: Timestamp) {
        let row = &entry.row;
        let counts = &mut self.counts;
        counts.total += 1;
        *match row.liveness {
            Liveness::Online => &mut counts.online,
            Liveness::Late => &mut counts.late,
            Liveness::Offline => &mut counts.offline,
            Liveness::Never => &mut counts.never,
            Liveness::Unknown => &mut counts.unknown,
        } += 1;
        counts.with_backlog += u64::from(row.backlog.is_some_and(|backlog| backlog > 0));
        counts.clock_unset += u64::from(row.clock.as_deref() == Some("unset"));
        counts.flagged += u64::from(row.flagged.is_some());
        self.produced += produced(&entry.fact);
        self.backlog += row.backlog.unwrap_or(0);
        self.oldest_age_s = later(self.oldest_age_s, row.oldest_age_s);
        let held = row.backlog.filter(|held| *held > 0);
        if let (Liveness::Late | Liveness::Offline, Some(held)) = (row.liveness, held) {
            self.silent_backlog += held;
            let said = entry.fact.status_at.map(|then| age(now, then));
            self.silent_said_s = later(self.silent_said_s, said);
        }
        self.lost += row.lost;
        self.quarantined += row.quarantined;
        self.cut += u64::from(row.cut);
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        let (mine, theirs) = (&mut self.counts, &other.counts);
        mine.total += theirs.total;
        mine.online += theirs.online;
        mine.late += theirs.late;
        mine.offline += theirs.offline;
        mine.never += theirs.never;
        mine.unknown += theirs.unknown;
        mine.with_backlog += theirs.with_backlog;
        mine.clock_unset += theirs.clock_unset;
        mine.flagged += theirs.flagged;
        self.produced += other.produced;
        self.backlog += other.backlog;
        self.oldest_age_s = later(self.oldest_age_s, other.oldest_age_s);
        self.silent_backlog += other.silent_backlog;
        self.silent_said_s = later(self.silent_said_s, other.silent_said_s);
        self.lost += other.lost;
        self.quarantined += other.quarantined;
        self.cut += other.cut;
    }
}

/// The larger of two ages, where they are known.
fn later(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// What a node has made in all lives of its spool: of the newest its own word, or what the site knows; of those before, what the site knows.
/// The cloud counts what it has over all lives too, so that the two can be compared.
pub(super) fn produced(fact: &NodeFact) -> u64 {
    let known = count(fact.received) + count(fact.lost);
    let words = fact.status.as_ref().and_then(|words| words.epoch.zip(words.head));
    let since = match words {
        Some((epoch, head)) if Some(epoch) == fact.epoch => head.max(known),
        // A new life of which nothing has arrived yet; epochs are ordered by their time.
        Some((epoch, head)) if Some(epoch) > fact.epoch => known + head,
        _ => known,
    };
    since + count(fact.produced_before)
}

/// What of a node matters enough to tell every browser at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    liveness: Liveness,
    flags: (bool, bool, bool, bool),
    lost: u64,
    drops: Option<u64>,
    clock: Option<String>,
}

impl Signature {
    pub(super) fn of(row: &NodeRow) -> Signature {
        let behind =
            row.backlog.is_some_and(|backlog| backlog > 0) && row.liveness != Liveness::Online;
        Signature {
            liveness: row.liveness,
            flags: (row.disabled, row.flagged.is_some(), row.cut, behind),
            lost: row.lost,
            drops: row.drops,
            clock: row.clock.clone(),
        }
    }
}

/// By what a list is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    NodeId,
    Liveness,
    Backlog,
    RxAge,
    SampleAge,
    Lost,
    Rate,
    DiskFree,
}

impl std::str::FromStr for Sort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Sort, Self::Err> {
        Ok(match text {
            "node_id" => Sort::NodeId,
            "liveness" => Sort::Liveness,
            "backlog" => Sort::Backlog,
            "rx_age_s" => Sort::RxAge,
            "sample_age_s" => Sort::SampleAge,
            "lost" => Sort::Lost,
            "rate_per_s" => Sort::Rate,
            "disk_free_bytes" => Sort::DiskFree,
            _ => {
                return Err(
                    "one of node_id, liveness, backlog, rx_age_s, sample_age_s, lost, rate_per_s, disk_free_bytes",
                );
            }
        })
    }
}

/// Orders two rows; what is not known comes last, and equal ones are in the order of their names.
pub(super) fn compare(a: &NodeRow, b: &NodeRow, sort: Sort, down: bool) -> Ordering {
    fn known<T: PartialOrd>(a: Option<T>, b: Option<T>, down: bool) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => {
                let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
                if down { order.reverse() } else { order }
            }
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
    let name = |row: &NodeRow| (row.node_id.clone(), row.site.clone());
    let order = match sort {
        Sort::NodeId => known(Some(name(a)), Some(name(b)), down),
        Sort::Liveness => known(Some(a.liveness), Some(b.liveness), down),
        Sort::Backlog => known(a.backlog, b.backlog, down),
        Sort::RxAge => known(a.rx_age_s, b.rx_age_s, down),
        Sort::SampleAge => known(a.sample_age_s, b.sample_age_s, down),
        Sort::Lost => known(Some(a.lost), Some(b.lost), down),
        Sort::Rate => known(a.rate_per_s, b.rate_per_s, down),
        Sort::DiskFree => known(a.disk_free_bytes, b.disk_free_bytes, down),
    };
    order.then_with(|| name(a).cmp(&name(b)))
}
