//! What somebody outside was told of alerts, and what they are still to be told. Pure.
//!
//! Promises: every alert that was told as begun is told as ended, in this order, each under an id that stays the same however often it is sent.
//! An alert that nobody can judge, because whoever knows is away, is not ended. What waits is bounded: when it is full, what is new waits for
//! a place, and is told then if it still holds.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Alert;
use crate::picture::{Presence, Tick, UpstreamKind};

/// The most that waits to be told.
pub(super) const MAX_WAITING: usize = 1_000;
/// The most alerts that are told as begun and not as ended; a site with that much wrong has told enough.
const MAX_OPEN: usize = 5_000;
/// An alert has ended when it has not held for this long, so that what flickers is told once.
const ENDS_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What happened to an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Happened {
    Began,
    /// It was a warning and is critical.
    Worsened,
    Ended,
}

impl Happened {
    fn as_str(self) -> &'static str {
        match self {
            Happened::Began => "began",
            Happened::Worsened => "worsened",
            Happened::Ended => "ended",
        }
    }
}

/// One thing to tell. As JSON it is the body of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct News {
    /// The same however often it is sent.
    pub(super) id: String,
    pub(super) state: Happened,
    /// When it was noticed.
    pub(super) at: Timestamp,
    /// The alert as the page shows it; at its end, as it last was.
    pub(super) alert: Value,
}

/// An alert that was told as begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Open {
    since: Timestamp,
    critical: bool,
    alert: Value,
    /// Since when it does not hold, as far as it can be judged. Not kept: after a restart it is looked at anew.
    #[serde(skip)]
    gone_since: Option<Timestamp>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    open: BTreeMap<String, Open>,
    waiting: VecDeque<News>,
}

impl Told {
    /// Compares what holds now with what was told; says whether there is something new to tell.
    pub(super) fn look(&mut self, alerts: &[Alert], tick: &Tick) -> bool {
        let before = self.waiting.len();
        for alert in alerts {
            self.holds(alert, tick.at);
        }
        let holds: std::collections::BTreeSet<&str> =
            alerts.iter().map(|alert| alert.id.as_str()).collect();
        let mut ended = Vec::new();
        for (id, open) in &mut self.open {
            if holds.contains(id.as_str()) || !can_be_judged(id, &open.alert, tick) {
                open.gone_since = None;
                continue;
            }
            let gone_since = *open.gone_since.get_or_insert(tick.at);
            if tick.at.duration_since(gone_since) >= ENDS_AFTER {
                ended.push(id.clone());
            }
        }
        for id in ended {
            if self.waiting.len() < MAX_WAITING
                && let Some(open) = self.open.remove(&id)
            {
                self.tell(Happened::Ended, &id, open.since, tick.at, open.alert);
            }
        }
        self.waiting.len() > before
    }

    fn holds(&mut self, alert: &Alert, now: Timestamp) {
        // Names and numbers: they can always be written.
        let shown = serde_json::to_value(alert).unwrap_or_default();
        let full = self.waiting.len() >= MAX_WAITING;
        let many = self.open.len() >= MAX_OPEN;
        let happened = match self.open.get_mut(&alert.id) {
            None if full || many => return,
            None => Happened::Began,
            Some(open) => {
                let worse = alert.is_critical() && !open.critical;
                open.alert = shown.clone();
                if !worse || full {
                    return;
                }
                open.critical = true;
                Happened::Worsened
            }
        };
        let since = self.open.get(&alert.id).map_or(alert.since, |open| open.since);
        if happened == Happened::Began {
            let critical = alert.is_critical();
            let open = Open { since, critical, alert: shown.clone(), gone_since: None };
            self.open.insert(alert.id.clone(), open);
        }
        self.tell(happened, &alert.id, since, now, shown);
    }

    fn tell(&mut self, state: Happened, id: &str, since: Timestamp, at: Timestamp, alert: Value) {
        let id = format!("{}:{id}@{}", state.as_str(), since.as_millisecond());
        self.waiting.push_back(News { id, state, at, alert });
    }

    /// What is to be told next.
    pub(super) fn next(&self) -> Option<&News> {
        self.waiting.front()
    }

    /// It was told, or never will be.
    pub(super) fn done(&mut self, id: &str) {
        if self.waiting.front().is_some_and(|news| news.id == id) {
            self.waiting.pop_front();
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Whether those who know of an alert answer: an alert that is not heard of has not ended.
fn can_be_judged(id: &str, alert: &Value, tick: &Tick) -> bool {
    // One that is not configured any more says nothing, for ever.
    let here = |upstream: &str| {
        let found = tick.upstreams.iter().find(|one| one.id == upstream);
        found.is_none_or(|one| one.state == Presence::Here)
    };
    if let Some(upstream) = id.strip_prefix("upstream_away:") {
        return here(upstream);
    }
    if let Some(site) = alert["site"].as_str() {
        return here(&format!("site:{site}"));
    }
    if let Some(producer) = alert["subject"].as_str().filter(|of| of.starts_with("producer:")) {
        return here(producer);
    }
    if alert["subject"].as_str().is_some_and(|of| of.starts_with("schedule:")) {
        return here("schedule");
    }
    // A bus that cannot be asked says nothing of what waits there.
    let unknown = tick.cloud.as_ref().is_some_and(|cloud| cloud.consumers.unknown.is_some());
    if unknown && (id.starts_with("not_consumed:") || id.starts_with("consumers_behind:")) {
        return false;
    }
    let shared = |kind| matches!(kind, UpstreamKind::Cloud | UpstreamKind::Historian);
    let of_all = tick.upstreams.iter().filter(|one| shared(one.kind));
    of_all.into_iter().all(|one| one.state == Presence::Here)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::alerts::Severity;
    use crate::picture::Upstream;

    fn at(seconds: i64) -> Timestamp {
        "2026-02-01T10:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    fn alert(id: &str, severity: Severity) -> Alert {
        Alert {
            id: id.to_owned(),
            rule: "stuck",
            severity,
            subject: String::new(),
            site: Some("north".to_owned()),
            since: at(0),
            value: None,
            threshold: None,
            unit: "",
            text: String::new(),
            what_to_do: "",
            tenants: BTreeSet::new(),
            limit: None,
        }
    }

    fn tick(seconds: i64, state: Presence) -> Tick {
        let north = Upstream {
            id: "site:north".to_owned(),
            kind: UpstreamKind::Site,
            name: "north".to_owned(),
            state,
            since: at(0),
            error: None,
            took_ms: None,
        };
        Tick { at: at(seconds), upstreams: vec![north], ..Tick::default() }
    }

    fn said(told: &Told) -> Vec<(&str, &str)> {
        let each = told.waiting.iter();
        each.map(|news| (news.state.as_str(), news.alert["severity"].as_str().unwrap())).collect()
    }

    #[test]
    fn an_alert_is_told_as_it_begins_worsens_and_ends_and_flickering_is_told_once() {
        let mut told = Told::default();
        let (warning, critical) = (alert("a", Severity::Warning), alert("a", Severity::Critical));
        assert!(told.look(std::slice::from_ref(&warning), &tick(0, Presence::Here)));
        assert!(!told.look(&[], &tick(1, Presence::Here)));
        assert!(!told.look(&[warning], &tick(9, Presence::Here)), "it only flickered");
        assert!(told.look(&[critical], &tick(31, Presence::Here)));
        assert!(!told.look(&[], &tick(40, Presence::Here)));
        assert!(!told.look(&[], &tick(49, Presence::Here)));
        assert!(told.look(&[], &tick(50, Presence::Here)));
        let expected = [("began", "warning"), ("worsened", "critical"), ("ended", "critical")];
        assert_eq!(said(&told), expected);
        let ids: BTreeSet<&str> = told.waiting.iter().map(|news| news.id.as_str()).collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.iter().all(|id| id.ends_with(&format!(":a@{}", at(0).as_millisecond()))));
    }

    #[test]
    fn what_cannot_be_judged_has_not_ended_even_after_a_restart() {
        let mut told = Told::default();
        told.look(&[alert("a", Severity::Critical)], &tick(0, Presence::Here));
        for second in 1..100 {
            assert!(!told.look(&[], &tick(second, Presence::Away)));
        }
        let kept = serde_json::to_string(&told).unwrap();
        let mut told: Told = serde_json::from_str(&kept).unwrap();
        for second in 100..200 {
            assert!(!told.look(&[], &tick(second, Presence::Asking)));
        }
        let later = Alert { since: at(210), ..alert("a", Severity::Critical) };
        assert!(!told.look(&[later], &tick(210, Presence::Here)), "it was told before the restart");
        assert!(!told.look(&[], &tick(211, Presence::Here)));
        assert!(told.look(&[], &tick(221, Presence::Here)));
        assert_eq!(said(&told), [("began", "critical"), ("ended", "critical")]);
    }

    #[test]
    fn an_alert_of_schedules_has_not_ended_while_they_are_away() {
        let schedule = |seconds, state| {
            let mut tick = tick(seconds, state);
            tick.upstreams[0].id = "schedule".to_owned();
            tick.upstreams[0].kind = UpstreamKind::Schedule;
            tick
        };
        let (id, subject) = ("oldest_pending:schedule:captures", "schedule:captures".to_owned());
        let stuck = Alert { subject, site: None, ..alert(id, Severity::Warning) };
        let mut told = Told::default();
        assert!(told.look(&[stuck], &schedule(0, Presence::Here)));
        assert!(!told.look(&[], &schedule(100, Presence::Away)));
        assert!(!told.look(&[], &schedule(200, Presence::Here)));
        assert!(told.look(&[], &schedule(211, Presence::Here)));
    }

    #[test]
    fn what_waits_is_bounded_and_what_found_no_place_is_told_later() {
        let mut told = Told::default();
        let many: Vec<Alert> =
            (0..MAX_WAITING + 5).map(|n| alert(&format!("a{n}"), Severity::Warning)).collect();
        told.look(&many, &tick(0, Presence::Here));
        assert_eq!(told.waiting(), MAX_WAITING);
        for _ in 0..10 {
            let id = told.next().unwrap().id.clone();
            told.done(&id);
            told.done(&id);
        }
        assert!(told.look(&many, &tick(1, Presence::Here)));
        assert_eq!(told.waiting(), MAX_WAITING - 5, "the five that were left out are told now");
    }
}
