//! What the outbox commands print for people.

use std::fmt::Write as _;

use edge::sync::admin::{Breaker, Detail, Done, Page, Stats, Status};
use jiff::Timestamp;

use crate::table;

/// The most characters of an error in a table.
const MESSAGE_CHARS: usize = 60;

/// A page of rows.
pub(super) fn page(page: &Page, now: Timestamp) -> String {
    if page.rows.is_empty() {
        return "No row matches.\n".to_owned();
    }
    let headings = ["id", "state", "type", "from", "age", "attempts", "held by", "why"];
    let mut rows = table::new(&headings, &[5]);
    for row in &page.rows {
        let from = match (&row.stream, row.seq) {
            (Some(stream), Some(seq)) => format!("{stream} #{seq}"),
            _ => row.device_id.map_or_else(|| "-".to_owned(), |device| device.to_string()),
        };
        let why = match (&row.dlq_reason, &row.last_error_message) {
            (Some(reason), Some(message)) => format!("{reason}: {}", clip(message)),
            (Some(reason), None) => reason.clone(),
            (None, Some(message)) => clip(message),
            (None, None) => String::new(),
        };
        rows.add_row([
            row.id.to_string(),
            row.status.clone(),
            row.event_type.clone(),
            from,
            table::span(now.duration_since(row.created_at).as_secs()),
            row.attempt_count.to_string(),
            row.claimed_by.clone().unwrap_or_default(),
            why,
        ]);
    }
    let mut text = format!("{rows}\n");
    if let Some(next) = page.next {
        let _ = writeln!(text, "There are more: --after {next}");
    }
    text
}

/// One row.
pub(super) fn detail(detail: &Detail) -> String {
    // The row's own JSON has every column once, in order.
    let columns = serde_json::to_value(&detail.row).unwrap_or_default();
    let mut rows = table::new(&["column", "value"], &[]);
    for (name, value) in columns.as_object().into_iter().flatten() {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        rows.add_row([name.clone(), value]);
    }
    let mut text = format!("{rows}\n");
    if let Some(payload) = &detail.payload_json {
        let _ = write!(text, "\npayload\n{}\n", payload.get());
    }
    if !detail.history.is_empty() {
        let headings = ["when", "what", "who", "state before", "attempts", "why"];
        let mut rows = table::new(&headings, &[4]);
        for one in &detail.history {
            let why = one.dlq_reason.as_ref().or(one.claimed_by.as_ref());
            let message = match &one.because {
                Some(because) => format!("(given up: {because})"),
                None => one.last_error_message.as_deref().map(clip).unwrap_or_default(),
            };
            let who = match &one.acting_for {
                Some(person) => format!("{} for {person}", one.actor),
                None => one.actor.clone(),
            };
            rows.add_row([
                one.at.to_string(),
                one.action.clone(),
                who,
                one.status.clone(),
                one.attempt_count.to_string(),
                format!("{} {message}", why.map_or("", String::as_str)).trim().to_owned(),
            ]);
        }
        let _ = write!(text, "\nhistory\n{rows}\n");
    }
    text
}

/// What was done.
pub(super) fn done(done: &Done, what: &str, why: &str) -> String {
    let rows = |count: u64| table::grouped(i64::try_from(count).unwrap_or(i64::MAX));
    let would = if done.dry_run { "would be " } else { "" };
    let mut text = format!("{} rows {would}{what}", rows(done.rows));
    if let Some(audit) = done.audit_id {
        let _ = write!(text, " (audit {audit})");
    }
    text.push('\n');
    for (reason, count) in &done.by_reason {
        let _ = writeln!(text, "  {} {why} {reason}", rows(*count));
    }
    if done.left > 0 {
        let _ = writeln!(text, "{} more match; see --limit", rows(done.left));
    }
    text
}

/// How the outbox stands.
pub(super) fn stats(stats: &Stats) -> String {
    let ago = |at: Option<Timestamp>| match at {
        Some(at) => format!("{} ago", table::span(stats.at.duration_since(at).as_secs())),
        None => "-".to_owned(),
    };
    let mut text = match stats.breaker {
        Breaker::Closed => "The link to the cloud is up, as far as is known.\n".to_owned(),
        Breaker::HalfOpen => {
            "The link to the cloud was down; the next request tries it.\n".to_owned()
        }
        Breaker::Open => {
            let left = stats.paused_until.map_or(0, |at| at.duration_since(stats.at).as_secs());
            format!("The link to the cloud is down; it is tried again in {}.\n", table::span(left))
        }
    };
    let mut failures: Vec<&str> =
        stats.tenants.iter().filter_map(|one| one.last_failure.as_deref()).collect();
    failures.sort_unstable();
    failures.dedup();
    for failure in failures {
        let _ = writeln!(text, "  {failure}");
    }
    let waiting: i64 = stats.tenants.iter().map(edge::sync::admin::TenantStats::waiting).sum();
    let _ =
        writeln!(text, "{} rows wait; {}.", table::grouped(waiting), drain(stats.drain_seconds));
    if stats.tenants.is_empty() {
        return text;
    }
    let states: Vec<Status> = Status::ALL
        .into_iter()
        .filter(|state| stats.tenants.iter().any(|one| one.rows.contains_key(state.as_str())))
        .collect();
    let mut headings = vec!["tenant"];
    headings.extend(states.iter().map(|state| state.as_str()));
    headings.extend([
        "stuck",
        "oldest",
        "acked/s",
        "arriving/s",
        "drains in",
        "last ack",
        "failures",
    ]);
    let last = states.len();
    let numbers: Vec<usize> = (1..=last + 1).chain([last + 3, last + 4, last + 7]).collect();
    let mut rows = table::new(&headings, &numbers);
    for one in &stats.tenants {
        let mut cells = vec![one.tenant_id.to_string()];
        let count = |state: &Status| one.rows.get(state.as_str()).copied().unwrap_or_default();
        cells.extend(states.iter().map(|state| table::grouped(count(state))));
        cells.extend([
            table::grouped(one.stuck),
            ago(one.oldest_at),
            format!("{:.1}", one.acked_per_second),
            format!("{:.1}", one.arriving_per_second),
            drain(one.drain_seconds),
            ago(one.last_acked_at),
            one.consecutive_failures.to_string(),
        ]);
        rows.add_row(cells);
    }
    let _ = write!(text, "\n{rows}\n");
    text
}

fn drain(seconds: Option<f64>) -> String {
    match seconds {
        None => "not shrinking".to_owned(),
        Some(seconds) if seconds <= 0.0 => "nothing to drain".to_owned(),
        // As long as three million years is long enough for a table.
        #[expect(clippy::cast_possible_truncation, reason = "it is clamped")]
        Some(seconds) => format!("gone in about {}", table::span(seconds.min(1e14) as i64)),
    }
}

fn clip(message: &str) -> String {
    let mut text: String = message.chars().take(MESSAGE_CHARS).collect();
    if text.len() < message.len() {
        text.push('…');
    }
    text
}
