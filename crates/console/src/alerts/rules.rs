//! What holds at one moment. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use uuid::Uuid;

use super::{Alert, Severity};
use crate::picture::{
    Breaker, CloudTick, Liveness, NodeEntry, Presence, SiteTick, Tick, UpstreamKind, number,
};

/// So many silent nodes of a site are one alert.
const MANY_NODES: usize = 20;
const AWAY_AFTER_S: f64 = 10.0;
const STILL_AFTER_S: f64 = 60.0;
const BREAKER_CRITICAL_S: f64 = 300.0;
const STUCK_AFTER_S: f64 = 120.0;
/// Seed 001: seconds that the oldest may wait.
const OLDEST: (f64, f64) = (30.0, 300.0);
/// Seed 001: rows that may wait; a site's outbox may hold days.
const PENDING: (f64, f64) = (100.0, 1_000.0);
const PENDING_AT_SITE: (f64, f64) = (10_000.0, 100_000.0);
/// Seed 001: dead letters.
const DEAD: (f64, f64) = (0.0, 10.0);
/// Bytes free on a node's disk.
const DISK: (u64, u64) = (500_000_000, 100_000_000);

/// Begins an alert; the caller says what it is about.
fn alert(rule: &'static str, of: &str, severity: Severity, tenants: BTreeSet<Uuid>) -> Alert {
    Alert {
        id: format!("{rule}:{of}"),
        rule,
        severity,
        subject: of.to_owned(),
        site: None,
        since: Timestamp::UNIX_EPOCH,
        value: None,
        threshold: None,
        unit: "",
        text: String::new(),
        what_to_do: "",
        tenants,
    }
}

/// Which of two thresholds a value is above.
fn above(value: f64, (warning, critical): (f64, f64)) -> Option<(Severity, f64)> {
    match value {
        value if value > critical => Some((Severity::Critical, critical)),
        value if value > warning => Some((Severity::Warning, warning)),
        _ => None,
    }
}

fn tenants_of(site: &SiteTick) -> BTreeSet<Uuid> {
    site.tenants.keys().copied().collect()
}

/// Upstreams that do not answer.
pub(super) fn of_upstreams(tick: &Tick) -> Vec<Alert> {
    let away = tick.upstreams.iter().filter(|one| one.state == Presence::Away);
    let each = away.map(|one| {
        let site = tick.sites.iter().find(|site| one.kind == UpstreamKind::Site && site.name == one.name);
        let tenants = match (&one.kind, &tick.cloud) {
            (UpstreamKind::Cloud, Some(cloud)) => cloud.tenants.keys().copied().collect(),
            _ => site.map(tenants_of).unwrap_or_default(),
        };
        let value = tick.at.duration_since(one.since).as_secs_f64();
        Alert {
            site: site.map(|site| site.name.clone()),
            value: Some(value),
            threshold: Some(AWAY_AFTER_S),
            unit: "s",
            text: format!("{} does not answer: {}", one.name, one.error.as_deref().unwrap_or("")),
            what_to_do: "Look whether the process runs and its address can be reached from here; data it holds stays there.",
            ..alert("upstream_away", &one.id, Severity::Critical, tenants)
        }
    });
    each.filter(|alert| alert.value.is_some_and(|value| value >= AWAY_AFTER_S)).collect()
}

/// One queue of one tenant, whatever tier it is at.
struct Queue {
    name: String,
    site: Option<String>,
    tenant: Uuid,
    waiting: u64,
    oldest_age_s: Option<f64>,
    still_s: f64,
    dead: u64,
    pending: (f64, f64),
    /// Something explains why it does not move, and is an alert of its own.
    explained: bool,
}

impl Queue {
    fn alert(&self, rule: &'static str, severity: Severity) -> Alert {
        let of = format!("{}:{}", self.name, self.tenant);
        let alert = alert(rule, &of, severity, BTreeSet::from([self.tenant]));
        Alert { subject: self.name.clone(), site: self.site.clone(), ..alert }
    }

    fn alerts(&self, found: &mut Vec<Alert>) {
        let waiting = number(self.waiting);
        if let Some((severity, threshold)) = above(waiting, self.pending) {
            found.push(Alert {
                value: Some(waiting),
                threshold: Some(threshold),
                unit: "events",
                text: format!("{} events wait in {}", self.waiting, self.name),
                what_to_do: "If the number falls, wait. If it grows, look at the link behind it and at the load before it.",
                ..self.alert("pending", severity)
            });
        }
        let oldest = self.oldest_age_s.filter(|_| self.waiting > 0).unwrap_or(0.0);
        if let Some((severity, threshold)) = above(oldest, OLDEST) {
            found.push(Alert {
                value: Some(oldest),
                threshold: Some(threshold),
                unit: "s",
                text: format!("the oldest event in {} waits for {oldest:.0} s", self.name),
                what_to_do: "Look at the queue: a closed link, a paused sender, or one event that is tried again and again.",
                ..self.alert("oldest_pending", severity)
            });
        }
        if self.waiting > 0 && self.still_s >= STILL_AFTER_S && !self.explained {
            found.push(Alert {
                value: Some(self.still_s),
                threshold: Some(STILL_AFTER_S),
                unit: "s",
                text: format!("{} is connected, and nothing has left for {:.0} s", self.name, self.still_s),
                what_to_do: "Look at the log of the process that empties it; restart it if it hangs. Nothing is lost by that.",
                ..self.alert("not_draining", Severity::Critical)
            });
        }
        if let Some((severity, threshold)) = above(number(self.dead), DEAD) {
            found.push(Alert {
                value: Some(number(self.dead)),
                threshold: Some(threshold),
                unit: "dead letters",
                text: format!("{} dead letters in {}", self.dead, self.name),
                what_to_do: "Look at their causes under Queues; mend the cause, then redrive them.",
                ..self.alert("dead_letters", severity)
            });
        }
    }
}

/// Outboxes, the relay and the bus.
pub(super) fn of_queues(tick: &Tick) -> Vec<Alert> {
    let mut found = Vec::new();
    for site in tick.sites.iter().filter(|site| site.here) {
        for (tenant, part) in &site.tenants {
            let Some(outbox) = &part.outbox else { continue };
            let open = outbox.breaker.is_some_and(|breaker| breaker != Breaker::Closed);
            let queue = Queue {
                name: format!("outbox:{}", site.name),
                site: Some(site.name.clone()),
                tenant: *tenant,
                waiting: outbox.waiting,
                oldest_age_s: outbox.oldest_age_s,
                still_s: outbox.still_s,
                dead: outbox.dead,
                pending: PENDING_AT_SITE,
                explained: open,
            };
            queue.alerts(&mut found);
            if outbox.breaker == Some(Breaker::Open) {
                let why = outbox.last_failure.as_deref().unwrap_or("no reason is known");
                found.push(Alert {
                    threshold: Some(BREAKER_CRITICAL_S),
                    unit: "s",
                    text: format!("{} leaves the cloud alone: {why}", site.name),
                    what_to_do: "Look at the link from the site to the cloud, and at the site's token. Events wait at the site and go by themselves.",
                    ..queue.alert("breaker_open", Severity::Warning)
                });
            }
            if outbox.stuck > 0 {
                found.push(Alert {
                    value: Some(number(outbox.stuck)),
                    threshold: Some(0.0),
                    unit: "events",
                    text: format!("{} events of {} are held by a forwarder that is gone", outbox.stuck, site.name),
                    what_to_do: "Look whether a forwarder runs; `holdfast outbox unclaim` frees them.",
                    ..queue.alert("stuck", Severity::Warning)
                });
            }
        }
    }
    if let Some(cloud) = tick.cloud.as_ref().filter(|cloud| cloud.here) {
        of_cloud(cloud, &mut found);
    }
    found
}

fn of_cloud(cloud: &CloudTick, found: &mut Vec<Alert>) {
    for (tenant, part) in &cloud.tenants {
        let relay = Queue {
            name: "relay".to_owned(),
            site: None,
            tenant: *tenant,
            waiting: part.waiting,
            oldest_age_s: part.oldest_age_s,
            still_s: part.still_s,
            dead: part.relay_dead,
            pending: PENDING,
            explained: false,
        };
        relay.alerts(found);
        let bus = Queue {
            name: "bus".to_owned(),
            waiting: 0,
            oldest_age_s: None,
            still_s: 0.0,
            dead: part.bus_dead,
            ..relay
        };
        bus.alerts(found);
        if part.media_failed > 0 {
            found.push(Alert {
                value: Some(number(part.media_failed)),
                threshold: Some(0.0),
                unit: "images",
                text: format!("the cloud has given up copying {} images", part.media_failed),
                what_to_do: "`holdfast media copies list` says which and why; put the objects right at the site, then `holdfast media copies retry`.",
                ..alert("copies_failed", &format!("media:{tenant}"), Severity::Warning, BTreeSet::from([*tenant]))
            });
        }
    }
}

/// The plant.
pub(super) fn of_plant(tick: &Tick) -> Vec<Alert> {
    let Some(plant) = tick.plant.as_ref().filter(|plant| plant.here) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some((severity, threshold)) = above(number(plant.dead_letters), DEAD) {
        found.push(Alert {
            value: Some(number(plant.dead_letters)),
            threshold: Some(threshold),
            unit: "dead letters",
            text: format!("{} messages were refused by the historian", plant.dead_letters),
            what_to_do: "Look at their causes in Queues or with holdfast dlq list --scada; mend the cause, then redrive them.",
            ..alert("dead_letters", "historian", severity, BTreeSet::new())
        });
    }
    let floods = plant.floods.iter();
    found.extend(floods.map(|flood| Alert {
        value: Some(f64::from(i32::try_from(flood.peak).unwrap_or(i32::MAX))),
        threshold: Some(10.0),
        unit: "alarms in 10 min",
        text: format!("more alarms than one can follow at {}", flood.position),
        what_to_do: "Work from the worst down; shelve what chatters.",
        ..alert("alarm_flood", &flood.position, Severity::Critical, BTreeSet::new())
    }));
    found
}

/// Nodes. `news` says whether a node's drops, and its gaps, are news.
pub(super) fn of_nodes(
    nodes: &[NodeEntry],
    news: impl Fn(&NodeEntry) -> (bool, bool),
) -> Vec<Alert> {
    let mut found = Vec::new();
    let mut silent: BTreeMap<(&str, Uuid), Vec<&NodeEntry>> = BTreeMap::new();
    for entry in nodes.iter().filter(|entry| !entry.row.disabled) {
        let row = &entry.row;
        let of = format!("{}/{}", row.site, row.node_id);
        let about = |rule, severity| Alert {
            site: Some(row.site.clone()),
            ..alert(rule, &of, severity, BTreeSet::from([row.tenant_id]))
        };
        if matches!(row.liveness, Liveness::Late | Liveness::Offline) {
            silent.entry((&row.site, row.tenant_id)).or_default().push(entry);
        }
        if let Some(free) = row.disk_free_bytes.filter(|free| *free < DISK.0) {
            let (severity, threshold) = match free < DISK.1 {
                true => (Severity::Critical, DISK.1),
                false => (Severity::Warning, DISK.0),
            };
            found.push(Alert {
                value: Some(number(free)),
                threshold: Some(number(threshold)),
                unit: "bytes",
                text: format!("{of} has {} MB of disk left", free / 1_000_000),
                what_to_do: "Restore its link so that the spool drains, or give it a larger disk; when it is full, the oldest is given up and declared.",
                ..about("node_disk", severity)
            });
        }
        if row.clock.as_deref() == Some("unset") {
            found.push(Alert {
                text: format!("the clock of {of} is not set: its times may be far off"),
                what_to_do: "Let it reach a time server. What it sampled meanwhile is marked.",
                ..about("node_clock", Severity::Warning)
            });
        }
        if let Some(why) = &row.flagged {
            found.push(Alert {
                text: format!("{of} is flagged: {why}"),
                what_to_do: "Find out whether its card was cloned; re-image one of the two, then clear the flag.",
                ..about("node_flagged", Severity::Critical)
            });
        }
        let (drops, gaps) = news(entry);
        if drops {
            found.push(Alert {
                value: row.drops.map(number),
                unit: "records",
                text: format!("{of} gives up records"),
                what_to_do: "Its spool is full: restore its link, or raise the spool's limit.",
                ..about("node_drops", Severity::Warning)
            });
        }
        if gaps {
            found.push(Alert {
                value: Some(number(row.lost)),
                threshold: Some(0.0),
                unit: "events",
                text: format!("{of} has declared events lost"),
                what_to_do: "Conservation shows which, when and why; what is in no tier cannot be brought back.",
                ..about("gap_declared", Severity::Warning)
            });
        }
    }
    for ((site, tenant), entries) in silent {
        found.extend(of_silent(site, tenant, &entries));
    }
    found
}

fn of_silent(site: &str, tenant: Uuid, entries: &[&NodeEntry]) -> Vec<Alert> {
    let what_to_do = "Look at its power and its link. It goes on sampling into its spool, and sends by itself once it is back.";
    let severity = |entry: &&NodeEntry| match entry.row.liveness {
        Liveness::Offline => Severity::Critical,
        _ => Severity::Warning,
    };
    let about = |rule, of: &str, severity| Alert {
        site: Some(site.to_owned()),
        what_to_do,
        unit: "s",
        ..alert(rule, of, severity, BTreeSet::from([tenant]))
    };
    if entries.len() > MANY_NODES {
        let worst = entries.iter().map(severity).min().unwrap_or(Severity::Warning);
        let alert = about("node_silent", &format!("{site}:{tenant}"), worst);
        let text = format!("{} nodes of {site} are silent", entries.len());
        let value = Some(number(entries.len() as u64));
        return vec![Alert { text, value, unit: "nodes", subject: site.to_owned(), ..alert }];
    }
    let each = entries.iter().map(|entry| {
        let of = format!("{site}/{}", entry.row.node_id);
        let silent = entry.row.rx_age_s.unwrap_or(0.0);
        let text = format!("nothing came from {of} for {silent:.0} s");
        Alert { text, value: Some(silent), ..about("node_silent", &of, severity(entry)) }
    });
    each.collect()
}

/// Some alerts are such only after a while.
pub(super) fn has_lasted(alert: &Alert, now: Timestamp) -> bool {
    alert.rule != "stuck" || now.duration_since(alert.since).as_secs_f64() >= STUCK_AFTER_S
}

/// Some grow worse with time.
pub(super) fn grow_worse(alert: &mut Alert, now: Timestamp) {
    if alert.rule == "breaker_open" {
        let lasted = now.duration_since(alert.since).as_secs_f64();
        alert.value = Some(lasted);
        if lasted >= BREAKER_CRITICAL_S {
            alert.severity = Severity::Critical;
        }
    }
}
