//! What holds at one moment. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use uuid::Uuid;

use super::thresholds::{
    AWAY, BREAKER, BUS_DEAD, CONSUMERS_BEHIND, COPIES_FAILED, GAP, Limit, NODE_CLOCK, NODE_DISK,
    NODE_DROPS, NODE_FLAGGED, NOT_CONSUMED, OUTBOX_DEAD, OUTBOX_OLDEST, OUTBOX_PENDING,
    OUTBOX_STILL, OUTBOX_STUCK, QUARANTINE, RELAY_BREAKER, RELAY_DEAD, RELAY_OLDEST, RELAY_PENDING,
    RELAY_STILL, SITE_CLOCK, SITE_DISK,
};
use super::{Alert, News, Severity};
use crate::picture::{
    Breaker, CloudTick, Liveness, NodeEntry, Presence, SiteTick, Tick, UpstreamKind, number,
};

/// So many silent nodes of a site are one alert.
const MANY_NODES: usize = 20;

/// Begins an alert; the caller says what it is about.
pub(super) fn alert(
    rule: &'static str,
    of: &str,
    severity: Severity,
    tenants: BTreeSet<Uuid>,
) -> Alert {
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
        limit: None,
    }
}

fn tenants_of(site: &SiteTick) -> BTreeSet<Uuid> {
    site.tenants.keys().copied().collect()
}

/// Upstreams that do not answer.
pub(super) fn of_upstreams(tick: &Tick) -> Vec<Alert> {
    let away = tick.upstreams.iter().filter(|one| one.state == Presence::Away);
    let each = away.filter_map(|one| {
        let site = tick.sites.iter().find(|site| one.kind == UpstreamKind::Site && site.name == one.name);
        let tenants = match (&one.kind, &tick.cloud) {
            (UpstreamKind::Cloud, Some(cloud)) => cloud.tenants.keys().copied().collect(),
            _ => site.map(tenants_of).unwrap_or_default(),
        };
        let value = tick.at.duration_since(one.since).as_secs_f64();
        let (severity, threshold) = AWAY.above(value)?;
        Some(Alert {
            site: site.map(|site| site.name.clone()),
            value: Some(value),
            threshold: Some(threshold),
            unit: "s",
            text: format!("{} does not answer: {}", one.name, one.error.as_deref().unwrap_or("")),
            what_to_do: "Look whether the process runs and its address can be reached from here; data it holds stays there.",
            ..alert(AWAY.rule, &one.id, severity, tenants)
        })
    });
    each.collect()
}

/// One queue of one tenant, whatever tier it is at.
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) site: Option<String>,
    /// None: it has none, and is for those who see everything.
    pub(super) tenant: Option<Uuid>,
    pub(super) waiting: u64,
    pub(super) oldest_age_s: Option<f64>,
    pub(super) still_s: f64,
    pub(super) dead: u64,
    pub(super) limits: Limits,
    /// Something explains why it does not move, and is an alert of its own.
    pub(super) explained: bool,
}

/// What a queue is judged by.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) pending: &'static Limit,
    pub(super) oldest: &'static Limit,
    pub(super) still: &'static Limit,
    pub(super) dead: &'static Limit,
    /// What to do about its dead letters.
    pub(super) redrive: &'static str,
}

/// Of what Queues shows and redrives.
const IN_QUEUES: &str = "Look at their causes under Queues; mend the cause, then redrive them.";

const OUTBOX: Limits = Limits {
    pending: &OUTBOX_PENDING,
    oldest: &OUTBOX_OLDEST,
    still: &OUTBOX_STILL,
    dead: &OUTBOX_DEAD,
    redrive: IN_QUEUES,
};
const RELAY: Limits = Limits {
    pending: &RELAY_PENDING,
    oldest: &RELAY_OLDEST,
    still: &RELAY_STILL,
    dead: &RELAY_DEAD,
    redrive: IN_QUEUES,
};

impl Queue {
    pub(super) fn alert(&self, rule: &'static str, severity: Severity) -> Alert {
        let of = match self.tenant {
            Some(tenant) => format!("{}:{tenant}", self.name),
            None => self.name.clone(),
        };
        let alert = alert(rule, &of, severity, self.tenant.into_iter().collect());
        Alert { subject: self.name.clone(), site: self.site.clone(), ..alert }
    }

    pub(super) fn alerts(&self, found: &mut Vec<Alert>) {
        let waiting = number(self.waiting);
        if let Some((severity, threshold)) = self.limits.pending.above(waiting) {
            found.push(Alert {
                value: Some(waiting),
                threshold: Some(threshold),
                unit: "events",
                text: format!("{} events wait in {}", self.waiting, self.name),
                what_to_do: "If the number falls, wait. If it grows, look at the link behind it and at the load before it.",
                limit: Some(self.limits.pending),
                ..self.alert("pending", severity)
            });
        }
        let oldest = self.oldest_age_s.filter(|_| self.waiting > 0).unwrap_or(0.0);
        if let Some((severity, threshold)) = self.limits.oldest.above(oldest) {
            found.push(Alert {
                value: Some(oldest),
                threshold: Some(threshold),
                unit: "s",
                text: format!("the oldest event in {} waits for {oldest:.0} s", self.name),
                what_to_do: "Look at the queue: a closed link, a paused sender, or one event that is tried again and again.",
                ..self.alert("oldest_pending", severity)
            });
        }
        let still = Some(self.still_s).filter(|_| self.waiting > 0 && !self.explained);
        if let Some((severity, threshold)) = still.and_then(|still| self.limits.still.above(still))
        {
            found.push(Alert {
                value: Some(self.still_s),
                threshold: Some(threshold),
                unit: "s",
                text: format!("{} is connected, and nothing has left for {:.0} s", self.name, self.still_s),
                what_to_do: "Look at the log of the process that empties it; restart it if it hangs. Nothing is lost by that.",
                ..self.alert("not_draining", severity)
            });
        }
        if let Some((severity, threshold)) = self.limits.dead.above(number(self.dead)) {
            found.push(Alert {
                value: Some(number(self.dead)),
                threshold: Some(threshold),
                unit: "dead letters",
                text: format!("{} dead letters in {}", self.dead, self.name),
                what_to_do: self.limits.redrive,
                ..self.alert("dead_letters", severity)
            });
        }
    }
}

/// Whether a breaker keeps its queue from the destination. It does so during a probe too: nothing else passes, and most
/// probes of an outage fail.
fn is_open(breaker: Option<Breaker>) -> bool {
    breaker.is_some_and(|breaker| breaker != Breaker::Closed)
}

/// Outboxes, the relay and the bus.
pub(super) fn of_queues(tick: &Tick) -> Vec<Alert> {
    let mut found = Vec::new();
    for site in tick.sites.iter().filter(|site| site.here) {
        for (tenant, part) in &site.tenants {
            let Some(outbox) = &part.outbox else { continue };
            let open = is_open(outbox.breaker);
            let queue = Queue {
                name: format!("outbox:{}", site.name),
                site: Some(site.name.clone()),
                tenant: Some(*tenant),
                waiting: outbox.waiting,
                oldest_age_s: outbox.oldest_age_s,
                still_s: outbox.still_s,
                dead: outbox.dead,
                limits: OUTBOX,
                explained: open,
            };
            queue.alerts(&mut found);
            if open {
                let why = outbox.last_failure.as_deref().unwrap_or("no reason is known");
                found.push(Alert {
                    limit: Some(&BREAKER),
                    text: format!("{} leaves the cloud alone: {why}", site.name),
                    what_to_do: "Look at the link from the site to the cloud, and at the site's token. Events wait at the site and go by themselves.",
                    ..queue.alert(BREAKER.rule, Severity::Warning)
                });
            }
            if outbox.stuck > 0 {
                found.push(Alert {
                    value: Some(number(outbox.stuck)),
                    threshold: Some(0.0),
                    unit: "events",
                    text: format!("{} events of {} are held by a forwarder that is gone", outbox.stuck, site.name),
                    what_to_do: "Look whether a forwarder runs; `holdfast outbox unclaim` frees them.",
                    limit: Some(&OUTBOX_STUCK),
                    ..queue.alert(OUTBOX_STUCK.rule, Severity::Warning)
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
    of_consumers(cloud, found);
    if is_open(cloud.breaker) {
        let tenants = cloud.tenants.keys().copied().collect();
        found.push(Alert {
            limit: Some(&RELAY_BREAKER),
            text: "the relay leaves the bus alone: it takes no event".to_owned(),
            what_to_do: "Look at the broker and at the way to it. Events wait in the cloud's relay outbox and go by themselves.",
            ..alert(RELAY_BREAKER.rule, "relay", Severity::Warning, tenants)
        });
    }
    for (tenant, part) in &cloud.tenants {
        let relay = Queue {
            name: "relay".to_owned(),
            site: None,
            tenant: Some(*tenant),
            waiting: part.waiting,
            oldest_age_s: part.oldest_age_s,
            still_s: part.still_s,
            dead: part.relay_dead,
            limits: RELAY,
            // While the bus is left alone, nothing can leave; that is an alert of its own.
            explained: is_open(cloud.breaker),
        };
        relay.alerts(found);
        let bus = Queue {
            name: "bus".to_owned(),
            waiting: 0,
            oldest_age_s: None,
            still_s: 0.0,
            dead: part.bus_dead,
            limits: Limits { dead: &BUS_DEAD, ..RELAY },
            ..relay
        };
        bus.alerts(found);
        if let Some((severity, threshold)) = COPIES_FAILED.above(number(part.media_failed)) {
            found.push(Alert {
                value: Some(number(part.media_failed)),
                threshold: Some(threshold),
                unit: "images",
                text: format!("the cloud has given up copying {} images", part.media_failed),
                what_to_do: "`holdfast media copies list` says which and why; put the objects right at the site, then `holdfast media copies retry`.",
                ..alert("copies_failed", &format!("media:{tenant}"), severity, BTreeSet::from([*tenant]))
            });
        }
    }
}

/// What waits behind the bus. It is of all tenants together, and whoever sees one of the cloud's sees that it waits.
fn of_consumers(cloud: &CloudTick, found: &mut Vec<Alert>) {
    let tenants: BTreeSet<Uuid> = cloud.tenants.keys().copied().collect();
    for queue in &cloud.consumers.queues {
        let still = queue.still_s.unwrap_or(0.0);
        let nobody = queue.consumers == Some(0);
        let limit = if nobody { &NOT_CONSUMED } else { &CONSUMERS_BEHIND };
        let Some((severity, threshold)) = limit.above(still) else { continue };
        let (text, what_to_do) = match nobody {
            true => (
                format!(
                    "nobody consumes {}, and what waits there waits for {still:.0} s",
                    queue.name
                ),
                "Look whether the cloud's process with that role runs and reaches the broker. Nothing is lost: the bus keeps it.",
            ),
            false => (
                format!("what waits in {} has not become less for {still:.0} s", queue.name),
                "Look at the log of the consumer and at the database. If it works and cannot keep up, run another replica of its role.",
            ),
        };
        found.push(Alert {
            value: Some(still),
            threshold: Some(threshold),
            unit: "s",
            text,
            what_to_do,
            ..alert(limit.rule, &queue.name, severity, tenants.clone())
        });
    }
}

/// The sites themselves: their disks, their clocks.
pub(super) fn of_sites(tick: &Tick) -> Vec<Alert> {
    let mut found = Vec::new();
    for site in tick.sites.iter().filter(|site| site.here) {
        let about = |rule, severity| Alert {
            site: Some(site.name.clone()),
            ..alert(rule, &format!("site:{}", site.name), severity, tenants_of(site))
        };
        let over = site.disk_over_bytes.unwrap_or(0.0);
        if let Some((severity, threshold)) = SITE_DISK.above(over) {
            found.push(Alert {
                value: Some(over),
                threshold: Some(threshold),
                unit: "bytes",
                text: format!("{} is {:.0} MB above its disk limit", site.name, over / 1e6),
                what_to_do: "Make room or bring the link back: what is delivered goes first, then what is not, and that is declared lost.",
                limit: Some(&SITE_DISK),
                ..about(SITE_DISK.rule, severity)
            });
        }
        let off = site.clock_off_s.unwrap_or(0.0);
        if let Some((severity, threshold)) = SITE_CLOCK.above(off.abs()) {
            let word = if off > 0.0 { "ahead of" } else { "behind" };
            found.push(Alert {
                value: Some(off.abs()),
                threshold: Some(threshold),
                unit: "s",
                text: format!("the clock of {} is {:.0} s {word} the console's", site.name, off.abs()),
                what_to_do: "Mend time synchronisation, at the site or here. Ages and times on the page are wrong by as much.",
                ..about(SITE_CLOCK.rule, severity)
            });
        }
    }
    found
}

/// Nodes. `news` says which of their counters have grown of late.
pub(super) fn of_nodes(nodes: &[NodeEntry], news: impl Fn(&NodeEntry) -> News) -> Vec<Alert> {
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
        let low = row.disk_free_bytes.and_then(|free| Some((free, NODE_DISK.below(number(free))?)));
        if let Some((free, (severity, threshold))) = low {
            found.push(Alert {
                value: Some(number(free)),
                threshold: Some(threshold),
                unit: "bytes",
                text: format!("{of} has {} MB of disk left", free / 1_000_000),
                what_to_do: "Restore its link so that the spool drains, or give it a larger disk; when it is full, the oldest is given up and declared.",
                limit: Some(&NODE_DISK),
                ..about(NODE_DISK.rule, severity)
            });
        }
        if row.clock.as_deref() == Some("unset") {
            found.push(Alert {
                text: format!("the clock of {of} is not set: its times may be far off"),
                what_to_do: "Let it reach a time server. What it sampled meanwhile is marked.",
                limit: Some(&NODE_CLOCK),
                ..about(NODE_CLOCK.rule, Severity::Warning)
            });
        }
        if let Some(why) = &row.flagged {
            found.push(Alert {
                text: format!("{of} is flagged: {why}"),
                what_to_do: "Find out whether its card was cloned; re-image one of the two, then clear the flag.",
                ..about(NODE_FLAGGED.rule, Severity::Critical)
            });
        }
        let news = news(entry);
        if news.drops {
            found.push(Alert {
                value: row.drops.map(number),
                unit: "records",
                text: format!("{of} gives up records"),
                what_to_do: "Its spool is full: restore its link, or raise the spool's limit.",
                ..about(NODE_DROPS.rule, Severity::Warning)
            });
        }
        if news.gaps {
            found.push(Alert {
                value: Some(number(row.lost)),
                threshold: GAP.critical,
                unit: "events",
                text: format!("{of} has declared events lost"),
                what_to_do: "Conservation shows which, when and why; what is in no tier cannot be brought back.",
                ..about(GAP.rule, Severity::Critical)
            });
        }
        if news.quarantine {
            found.push(Alert {
                value: Some(number(row.quarantined)),
                threshold: QUARANTINE.warning,
                unit: "records",
                text: format!("records of {of} were quarantined"),
                what_to_do: "They are kept, and are not in the stores. The site's table ingress_quarantine says why.",
                ..about(QUARANTINE.rule, Severity::Warning)
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
