//! Alerts: what an operator should look at, why, and what to do.
//!
//! `rules` says what holds at one moment, and is pure; `Watch` remembers since when; `told` compares it with what somebody outside was told, and
//! `webhook` tells them. docs/spec/console.md has the table.

mod disk;
mod plant;
mod rules;
mod schedules;
#[cfg(test)]
mod tests;
mod thresholds;
mod told;
mod webhook;

use std::collections::{BTreeSet, HashMap};

use axum::Json;
use axum::extract::{Extension, State};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

pub use disk::StateError;
pub use webhook::Webhook;
pub(crate) use webhook::{Telling, start as start_webhook};

use self::thresholds::Limit;
use crate::access::{Scope, User};
use crate::http::Http;
use crate::picture::{NodeEntry, Tick};

/// What flickers for less than this keeps its `since`.
const FLICKER: SignedDuration = SignedDuration::from_secs(5);
/// Drops that grew so long ago are no news.
const DROPS_FOR: SignedDuration = SignedDuration::from_mins(15);
/// A gap that was declared so long ago is no news.
const GAPS_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Nor is what was quarantined so long ago.
const QUARANTINE_FOR: SignedDuration = SignedDuration::from_mins(15);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    Critical,
    Warning,
}

/// One of them.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Alert {
    pub(crate) id: String,
    pub(crate) rule: &'static str,
    pub(crate) severity: Severity,
    /// What it is about, for people.
    pub(crate) subject: String,
    pub(crate) site: Option<String>,
    pub(crate) since: Timestamp,
    pub(crate) value: Option<f64>,
    pub(crate) threshold: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) text: String,
    pub(crate) what_to_do: &'static str,
    /// Whose it is; whoever sees everything sees it in any case.
    #[serde(skip)]
    tenants: BTreeSet<Uuid>,
    /// What it is judged by, where it must hold for a while first.
    #[serde(skip)]
    limit: Option<&'static Limit>,
}

/// The answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertList {
    at: Timestamp,
    items: Vec<Alert>,
}

impl Alert {
    pub(crate) fn is_for(&self, scope: &Scope) -> bool {
        scope.is_all() || self.tenants.iter().any(|tenant| scope.allows(*tenant))
    }

    pub(crate) fn is_critical(&self) -> bool {
        self.severity == Severity::Critical
    }
}

/// What a node's counters were, and when they last grew.
#[derive(Debug, Clone, Copy)]
struct Counters {
    drops: u64,
    dropped_at: Option<Timestamp>,
    lost: u64,
    lost_at: Option<Timestamp>,
    quarantined: u64,
    quarantined_at: Option<Timestamp>,
}

/// Which counters of a node have grown of late.
#[derive(Debug, Clone, Copy, Default)]
struct News {
    drops: bool,
    gaps: bool,
    quarantine: bool,
}

/// What is remembered from tick to tick.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Since when an alert holds, and when it last did; and the same of it as a critical one.
    known: HashMap<(String, bool), (Timestamp, Timestamp)>,
    nodes: HashMap<(String, String), Counters>,
}

impl Watch {
    /// What holds now, the worst first.
    pub(crate) fn look(&mut self, tick: &Tick, nodes: &[NodeEntry]) -> Vec<Alert> {
        self.count(tick.at, nodes);
        let mut found = rules::of_upstreams(tick);
        found.extend(rules::of_queues(tick));
        found.extend(rules::of_sites(tick));
        found.extend(plant::of_plant(tick));
        found.extend(plant::of_producers(tick));
        found.extend(schedules::of_schedules(tick));
        found.extend(rules::of_nodes(nodes, |entry| self.news(entry, tick.at)));
        found.retain_mut(|alert| self.has_lasted(alert, tick.at));
        self.known.retain(|_, (_, last)| tick.at.duration_since(*last) <= FLICKER);
        found.sort_by(|a, b| (a.severity, &a.id).cmp(&(b.severity, &b.id)));
        found
    }

    /// Says since when an alert holds, and whether that is long enough. What is not critical for long enough yet may be a warning.
    fn has_lasted(&mut self, alert: &mut Alert, now: Timestamp) -> bool {
        let mut held = |critical: bool| {
            let key = (alert.id.clone(), critical);
            let (since, last) = self.known.entry(key).or_insert((now, now));
            *last = now;
            (*since, now.duration_since(*since).as_secs_f64())
        };
        let (since, lasted) = held(false);
        alert.since = since;
        let critical = alert.is_critical().then(|| held(true).1);
        let Some(limit) = alert.limit else { return true };
        let [warning_after, critical_after] = limit.holds.map(f64::from);
        match critical {
            Some(lasted) if lasted >= critical_after => return true,
            Some(_) if limit.warning.is_none() => return false,
            Some(_) => (alert.severity, alert.threshold) = (Severity::Warning, limit.warning),
            None => {}
        }
        lasted >= warning_after
    }

    fn count(&mut self, now: Timestamp, nodes: &[NodeEntry]) {
        let mut before = std::mem::take(&mut self.nodes);
        for entry in nodes {
            let key = (entry.row.site.clone(), entry.row.node_id.clone());
            let (drops, lost) = (entry.row.drops.unwrap_or(0), entry.row.lost);
            let quarantined = entry.row.quarantined;
            let last = before.remove(&key).unwrap_or(Counters {
                drops,
                dropped_at: None,
                lost,
                lost_at: None,
                quarantined,
                quarantined_at: None,
            });
            let grew = quarantined > last.quarantined;
            let counters = Counters {
                drops,
                dropped_at: if drops > last.drops { Some(now) } else { last.dropped_at },
                lost,
                lost_at: if lost > last.lost { Some(now) } else { last.lost_at },
                quarantined,
                quarantined_at: if grew { Some(now) } else { last.quarantined_at },
            };
            self.nodes.insert(key, counters);
        }
    }

    /// What of a node's counters is news.
    fn news(&self, entry: &NodeEntry, now: Timestamp) -> News {
        let key = (entry.row.site.clone(), entry.row.node_id.clone());
        let Some(counters) = self.nodes.get(&key) else { return News::default() };
        let within =
            |at: Option<Timestamp>, span| at.is_some_and(|at| now.duration_since(at) <= span);
        News {
            drops: within(counters.dropped_at, DROPS_FOR),
            gaps: within(counters.lost_at, GAPS_FOR),
            quarantine: within(counters.quarantined_at, QUARANTINE_FOR),
        }
    }
}

/// What holds now.
#[utoipa::path(get, path = "/api/v1/alerts", operation_id = "alerts", tag = "alerts", responses((status = 200, body = AlertList)))]
pub(crate) async fn list(
    State(http): State<Http>,
    Extension(user): Extension<User>,
) -> Json<AlertList> {
    let snapshot = http.board.now();
    let seen = snapshot.alerts.iter().filter(|alert| alert.is_for(&user.scope)).cloned();
    Json(AlertList { at: snapshot.tick.at, items: seen.collect() })
}
