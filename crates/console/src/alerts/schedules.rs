//! What holds at one moment of people's schedules. Pure. They have no tenants: their alerts are for those who see everything.

use std::collections::BTreeSet;

use super::Alert;
use super::rules::alert;
use super::thresholds::{CAPTURES_OLDEST, Limit, MESSAGES_OLDEST};
use crate::picture::Tick;

/// Captures that nobody reads, messages that nobody delivers.
pub(super) fn of_schedules(tick: &Tick) -> Vec<Alert> {
    let Some(schedule) = tick.schedule.as_ref().filter(|schedule| schedule.here) else {
        return Vec::new();
    };
    let waits = |limit: &'static Limit, what: &str, oldest_s: f64, what_to_do| {
        let (severity, threshold) = limit.above(oldest_s)?;
        Some(Alert {
            value: Some(oldest_s),
            threshold: Some(threshold),
            unit: "s",
            text: format!("the oldest of the {what} of schedules waits for {oldest_s:.0} s"),
            what_to_do,
            limit: Some(limit),
            ..alert(limit.rule, &format!("schedule:{what}"), severity, BTreeSet::new())
        })
    };
    let captures = waits(
        &CAPTURES_OLDEST,
        "captures",
        schedule.captures_oldest_s,
        "Look whether `holdfast schedule run` runs, and at its log: the model that reads captures may be away. Nothing is lost.",
    );
    let messages = waits(
        &MESSAGES_OLDEST,
        "messages",
        schedule.messages_oldest_s,
        "Look at the receiver, and at the log of `holdfast schedule run`, which delivers. Nothing is lost: it is tried again.",
    );
    captures.into_iter().chain(messages).collect()
}
