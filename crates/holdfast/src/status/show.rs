//! One screen for people.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::view::{Heard, Node, Outbox, Part, View};
use crate::table::{self, grouped, span};

/// The most nodes on the screen, the worst first; the rest is a number.
const SHOWN_NODES: usize = 30;
/// What waits for less is on its way.
const PASSING_SECONDS: i64 = 15;

/// Everything.
pub(super) fn screen(view: &View) -> String {
    let mut text = format!("{}   {}\n\n", view.at.strftime("%F %T UTC"), verdict(view));
    let mut rows = table::new(&["part", "state", "what it says"], &[]);
    for part in &view.parts {
        let state = match (part.answers, part.problems.is_empty()) {
            (false, _) => "away",
            (true, false) => "not well",
            (true, true) => "ok",
        };
        rows.add_row([part.part.clone(), state.to_owned(), says(part, view.at)]);
    }
    let _ = writeln!(text, "{rows}\n");
    if !view.nodes.is_empty() {
        nodes(&mut text, view);
    }
    let mut rows = table::new(&["held", "", ""], &[]);
    let mut row = |what: &str, many: Option<i64>, more: String| {
        rows.add_row([what.to_owned(), shown(many), more]);
    };
    if let Some(one) = &view.outbox {
        row("outbox of the edge", Some(one.waiting), outbox(one, view.at));
    }
    if let Some(relay) = &view.relay {
        let oldest =
            relay.oldest_seconds.map(|seconds| format!("oldest due for {}", whole(seconds)));
        row("relay of the cloud", Some(relay.waiting), oldest.unwrap_or_default());
    }
    if let Some(plant) = &view.plant {
        let mut more = Vec::new();
        more.extend(plant.oldest_seconds.map(|seconds| format!("oldest {}", span(seconds))));
        let spooled = plant.spooled_cycles.filter(|cycles| *cycles > 0);
        more.extend(spooled.map(|cycles| format!("{} cycles in its spool", grouped(cycles))));
        more.extend(plant.warnings.iter().map(|(_, words)| words.clone()));
        row("outbox of the plant", plant.pending, more.join("; "));
    }
    if let Some(schedules) = &view.schedules {
        row("captured schedules", Some(schedules.captures_waiting), String::new());
        row("messages to people", Some(schedules.messages_waiting), String::new());
    }
    let dead = &view.dead_letters;
    let all = [
        ("edge", dead.edge),
        ("relay", dead.relay),
        ("consumers", dead.consumers),
        ("plant", dead.plant),
        ("historian", dead.historian),
    ];
    let known: Vec<_> = all.iter().filter_map(|(who, many)| many.map(|many| (who, many))).collect();
    // Whoever was asked and could not say is named, or nobody would miss the number.
    let unsaid = [
        ("consumers", view.relay.is_some() && dead.consumers.is_none()),
        ("historian", view.historian.is_some() && dead.historian.is_none()),
    ];
    if !known.is_empty() {
        let mut by: Vec<String> =
            known.iter().map(|(who, many)| format!("{who} {}", grouped(*many))).collect();
        let unsaid = unsaid.iter().filter(|(_, is_so)| *is_so);
        by.extend(unsaid.map(|(who, _)| format!("{who} not known")));
        row("dead letters", Some(known.iter().map(|(_, many)| many).sum()), by.join(", "));
    }
    if !rows.is_empty() {
        let _ = writeln!(text, "{rows}\n");
    }
    if let Some(historian) = &view.historian {
        let list = match historian.unacknowledged_alarms {
            0 => String::new(),
            _ => format!(": holdfast scada alarms list{}", historian.option),
        };
        let _ = writeln!(
            text,
            "alarms: {} active, {} not acknowledged{list}",
            grouped(historian.active_alarms),
            grouped(historian.unacknowledged_alarms)
        );
    }
    for disk in &view.disks {
        let _ = writeln!(
            text,
            "disk of the {}: {} free of {}",
            disk.what,
            bytes(disk.free_bytes),
            bytes(disk.total_bytes)
        );
    }
    for need in &view.needs {
        let _ = write!(text, "\n! {}\n  -> {}\n", need.what, need.next);
    }
    text
}

/// The first line: whether somebody is needed.
pub(super) fn verdict(view: &View) -> String {
    match view.needs.len() {
        0 => "all is well".to_owned(),
        1 => "1 thing needs a person".to_owned(),
        many => format!("{many} things need a person"),
    }
}

fn says(part: &Part, now: Timestamp) -> String {
    let mut words: Vec<String> = part.problems.iter().chain(&part.notes).cloned().collect();
    words.extend(part.away_since.map(|at| format!("since {} ago", age(now, at))));
    if part.is_well() && !part.place.is_empty() {
        words.insert(0, part.place.clone());
    }
    words.join("; ")
}

fn nodes(text: &mut String, view: &View) {
    let count = |state| view.nodes.iter().filter(|node| node.state == state).count();
    let mut words = Vec::new();
    for state in
        [Heard::Live, Heard::Late, Heard::Silent, Heard::Never, Heard::Disabled, Heard::Unknown]
    {
        let many = count(state);
        if many > 0 || matches!(state, Heard::Live | Heard::Late | Heard::Silent) {
            words.push(format!("{many} {}", state.as_str()));
        }
    }
    let _ = writeln!(text, "{} nodes: {}", view.nodes.len(), words.join(", "));
    let mut worst: Vec<&Node> = view.nodes.iter().collect();
    worst.sort_by_key(|node| (node.state, std::cmp::Reverse(node.backlog), node.node_id.clone()));
    let headings =
        ["node", "state", "heard", "held there", "stored", "lost", "quarantined", "note"];
    let mut rows = table::new(&headings, &[3, 4, 5, 6]);
    for node in worst.iter().take(SHOWN_NODES) {
        rows.add_row([
            node.node_id.clone(),
            node.state.as_str().to_owned(),
            node.heard_at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", age(view.at, at))),
            shown(node.backlog),
            shown(node.stored),
            shown(node.lost),
            shown(node.quarantined),
            node.flag.clone().unwrap_or_default(),
        ]);
    }
    let _ = writeln!(text, "{rows}");
    if worst.len() > SHOWN_NODES {
        let _ = writeln!(text, "and {} more: holdfast edge nodes", worst.len() - SHOWN_NODES);
    }
    text.push('\n');
}

fn outbox(outbox: &Outbox, now: Timestamp) -> String {
    let mut words = Vec::new();
    if !outbox.has_cloud {
        return "no cloud is configured; it is kept here".to_owned();
    }
    words.push(match outbox.breaker {
        "closed" => "link up".to_owned(),
        "half_open" => "link was down, the next request tries it".to_owned(),
        _ => "link down".to_owned(),
    });
    words.extend(outbox.oldest_at.map(|at| format!("oldest {}", age(now, at))));
    let waited = outbox.oldest_at.map_or(0, |at| now.duration_since(at).as_secs());
    // What is only passing through has no trend worth a word.
    if waited >= PASSING_SECONDS {
        words.push(match outbox.drain_seconds {
            None => "not shrinking".to_owned(),
            Some(seconds) => format!("gone in about {}", whole(seconds)),
        });
    }
    words.push(format!("{:.0} a second", outbox.acked_per_second));
    words.join(", ")
}

fn age(now: Timestamp, at: Timestamp) -> String {
    span(now.duration_since(at).as_secs())
}

/// A time as it is estimated: in whole seconds, and bounded.
fn whole(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "it is clamped")]
    span(seconds.clamp(0.0, 1e14) as i64)
}

fn shown(number: Option<i64>) -> String {
    number.map_or_else(|| "?".to_owned(), grouped)
}

/// Bytes in the unit that leaves one to four digits.
pub(crate) fn bytes(many: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut unit, mut rest) = (0, many);
    while rest >= 10_240 && unit + 1 < units.len() {
        rest /= 1_024;
        unit += 1;
    }
    format!("{rest} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short() {
        let cases = [(0, "0 B"), (10_239, "10239 B"), (64 << 20, "64 MiB"), (34 << 30, "34 GiB")];
        for (many, text) in cases {
            assert_eq!(bytes(many), text);
        }
    }

    #[test]
    fn the_worst_node_is_first() {
        let node = |node_id: &str, state| Node {
            node_id: node_id.to_owned(),
            state,
            heard_at: None,
            backlog: None,
            stored: None,
            lost: None,
            quarantined: None,
            free_bytes: None,
            flag: None,
        };
        let mut view = View::new(Timestamp::UNIX_EPOCH);
        view.nodes = vec![node("barn-1", Heard::Live), node("barn-2", Heard::Silent)];
        let text = screen(&view);
        assert!(text.contains("2 nodes: 1 live, 0 late, 1 silent"), "{text}");
        let place = |name| text.find(name).unwrap();
        assert!(place("barn-2") < place("barn-1"), "{text}");
    }
}
