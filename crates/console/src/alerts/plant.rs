//! What holds at one moment of the plant: the historian and the SCADA nodes that feed it. Pure. It has no tenants: its alerts are for those who see everything.

use std::collections::BTreeSet;

use super::rules::{Limits, Queue, alert};
use super::thresholds::{
    FLOOD, HISTORIAN_DEAD, HISTORIAN_SILENT, HISTORIAN_STILL, OUTBOX_STILL, PRODUCER_DEAD,
    PRODUCER_OLDEST, PRODUCER_PENDING, PRODUCER_STUCK,
};
use super::{Alert, Severity};
use crate::picture::{Tick, number};
use crate::upstream::historian::SILENCE;

/// The plant.
pub(super) fn of_plant(tick: &Tick) -> Vec<Alert> {
    let Some(plant) = tick.plant.as_ref().filter(|plant| plant.here) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some((severity, threshold)) = HISTORIAN_DEAD.above(number(plant.dead_letters)) {
        found.push(Alert {
            value: Some(number(plant.dead_letters)),
            threshold: Some(threshold),
            unit: "dead letters",
            text: format!("{} messages were refused by the historian", plant.dead_letters),
            what_to_do: "Look at their causes in Queues or with `holdfast dlq list --scada`; mend the cause, then redrive them.",
            ..alert(HISTORIAN_DEAD.rule, "historian", severity, BTreeSet::new())
        });
    }
    if let Some(problem) = plant.problems.iter().find(|problem| !problem.starts_with(SILENCE)) {
        found.push(Alert {
            text: format!("the historian does not store: {problem}"),
            what_to_do: "Look at its log, its database and its bus. The bus keeps what is not stored.",
            ..alert(HISTORIAN_STILL.rule, "historian", Severity::Critical, BTreeSet::new())
        });
    }
    let silent = plant.newest_age_s.unwrap_or(0.0);
    if let Some((severity, threshold)) = HISTORIAN_SILENT.above(silent) {
        found.push(Alert {
            value: Some(silent),
            threshold: Some(threshold),
            unit: "s",
            text: format!("the historian's newest reading is {silent:.0} s old"),
            what_to_do: "Look whether the SCADA nodes run, at their outboxes, and at the bus between.",
            ..alert(HISTORIAN_SILENT.rule, "historian", severity, BTreeSet::new())
        });
    }
    let floods = plant.floods.iter();
    found.extend(floods.map(|flood| Alert {
        value: Some(f64::from(i32::try_from(flood.peak).unwrap_or(i32::MAX))),
        threshold: FLOOD.critical,
        unit: "alarms in 10 min",
        text: format!("more alarms than one can follow at {}", flood.position),
        what_to_do: "Work from the worst down; shelve what chatters.",
        ..alert(FLOOD.rule, &flood.position, Severity::Critical, BTreeSet::new())
    }));
    found
}

/// SCADA nodes.
pub(super) fn of_producers(tick: &Tick) -> Vec<Alert> {
    let mut found = Vec::new();
    for producer in tick.producers.iter().filter(|producer| producer.here) {
        let outbox = &producer.outbox;
        let queue = Queue {
            name: format!("producer:{}", producer.name),
            site: None,
            tenant: None,
            waiting: outbox.pending,
            oldest_age_s: Some(outbox.oldest_s),
            // A node does not say when something last left; its oldest event does.
            still_s: 0.0,
            dead: outbox.failed,
            limits: Limits {
                pending: &PRODUCER_PENDING,
                oldest: &PRODUCER_OLDEST,
                still: &OUTBOX_STILL,
                dead: &PRODUCER_DEAD,
                redrive: "Its log says why; mend the cause, then run `holdfast scada producer redrive` on its machine.",
            },
            explained: true,
        };
        queue.alerts(&mut found);
        if outbox.in_progress > outbox.batch_size {
            found.push(Alert {
                value: Some(number(outbox.in_progress)),
                threshold: Some(number(outbox.batch_size)),
                unit: "events",
                text: format!("{} events of {} are held by dispatchers", outbox.in_progress, producer.name),
                what_to_do: "A dispatcher may be stuck: look at the node's log; restart it if it hangs. Nothing is lost by that.",
                limit: Some(&PRODUCER_STUCK),
                ..queue.alert(PRODUCER_STUCK.rule, Severity::Warning)
            });
        }
    }
    found
}
