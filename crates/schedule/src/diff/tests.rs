use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn shift(start: u8, end: u8, place: &str, title: &str) -> Shift {
    Shift {
        customer: "anna".to_owned(),
        end: format!("{end:02}:00"),
        ends_next_day: end <= start,
        kind: "regular".to_owned(),
        location: place.to_owned(),
        start: format!("{start:02}:00"),
        title: title.to_owned(),
    }
}

fn types(changes: &[Change]) -> Vec<EventType> {
    changes.iter().flat_map(|change| change.types.clone()).collect()
}

#[test]
fn one_change_is_one_event() {
    let old = shift(8, 16, "ward 3", "nurse");
    let kind = Shift { kind: "on call".to_owned(), ..old.clone() };
    let customer = Shift { customer: "bob".to_owned(), ..old.clone() };
    let cases = [
        (shift(9, 17, "ward 3", "nurse"), EventType::ShiftTimeChanged),
        (shift(8, 16, "ward 4", "nurse"), EventType::ShiftRelocated),
        (customer, EventType::ShiftRelocated),
        (shift(8, 16, "ward 3", "doctor"), EventType::ShiftRetitled),
        (kind, EventType::ShiftReclassified),
    ];
    for (new, expected) in cases {
        assert_eq!(types(&diff(std::slice::from_ref(&old), &[new])), [expected]);
    }
    assert_eq!(types(&diff(&[], std::slice::from_ref(&old))), [EventType::ShiftAdded]);
    assert_eq!(types(&diff(std::slice::from_ref(&old), &[])), [EventType::ShiftRemoved]);
}

#[test]
fn two_aspects_are_still_the_same_shift_unless_it_is_elsewhere_at_another_time() {
    let old = [shift(8, 16, "a", "nurse")];
    let moved = diff(&old, &[shift(9, 17, "b", "nurse")]);
    assert_eq!(types(&moved), [EventType::ShiftTimeChanged, EventType::ShiftRelocated]);
    let other = diff(&old, &[shift(18, 22, "b", "nurse")]);
    assert_eq!(types(&other), [EventType::ShiftRemoved, EventType::ShiftAdded]);
    let replaced = diff(&old, &[shift(9, 17, "b", "doctor")]);
    assert_eq!(types(&replaced), [EventType::ShiftRemoved, EventType::ShiftAdded]);
}

#[test]
fn swapped_places_are_matched_by_time() {
    let old = [shift(8, 12, "a", "x"), shift(13, 17, "b", "x")];
    let new = [shift(8, 12, "b", "x"), shift(13, 17, "a", "x")];
    let changes = diff(&old, &new);
    assert_eq!(types(&changes).len(), 2);
}

#[test]
fn the_nearest_time_is_the_partner() {
    let old = [shift(8, 12, "a", "x"), shift(14, 18, "a", "x")];
    let new = [shift(9, 13, "a", "x"), shift(15, 19, "a", "x")];
    let starts =
        |change: &Change| (change.old.clone().unwrap().start, change.new.clone().unwrap().start);
    let pairs: Vec<_> = diff(&old, &new).iter().map(starts).collect();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(pairs, [pair("08:00", "09:00"), pair("14:00", "15:00")]);
}

#[test]
fn ids_follow_the_recurrence_key() {
    let change = &diff(&[], &[shift(8, 16, "a", "x")])[0];
    let day = jiff::civil::date(2026, 11, 16);
    let id = |user, base| change.events(user, day, base)[0].event_id;
    assert_eq!(id(1, 0), id(1, 0));
    assert_eq!(HashSet::from([id(1, 0), id(1, 1), id(2, 0)]).len(), 3);
}

/// Few values, so that days share much.
fn any_shift() -> impl Strategy<Value = Shift> {
    (0u8..5, 1u8..3, 0usize..2, 0usize..2, 0usize..2).prop_map(|(at, long, place, title, kind)| {
        let start = at * 5;
        Shift {
            kind: ["regular", "on call"][kind].to_owned(),
            ..shift(start, (start + long * 3) % 24, ["a", "b"][place], ["x", "y"][title])
        }
    })
}

fn any_day(most: usize) -> impl Strategy<Value = Vec<Shift>> {
    proptest::collection::vec(any_shift(), 0..=most).prop_map(|mut shifts| {
        shifts.sort_by(|a, b| a.order().cmp(&b.order()));
        shifts.dedup();
        shifts
    })
}

/// The fewest events over all ways to pair.
fn fewest(old: &[Shift], new: &[Shift]) -> usize {
    let Some((first, rest)) = old.split_first() else { return new.len() };
    let dropped = 1 + fewest(rest, new);
    let paired = (0..new.len()).map(|at| {
        let mut others = new.to_vec();
        let partner = others.remove(at);
        aspects(first, &partner).len() + fewest(rest, &others)
    });
    paired.min().map_or(dropped, |paired| paired.min(dropped))
}

proptest! {
    #[test]
    fn applying_the_difference_gives_the_new_day(old in any_day(8), new in any_day(8)) {
        prop_assert_eq!(apply(&diff(&old, &new), &old), Some(new));
    }

    #[test]
    fn equal_days_have_no_difference(day in any_day(8)) {
        prop_assert!(diff(&day, &day).is_empty());
    }

    #[test]
    fn no_edit_is_shorter(old in any_day(5), new in any_day(5)) {
        let changes = diff(&old, &new);
        prop_assert_eq!(types(&changes).len(), fewest(&old, &new), "{:?}", changes);
    }

    #[test]
    fn events_of_a_difference_have_ids_of_their_own(old in any_day(8), new in any_day(8)) {
        let day = jiff::civil::date(2026, 11, 16);
        let events: Vec<Event> =
            diff(&old, &new).iter().flat_map(|change| change.events(1, day, 3)).collect();
        let ids: HashSet<Uuid> = events.iter().map(|event| event.event_id).collect();
        prop_assert_eq!(ids.len(), events.len());
        let again: Vec<Event> =
            diff(&old, &new).iter().flat_map(|change| change.events(1, day, 3)).collect();
        prop_assert_eq!(again, events);
    }

    #[test]
    fn there_and_back_is_as_long(old in any_day(6), new in any_day(6)) {
        prop_assert_eq!(types(&diff(&old, &new)).len(), types(&diff(&new, &old)).len());
    }
}
