//! What changed between two days, in the fewest events that say it. Pure and deterministic.
//!
//! Promises: [`apply`] of [`diff`] to the old day's shifts gives the new day's; the difference of equal days is empty; there is no shorter one.
//! docs/spec/schedule.md has the costs and the hashes.

mod assign;

use std::collections::HashSet;

use jiff::civil::Date;
use serde::Serialize;
use uuid::Uuid;

use crate::canonical::Shift;
use crate::digest;

/// What happened to a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// A new shift.
    ShiftAdded,
    /// A shift is gone.
    ShiftRemoved,
    /// Start or end changed.
    ShiftTimeChanged,
    /// Location or customer changed.
    ShiftRelocated,
    /// The title changed.
    ShiftRetitled,
    /// The kind changed.
    ShiftReclassified,
}

impl EventType {
    /// All of them.
    pub const ALL: [EventType; 6] = [
        EventType::ShiftAdded,
        EventType::ShiftRemoved,
        EventType::ShiftTimeChanged,
        EventType::ShiftRelocated,
        EventType::ShiftRetitled,
        EventType::ShiftReclassified,
    ];

    /// Its name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::ShiftAdded => "shift_added",
            EventType::ShiftRemoved => "shift_removed",
            EventType::ShiftTimeChanged => "shift_time_changed",
            EventType::ShiftRelocated => "shift_relocated",
            EventType::ShiftRetitled => "shift_retitled",
            EventType::ShiftReclassified => "shift_reclassified",
        }
    }
}

/// One change of a shift: its old value, its new value, and at least one of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The shift as it was.
    pub old: Option<Shift>,
    /// The shift as it is.
    pub new: Option<Shift>,
    /// What happened to it: one event each, never empty.
    pub types: Vec<EventType>,
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Made of the recurrence key: the same change against the same version has the same id.
    pub event_id: Uuid,
    /// What happened.
    pub event_type: EventType,
    /// Where.
    pub location_fingerprint: String,
    /// For whom.
    pub customer_fingerprint: String,
    /// Of the old value.
    pub old_value_hash: String,
    /// Of the new value.
    pub new_value_hash: String,
}

/// One event's worth of cost. Everything else decides only among equals.
const EVENT: i64 = 1_000_000;
/// What two shifts alone cost beyond their two events, against a pair: more than the minutes of any change, so that a pair is preferred.
const APART: i64 = 100_000;

/// What changed, in the order of the old day and then of the new. Both lists are in canonical order.
pub fn diff(old: &[Shift], new: &[Shift]) -> Vec<Change> {
    let (before, after): (HashSet<&Shift>, HashSet<&Shift>) =
        (old.iter().collect(), new.iter().collect());
    let gone: Vec<&Shift> = old.iter().filter(|shift| !after.contains(*shift)).collect();
    let come: Vec<&Shift> = new.iter().filter(|shift| !before.contains(*shift)).collect();
    let mut partner: Vec<Option<usize>> = vec![None; gone.len()];
    // The method wants the shorter list as rows. A pair that is as dear as two alone stays two alone.
    if gone.len() <= come.len() {
        let costs = matrix(gone.len(), come.len(), |row, column| cost(gone[row], come[column]));
        for (row, column) in assign::cheapest(&costs).into_iter().enumerate() {
            partner[row] = (costs[row][column] < alone()).then_some(column);
        }
    } else {
        let costs = matrix(come.len(), gone.len(), |row, column| cost(gone[column], come[row]));
        for (row, column) in assign::cheapest(&costs).into_iter().enumerate() {
            partner[column] = (costs[row][column] < alone()).then_some(row);
        }
    }
    let paired: HashSet<usize> = partner.iter().flatten().copied().collect();
    let mut changes = Vec::with_capacity(gone.len() + come.len());
    for (shift, partner) in gone.iter().zip(&partner) {
        let new = partner.map(|at| come[at]);
        let types = new.map_or(vec![EventType::ShiftRemoved], |new| aspects(shift, new));
        changes.push(Change { old: Some((*shift).clone()), new: new.cloned(), types });
    }
    for (_, shift) in come.iter().enumerate().filter(|(at, _)| !paired.contains(at)) {
        let types = vec![EventType::ShiftAdded];
        changes.push(Change { old: None, new: Some((*shift).clone()), types });
    }
    changes
}

/// Replaces each old value by its new one. `None` when an old value is not there: the changes are of another day.
pub fn apply(changes: &[Change], shifts: &[Shift]) -> Option<Vec<Shift>> {
    let mut shifts = shifts.to_vec();
    for old in changes.iter().filter_map(|change| change.old.as_ref()) {
        let at = shifts.iter().position(|shift| shift == old)?;
        shifts.remove(at);
    }
    shifts.extend(changes.iter().filter_map(|change| change.new.clone()));
    shifts.sort_by(|a, b| a.order().cmp(&b.order()));
    Some(shifts)
}

fn matrix(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> i64) -> Vec<Vec<i64>> {
    (0..rows).map(|row| (0..columns).map(|column| cost(row, column)).collect()).collect()
}

fn alone() -> i64 {
    2 * EVENT + APART
}

/// What a pair costs, and not more than its shifts alone.
fn cost(old: &Shift, new: &Shift) -> i64 {
    let aspects = aspects(old, new);
    let ((old_start, old_end), (new_start, new_end)) = (old.minutes(), new.minutes());
    let overlap = old_start < new_end && new_start < old_end;
    let other_shift =
        aspects == [EventType::ShiftTimeChanged, EventType::ShiftRelocated] && !overlap;
    if aspects.len() > 2 || other_shift {
        return alone();
    }
    let events = i64::try_from(aspects.len()).unwrap_or(i64::MAX / EVENT);
    events * EVENT + (old_start - new_start).abs() + (old_end - new_end).abs()
}

fn aspects(old: &Shift, new: &Shift) -> Vec<EventType> {
    let differ = [
        (EventType::ShiftTimeChanged, old.minutes() != new.minutes()),
        (EventType::ShiftRelocated, old.location != new.location || old.customer != new.customer),
        (EventType::ShiftRetitled, old.title != new.title),
        (EventType::ShiftReclassified, old.kind != new.kind),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect()
}

impl Change {
    /// Its events, as they are stored for a user's day that was compared with a version.
    pub fn events(&self, user_id: i64, schedule_date: Date, base_version: i32) -> Vec<Event> {
        let of = self.old.as_ref().or(self.new.as_ref());
        let (location, customer) =
            of.map_or(("", ""), |shift| (shift.location.as_str(), shift.customer.as_str()));
        let location_fingerprint = digest::hex(format!("location:{location}").as_bytes());
        let customer_fingerprint = digest::hex(format!("customer:{customer}").as_bytes());
        let old_value_hash = Shift::value_hash(self.old.as_ref());
        let new_value_hash = Shift::value_hash(self.new.as_ref());
        let event = |event_type: &EventType| Event {
            event_id: digest::id(&[
                &user_id.to_string(),
                &schedule_date.to_string(),
                &location_fingerprint,
                &customer_fingerprint,
                event_type.as_str(),
                &old_value_hash,
                &new_value_hash,
                &base_version.to_string(),
            ]),
            event_type: *event_type,
            location_fingerprint: location_fingerprint.clone(),
            customer_fingerprint: customer_fingerprint.clone(),
            old_value_hash: old_value_hash.clone(),
            new_value_hash: new_value_hash.clone(),
        };
        self.types.iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests;
