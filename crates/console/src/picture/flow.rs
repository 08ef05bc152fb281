//! The path of an event, drawn from a tick for somebody who may see so much. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::nodes::Tally;
use super::tick::{CloudTenant, CloudTick, Outbox, SiteTenant, SiteTick, Tick};
use super::{Breaker, Flow, Lane, LaneKind, Link, LinkState, Stage, StageKind, StageState, Totals};
use super::{plant, trunk};
use crate::access::Scope;
use crate::upstream::WHOLE;

/// Something that waits longer than this is said to wait.
pub(super) const WAITS_AFTER_S: f64 = 30.0;
/// What nothing has left for so long is down.
pub(super) const STILL_AFTER_S: f64 = 60.0;
/// The name of the uplink among the cables of `up`.
const UPLINK: &str = "cloud";

fn add(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

fn older(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}

/// What leaves within so long is on its way and no backlog: with as much coming as leaving, its end would seem far away.
const PASSING_S: f64 = 2.0;

/// How long a backlog lasts when so much comes and so much leaves.
pub(crate) fn drain(held: u64, incoming: f64, outgoing: f64) -> Option<f64> {
    let (held, net) = (super::meter::number(held), outgoing - incoming);
    (held > outgoing * PASSING_S && net > 0.0).then(|| held / net)
}

/// The part of a site that somebody sees, added up.
pub(crate) fn site_part(site: &SiteTick, scope: &Scope) -> Option<SiteTenant> {
    let mut parts = site.tenants.iter().filter(|(tenant, _)| scope.allows(**tenant)).peekable();
    if parts.peek().is_none() && !scope.is_all() {
        return None;
    }
    let mut sum = SiteTenant::default();
    for (_, part) in parts {
        sum.nodes.merge(&part.nodes);
        sum.produced_per_s = add(sum.produced_per_s, part.produced_per_s);
        sum.stored_per_s = add(sum.stored_per_s, part.stored_per_s);
        if let Some(outbox) = &part.outbox {
            let all = sum.outbox.get_or_insert_default();
            all.waiting += outbox.waiting;
            all.dead += outbox.dead;
            all.stuck += outbox.stuck;
            all.oldest_age_s = older(all.oldest_age_s, outbox.oldest_age_s);
            all.in_per_s += outbox.in_per_s;
            all.out_per_s += outbox.out_per_s;
            all.breaker = all.breaker.max(outbox.breaker);
            all.paused_until = all.paused_until.max(outbox.paused_until);
            all.last_failure = all.last_failure.take().or_else(|| outbox.last_failure.clone());
            all.still_s = all.still_s.max(outbox.still_s);
        }
    }
    Some(sum)
}

/// The part of the cloud that somebody sees, added up.
pub(crate) fn cloud_part(cloud: &CloudTick, scope: &Scope) -> CloudTenant {
    let mut sum = CloudTenant::default();
    for (_, part) in cloud.tenants.iter().filter(|(tenant, _)| scope.allows(**tenant)) {
        sum.received += part.received;
        sum.lost += part.lost;
        sum.in_per_s = add(sum.in_per_s, part.in_per_s);
        sum.out_per_s = add(sum.out_per_s, part.out_per_s);
        sum.waiting += part.waiting;
        sum.oldest_age_s = older(sum.oldest_age_s, part.oldest_age_s);
        sum.relay_dead += part.relay_dead;
        sum.bus_dead += part.bus_dead;
        sum.still_s = sum.still_s.max(part.still_s);
    }
    sum
}

/// The whole path.
pub(crate) fn draw(tick: &Tick, scope: &Scope) -> Flow {
    let mut flow = Flow::default();
    for (index, site) in tick.sites.iter().enumerate() {
        let Some(part) = site_part(site, scope) else { continue };
        // `up` has one site.
        let cables = tick.cables.as_deref().filter(|_| index == 0);
        draw_site(&mut flow, site, &part, cables);
        if tick.cloud.is_some() && site.forwards {
            let outbox = part.outbox.unwrap_or_default();
            draw_uplink(&mut flow, site, &outbox, cables);
        }
    }
    if let Some(cloud) = &tick.cloud {
        trunk::draw(&mut flow, cloud, &cloud_part(cloud, scope), scope);
    }
    if scope.is_all() {
        plant::draw(&mut flow, tick);
    }
    for link in &mut flow.links {
        link.since = tick.since.get(&link.id).copied();
    }
    flow
}

/// What silent nodes hold: it was so when they said it, and they go on sampling.
fn held_in_silence(nodes: &Tally) -> String {
    match nodes.silent_said_s {
        Some(said) => {
            format!(
                "; the silent ones hold at least {}, as of {} ago",
                nodes.silent_backlog,
                span(said)
            )
        }
        None => String::new(),
    }
}

/// Seconds for people: the largest unit of which there are two.
fn span(seconds: f64) -> String {
    let (unit, length) = match seconds {
        s if s >= 172_800.0 => ("days", 86_400.0),
        s if s >= 7_200.0 => ("h", 3_600.0),
        s if s >= 120.0 => ("min", 60.0),
        _ => ("s", 1.0),
    };
    format!("{:.0} {unit}", (seconds / length).floor())
}

fn draw_site(
    flow: &mut Flow,
    site: &SiteTick,
    part: &SiteTenant,
    cables: Option<&BTreeMap<String, String>>,
) {
    let SiteTick { name, here, .. } = site;
    let lane = Some(name.clone());
    flow.lanes.push(Lane { id: name.clone(), name: name.clone(), kind: LaneKind::Site });
    let counts = part.nodes.counts;
    let silent = counts.late + counts.offline;
    let known = |value: u64| here.then_some(value);
    flow.stages.push(Stage {
        id: format!("node:{name}"),
        kind: StageKind::Node,
        lane: lane.clone(),
        name: format!("{} nodes", counts.total),
        state: match (here, counts.online, silent) {
            (false, ..) => StageState::Unknown,
            (true, 0, 1..) => StageState::Broken,
            (true, _, 1..) => StageState::Waiting,
            (true, _, 0) if part.nodes.cut > 0 => StageState::Waiting,
            (true, ..) => StageState::Ok,
        },
        rate_per_s: part.produced_per_s.filter(|_| *here),
        held: known(part.nodes.backlog),
        oldest_age_s: part.nodes.oldest_age_s.filter(|_| *here),
        detail: match here {
            true => format!(
                "{} online, {} late, {} offline, {} never heard{}",
                counts.online,
                counts.late,
                counts.offline,
                counts.never,
                held_in_silence(&part.nodes)
            ),
            false => "the site does not answer".to_owned(),
        },
    });
    flow.links.push(Link {
        id: format!("nodes:{name}"),
        from: format!("node:{name}"),
        to: format!("edge:{name}"),
        state: match (here, counts.online, silent + part.nodes.cut) {
            (false, ..) => LinkState::Unknown,
            (true, 0, 1..) => LinkState::Down,
            (true, _, 1..) => LinkState::Degraded,
            (true, ..) => LinkState::Up,
        },
        rate_per_s: part.stored_per_s.filter(|_| *here),
        breaker: None,
        held: known(part.nodes.backlog),
        drain_estimate_s: match (here, part.produced_per_s, part.stored_per_s) {
            (true, Some(made), Some(stored)) => drain(part.nodes.backlog, made, stored),
            _ => None,
        },
        since: None,
        cuttable: cables.is_some(),
        cut: part.nodes.cut > 0 && part.nodes.cut == counts.total,
    });
    let outbox = part.outbox.clone().unwrap_or_default();
    let waits = outbox.oldest_age_s.is_some_and(|age| age > WAITS_AFTER_S);
    flow.stages.push(Stage {
        id: format!("edge:{name}"),
        kind: StageKind::Edge,
        lane,
        name: name.clone(),
        state: match (here, outbox.breaker) {
            (false, _) => StageState::Unknown,
            (true, Some(Breaker::Open)) => StageState::Broken,
            (true, Some(Breaker::HalfOpen)) => StageState::Waiting,
            (true, _) if waits => StageState::Waiting,
            (true, _) => StageState::Ok,
        },
        rate_per_s: part.stored_per_s.filter(|_| *here),
        held: known(outbox.waiting),
        oldest_age_s: outbox.oldest_age_s.filter(|_| *here),
        detail: match (here, site.forwards, &outbox.last_failure) {
            (false, ..) => "does not answer".to_owned(),
            (true, false, _) => "forwards to no cloud".to_owned(),
            (true, true, Some(why)) => format!("the link is down: {why}"),
            (true, true, None) => format!("{} wait for the cloud", outbox.waiting),
        },
    });
}

fn draw_uplink(
    flow: &mut Flow,
    site: &SiteTick,
    outbox: &Outbox,
    cables: Option<&BTreeMap<String, String>>,
) {
    let SiteTick { name, here, .. } = site;
    let cable = cables.and_then(|cables| cables.get(UPLINK));
    let cut = cable.is_some_and(|state| state != WHOLE);
    flow.links.push(Link {
        id: format!("uplink:{name}"),
        from: format!("edge:{name}"),
        to: "cloud".to_owned(),
        state: match (here, outbox.breaker) {
            (false, _) => LinkState::Unknown,
            (true, Some(Breaker::Open)) => LinkState::Down,
            (true, Some(Breaker::HalfOpen)) => LinkState::Degraded,
            (true, _) if cut => LinkState::Degraded,
            (true, _) => LinkState::Up,
        },
        rate_per_s: here.then_some(outbox.out_per_s),
        breaker: outbox.breaker.filter(|_| *here),
        held: here.then_some(outbox.waiting),
        drain_estimate_s: match here {
            true => drain(outbox.waiting, outbox.in_per_s, outbox.out_per_s),
            false => None,
        },
        since: None,
        cuttable: cable.is_some(),
        cut,
    });
}

/// Everything added up.
pub(crate) fn totals(tick: &Tick, scope: &Scope) -> Totals {
    let mut nodes = Tally::default();
    let (mut waiting, mut dead, mut all_here) = (0, 0, true);
    for site in &tick.sites {
        let Some(part) = site_part(site, scope) else { continue };
        all_here &= site.here;
        nodes.merge(&part.nodes);
        let outbox = part.outbox.unwrap_or_default();
        waiting += outbox.waiting;
        dead += outbox.dead;
    }
    let cloud = tick.cloud.as_ref().filter(|cloud| cloud.here);
    let cloud = cloud.map(|cloud| cloud_part(cloud, scope));
    let of_sites = |value: u64| all_here.then_some(value);
    Totals {
        produced: of_sites(nodes.produced),
        at_nodes: of_sites(nodes.backlog),
        at_edges: of_sites(waiting),
        in_cloud: cloud.as_ref().map(|part| part.received),
        in_relay: cloud.as_ref().map(|part| part.waiting),
        lost: of_sites(nodes.lost),
        quarantined: of_sites(nodes.quarantined),
        dead_letters: match (all_here, &cloud, &tick.cloud) {
            (false, ..) | (true, None, Some(_)) => None,
            (true, part, _) => {
                let part = part.clone().unwrap_or_default();
                Some(dead + part.relay_dead + part.bus_dead)
            }
        },
    }
}

/// Since when each link is in its state, given how it was before.
pub(super) fn since(
    now: Timestamp,
    flow: &Flow,
    before: &BTreeMap<String, (LinkState, Timestamp)>,
) -> BTreeMap<String, (LinkState, Timestamp)> {
    let each = flow.links.iter().map(|link| {
        let since = match before.get(&link.id) {
            Some((state, since)) if *state == link.state => *since,
            _ => now,
        };
        (link.id.clone(), (link.state, since))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_ends_and_what_is_on_its_way_is_none() {
        assert_eq!(drain(1_000, 10.0, 60.0), Some(20.0));
        assert_eq!(drain(19, 12.9, 13.0), None, "a second and a half of what leaves");
        assert_eq!(drain(1_000, 13.0, 13.0), None, "it does not shrink");
        assert_eq!(drain(0, 0.0, 0.0), None);
    }
}
