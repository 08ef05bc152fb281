//! What of a look needs a person. Pure: the same view gives the same needs.
//!
//! A fact that passes by itself (a node that is late, a backlog that shrinks, a gap that was declared long ago) is shown and is no
//! need; otherwise nobody would believe the exit code.

use super::view::{Heard, Need, View};
use crate::table::{grouped, span};

/// Rows that do not shrink need somebody when the oldest has waited so long.
const NOT_DRAINING_AFTER_SECONDS: i64 = 600;
/// Below this share of a disk somebody must make room.
const MIN_FREE_SHARE: f64 = 0.03;
/// The most silent nodes that are named; the rest is a number.
const NAMED_NODES: usize = 5;

/// Fills in what is needed.
pub(super) fn judge(view: &mut View) {
    let mut needs = Vec::new();
    let mut need = |what: String, next: String| needs.push(Need { what, next });
    for part in view.parts.iter().filter(|part| !part.is_well()) {
        let since = part.away_since.map(|at| {
            format!(" since {} ({} ago)", at.strftime("%F %T"), ago(view.at.duration_since(at)))
        });
        let state = if part.answers { "is not well" } else { "is away" };
        let what = format!(
            "{} {state}{}: {}",
            part.part,
            since.unwrap_or_default(),
            part.problems.join("; ")
        );
        need(what, part.next.clone());
    }
    nodes(view, &mut need);
    outbox(view, &mut need);
    if let Some(relay) = &view.relay {
        if relay.dead_letters > 0 {
            need(
                format!("the relay gave up {} events", grouped(relay.dead_letters)),
                format!(
                    "holdfast relay list{0}, mend the cause, then holdfast relay redrive{0}",
                    relay.option
                ),
            );
        }
        let consumers = view.dead_letters.consumers.unwrap_or_default();
        if consumers > 0 {
            need(
                format!("consumers gave up {} messages", grouped(consumers)),
                format!(
                    "holdfast dlq list{0}, mend the cause, then holdfast dlq replay --all{0}",
                    relay.option
                ),
            );
        }
    }
    plant(view, &mut need);
    for disk in &view.disks {
        #[expect(clippy::cast_precision_loss, reason = "a share of a disk")]
        let share = disk.free_bytes as f64 / disk.total_bytes.max(1) as f64;
        if share < MIN_FREE_SHARE {
            need(
                format!(
                    "{} has {:.1} % of its disk left ({})",
                    disk.what,
                    share * 100.0,
                    disk.path
                ),
                "make room, or let go sooner: holdfast edge retain --dry-run shows what would go"
                    .to_owned(),
            );
        }
    }
    view.needs = needs;
}

fn ago(time: jiff::SignedDuration) -> String {
    span(time.as_secs())
}

fn nodes(view: &View, need: &mut impl FnMut(String, String)) {
    let silent: Vec<_> = view.nodes.iter().filter(|node| node.state == Heard::Silent).collect();
    for node in silent.iter().take(NAMED_NODES) {
        let since = node
            .heard_at
            .map_or_else(String::new, |at| format!(" for {}", ago(view.at.duration_since(at))));
        need(
            format!("{} is silent{since}", node.node_id),
            "check its power and its link; on the node: holdfast-node status. What it samples stays in its spool"
                .to_owned(),
        );
    }
    if silent.len() > NAMED_NODES {
        need(
            format!("{} more nodes are silent", silent.len() - NAMED_NODES),
            "holdfast edge nodes lists them; many at once is rather the broker or the network"
                .to_owned(),
        );
    }
    for node in &view.nodes {
        if let Some(flag) = node.flag.as_ref().filter(|_| node.state != Heard::Disabled) {
            need(
                format!("{} is suspected: {flag}", node.node_id),
                format!("see to its card, then holdfast edge clear-flag {}", node.node_id),
            );
        }
    }
}

fn outbox(view: &View, need: &mut impl FnMut(String, String)) {
    let Some(outbox) = &view.outbox else { return };
    let option = &outbox.option;
    if outbox.dead_letters > 0 {
        need(
            format!("the cloud refused {} events of this site", grouped(outbox.dead_letters)),
            format!(
                "holdfast outbox list --status dlq{option}, mend the cause, then holdfast outbox redrive --all{option}"
            ),
        );
    }
    if !outbox.has_cloud {
        return;
    }
    let waited = outbox.oldest_at.map_or(0, |at| view.at.duration_since(at).as_secs());
    if outbox.breaker != "closed" {
        let since = outbox.last_acked_at.map_or_else(String::new, |at| {
            format!("; the last event was taken {} ago", ago(view.at.duration_since(at)))
        });
        let why = outbox.failures.join("; ");
        need(
            format!("the link to the cloud is down{since}: {why}"),
            format!(
                "check the network and the cloud: holdfast doctor edge{option}. {} events wait safely",
                grouped(outbox.waiting)
            ),
        );
    } else if outbox.drain_seconds.is_none() && waited > NOT_DRAINING_AFTER_SECONDS {
        need(
            format!(
                "{} events wait and do not get fewer, the oldest for {}",
                grouped(outbox.waiting),
                span(waited)
            ),
            format!(
                "is the edge's role sync running? holdfast outbox stats{option} shows the pace"
            ),
        );
    }
    if outbox.stuck > 0 && waited > NOT_DRAINING_AFTER_SECONDS {
        need(
            format!("{} events are held by a forwarder that is gone", grouped(outbox.stuck)),
            format!("holdfast outbox unclaim{option}"),
        );
    }
}

fn plant(view: &View, need: &mut impl FnMut(String, String)) {
    if let Some(plant) = &view.plant {
        for (_, words) in plant.warnings.iter().filter(|(critical, _)| *critical) {
            need(
                format!("the plant's outbox: {words}"),
                format!("holdfast scada producer status{}", plant.option),
            );
        }
        let failed = plant.failed.unwrap_or_default();
        if failed > 0 {
            need(
                format!("the plant gave up {} events", grouped(failed)),
                format!(
                    "mend the cause, then holdfast scada producer redrive --all{}",
                    plant.option
                ),
            );
        }
    }
    if let Some(historian) = &view.historian {
        let dead = historian.dead_letters.unwrap_or_default();
        if dead > 0 {
            need(
                format!("the historian gave up {} messages", grouped(dead)),
                format!(
                    "holdfast dlq list --scada{0}, mend the cause, then holdfast dlq replay --scada --all{0}",
                    historian.option
                ),
            );
        }
    }
    if let Some(schedules) = &view.schedules {
        if schedules.captures_failed > 0 {
            need(
                format!(
                    "{} captures of the last day could not be read",
                    grouped(schedules.captures_failed)
                ),
                format!(
                    "holdfast schedule show --user USER{} shows a user's days; ask for a better picture",
                    schedules.option
                ),
            );
        }
        if schedules.messages_failed > 0 {
            need(
                format!(
                    "{} messages of the last day were not delivered",
                    grouped(schedules.messages_failed)
                ),
                format!("check where they go to: holdfast doctor schedule{}", schedules.option),
            );
        }
        #[expect(clippy::cast_possible_truncation, reason = "seconds")]
        let waited = schedules.oldest_seconds.unwrap_or_default() as i64;
        if waited > NOT_DRAINING_AFTER_SECONDS {
            need(
                format!("captures have waited for {}", span(waited)),
                format!("is the worker running? holdfast schedule run{}", schedules.option),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::{Disk, Node, Outbox, Part};
    use super::*;
    use jiff::Timestamp;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn needs(change: impl FnOnce(&mut View)) -> Vec<String> {
        let mut view = View::new(now());
        change(&mut view);
        judge(&mut view);
        view.needs.into_iter().map(|need| format!("{} => {}", need.what, need.next)).collect()
    }

    fn node(state: Heard) -> Node {
        Node {
            node_id: "barn-1".to_owned(),
            state,
            heard_at: Timestamp::from_second(999_700).ok(),
            backlog: Some(9),
            stored: Some(1),
            lost: Some(3),
            quarantined: Some(1),
            free_bytes: None,
            flag: None,
        }
    }

    fn outbox() -> Outbox {
        Outbox {
            waiting: 12,
            oldest_at: Timestamp::from_second(999_990).ok(),
            dead_letters: 0,
            stuck: 0,
            breaker: "closed",
            paused_until: None,
            failures: Vec::new(),
            last_acked_at: Timestamp::from_second(999_940).ok(),
            acked_per_second: 0.0,
            drain_seconds: None,
            has_cloud: true,
            option: " --config edge.toml".to_owned(),
        }
    }

    #[test]
    fn what_passes_by_itself_needs_nobody() {
        assert!(needs(|_| ()).is_empty());
        for state in [Heard::Live, Heard::Late, Heard::Never, Heard::Disabled] {
            assert!(needs(|view| view.nodes.push(node(state))).is_empty(), "{state:?}");
        }
        assert!(needs(|view| view.outbox = Some(outbox())).is_empty());
    }

    #[test]
    fn a_silent_node_and_a_part_that_is_away_are_named_with_what_to_do() {
        let found = needs(|view| view.nodes.push(node(Heard::Silent)));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("barn-1 is silent for 5 min => check its power"), "{found:?}");
        let found = needs(|view| {
            view.parts.push(Part {
                part: "edge".to_owned(),
                problems: vec!["nothing answers there".to_owned()],
                next: "start it".to_owned(),
                ..Part::default()
            });
        });
        assert_eq!(found, ["edge is away: nothing answers there => start it"]);
    }

    #[test]
    fn many_silent_nodes_do_not_fill_the_screen() {
        let found = needs(|view| view.nodes.extend((0..50).map(|_| node(Heard::Silent))));
        assert_eq!(found.len(), NAMED_NODES + 1);
        assert!(found[NAMED_NODES].starts_with("45 more nodes are silent"), "{found:?}");
    }

    #[test]
    fn the_outbox_needs_somebody_when_the_link_is_down_or_the_cloud_refused_or_nothing_moves() {
        let found = needs(|view| {
            view.outbox = Some(Outbox { breaker: "open", dead_letters: 2, ..outbox() });
        });
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("refused 2 events"), "{found:?}");
        assert!(found[0].contains("holdfast outbox redrive --all --config edge.toml"), "{found:?}");
        assert!(found[1].contains("down; the last event was taken 1 min ago"), "{found:?}");
        let old = Timestamp::from_second(990_000).ok();
        let found = needs(|view| view.outbox = Some(Outbox { oldest_at: old, ..outbox() }));
        assert!(found[0].contains("do not get fewer, the oldest for 2 h 46 min"), "{found:?}");
        let moving = Outbox { oldest_at: old, drain_seconds: Some(60.0), ..outbox() };
        assert!(needs(|view| view.outbox = Some(moving)).is_empty());
        let alone = Outbox { oldest_at: old, has_cloud: false, ..outbox() };
        assert!(needs(|view| view.outbox = Some(alone)).is_empty());
    }

    #[test]
    fn a_full_disk_needs_somebody() {
        let disk = |free_bytes| Disk {
            what: "spool".to_owned(),
            path: "/spool".to_owned(),
            free_bytes,
            total_bytes: 1_000,
        };
        assert!(needs(|view| view.disks.push(disk(100))).is_empty());
        assert_eq!(needs(|view| view.disks.push(disk(10))).len(), 1);
    }
}
