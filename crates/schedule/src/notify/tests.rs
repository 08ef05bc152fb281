use super::*;
use crate::diff::diff;

fn shift(start: &str, end: &str, location: &str, title: &str) -> Shift {
    Shift {
        customer: String::new(),
        end: end.to_owned(),
        ends_next_day: end <= start,
        kind: "regular".to_owned(),
        location: location.to_owned(),
        start: start.to_owned(),
        title: title.to_owned(),
    }
}

fn news(old: &[Shift], new: &[Shift], first: bool, language: Language) -> Vec<Notification> {
    let schedule_date = jiff::civil::date(2026, 11, 16);
    let changes: Vec<(Change, Vec<Uuid>)> = diff(old, new)
        .into_iter()
        .map(|change| {
            let ids =
                change.events(1, schedule_date, 1).iter().map(|event| event.event_id).collect();
            (change, ids)
        })
        .collect();
    let session = Uuid::nil();
    notifications(&News { session, schedule_date, first, changes: &changes, shifts: new }, language)
}

fn said(old: Shift, new: Shift, language: Language) -> String {
    let told = news(&[old], &[new], false, language);
    assert_eq!(told.len(), 1);
    told[0].message.clone()
}

#[test]
fn a_moved_shift_is_one_sentence() {
    let (old, new) =
        (shift("08:00", "16:00", "ward 3", "nurse"), shift("09:30", "17:30", "ward 3", "nurse"));
    let of = |language| said(old.clone(), new.clone(), language);
    assert_eq!(
        of(Language::English),
        "Monday 16 November: Nurse – moved from 08:00–16:00 to 09:30–17:30."
    );
    assert_eq!(
        of(Language::German),
        "Montag, 16. November: Nurse – von 08:00–16:00 auf 09:30–17:30 verlegt."
    );
    assert_eq!(
        of(Language::Spanish),
        "Lunes 16 de noviembre: Nurse – pasa de 08:00–16:00 a 09:30–17:30."
    );
    assert_eq!(
        of(Language::French),
        "Lundi 16 novembre : Nurse – passe de 08:00–16:00 à 09:30–17:30."
    );
}

#[test]
fn two_aspects_of_a_shift_are_one_message_with_both_events() {
    let told = news(
        &[shift("08:00", "16:00", "ward 3", "nurse")],
        &[shift("08:00", "16:00", "ward 4", "night watch")],
        false,
        Language::English,
    );
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].event_ids.len(), 2);
    assert_eq!(
        told[0].message,
        "Monday 16 November: Nurse 08:00–16:00 – is now at Ward 4 instead of Ward 3, is now called Night Watch."
    );
    assert_eq!(told[0].notification_id, format!("event:{}:{}", Uuid::nil(), told[0].event_ids[0]));
}

#[test]
fn a_new_day_is_a_summary() {
    let day = [shift("08:00", "16:00", "ward 3", "nurse"), shift("22:00", "06:00", "", "")];
    let told = news(&[], &day, true, Language::English);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].notification_id, format!("summary:{}", Uuid::nil()));
    assert_eq!(told[0].event_ids.len(), 2);
    assert_eq!(
        told[0].message,
        "Your schedule for Monday 16 November:\n• 08:00–16:00 Nurse at Ward 3\n• 22:00–06:00 (next day) Shift"
    );
    let free = news(&[], &[], true, Language::English);
    assert_eq!(free[0].message, "You have no shifts on Monday 16 November.");
}

#[test]
fn many_changes_are_one_bounded_summary() {
    let day: Vec<Shift> = (0..20)
        .map(|n| shift(&format!("{n:02}:00"), &format!("{:02}:00", n + 1), "", "x"))
        .collect();
    let told = news(&[], &day, false, Language::English);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].notification_type, NotificationType::Summary);
    assert_eq!(told[0].event_ids.len(), 20);
    assert_eq!(told[0].message.lines().count(), MAX_LINES + 2);
    assert!(told[0].message.ends_with("… and 10 more"), "{}", told[0].message);
    let few = news(&[], &day[..MAX_SINGLE], false, Language::English);
    assert_eq!(few.len(), MAX_SINGLE);
    assert!(news(&day, &day, false, Language::English).is_empty());
}

#[test]
fn every_language_fills_every_place() {
    let old = shift("08:00", "16:00", "a{b}", "x");
    let mut customer = shift("22:00", "00:00", "c", "y");
    customer.customer = "acme".to_owned();
    let kind = Shift { kind: "on call".to_owned(), ..old.clone() };
    for language in Language::ALL {
        let mut texts = vec![
            said(old.clone(), kind.clone(), language),
            said(old.clone(), shift("08:00", "16:00", "", "x"), language),
            said(old.clone(), shift("08:00", "16:00", "a{b}", "z"), language),
            said(old.clone(), shift("09:00", "16:00", "a{b}", "x"), language),
        ];
        for told in [
            news(&[], &[customer.clone()], false, language),
            news(&[customer.clone()], &[], false, language),
            news(&[], &[customer.clone()], true, language),
            news(&[], &[], true, language),
        ] {
            texts.push(told[0].message.clone());
        }
        for text in texts {
            let left = text.replace("A{b}", "");
            assert!(!left.contains(['{', '}']) && !left.contains("  "), "{text}");
        }
    }
}

#[test]
fn a_tag_has_its_language() {
    for (tag, language) in [
        ("de", Language::German),
        ("de-AT", Language::German),
        ("ES_mx", Language::Spanish),
        ("fr", Language::French),
        ("en-GB", Language::English),
        ("tlh", Language::English),
        ("", Language::English),
    ] {
        assert_eq!(Language::of_tag(tag), language, "{tag}");
    }
}
