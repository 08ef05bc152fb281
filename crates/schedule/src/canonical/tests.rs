use proptest::prelude::*;

use super::*;
use crate::noise;
use crate::observation::RawEntry;

fn entry(start: &str, end: &str, title: &str) -> RawEntry {
    RawEntry {
        start: start.to_owned(),
        end: end.to_owned(),
        title: title.to_owned(),
        ..RawEntry::default()
    }
}

fn seen(entries: Vec<RawEntry>) -> Observation {
    Observation {
        schedule_date: "2026-11-16".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        entries,
        confidence: None,
    }
}

/// A canonical day as an observation again.
fn written(day: &Day) -> Observation {
    let entries = day.shifts.iter().map(|shift| RawEntry {
        start: shift.start.clone(),
        end: shift.end.clone(),
        title: shift.title.clone(),
        location: shift.location.clone(),
        customer: shift.customer.clone(),
        kind: shift.kind.clone(),
    });
    Observation {
        schedule_date: day.schedule_date.to_string(),
        timezone: day.timezone.clone(),
        entries: entries.collect(),
        confidence: None,
    }
}

#[test]
fn the_form_of_the_specification() {
    let raw = RawEntry {
        location: "Ward 3".to_owned(),
        customer: "St. Anna".to_owned(),
        ..entry("8:00", "16.30", " NURSE ")
    };
    let day = canonicalize(&seen(vec![raw])).unwrap();
    assert_eq!(
        day.to_json(),
        r#"{"schedule_date":"2026-11-16","shifts":[{"customer":"st. anna","end":"16:30","ends_next_day":false,"kind":"regular","location":"ward 3","start":"08:00","title":"nurse"}],"timezone":"Europe/Berlin"}"#
    );
    assert_eq!(day.hash(), "a6492055afc3c563371f8cf5e7d82e320993fe6110d94bfcdf1fca94ff22d8ad");
}

#[test]
fn order_and_repetition_say_nothing() {
    let (a, b) = (entry("8", "16", "a"), entry("22", "6", "b"));
    let day = canonicalize(&seen(vec![a.clone(), b.clone()])).unwrap();
    assert_eq!(canonicalize(&seen(vec![b.clone(), a, b])).unwrap(), day);
    assert!(day.shifts[1].ends_next_day);
}

#[test]
fn errors_say_where_and_not_what() {
    let error = canonicalize(&seen(vec![entry("8", "16", ""), entry("secret", "16", "")]));
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "entry 2: the start is not a time that can be read");
    let long = entry("8", "16", &"x".repeat(MAX_FIELD_CHARS + 1));
    assert!(matches!(
        canonicalize(&seen(vec![long])),
        Err(CanonicalError::TooLong { entry: 1, field: "title" })
    ));
    let many = vec![entry("8", "16", ""); MAX_ENTRIES + 1];
    assert_eq!(canonicalize(&seen(many)), Err(CanonicalError::TooMany));
}

#[test]
fn a_night_with_a_clock_change_has_another_length() {
    let mut autumn = seen(vec![entry("22", "6", "")]);
    autumn.schedule_date = "2026-10-24".to_owned();
    let day = canonicalize(&autumn).unwrap();
    let (start, end) = day.instants(&day.shifts[0]).unwrap();
    assert_eq!(end.duration_since(start).as_hours(), 9);
    let mut spring = seen(vec![entry("2:30", "6", "")]);
    spring.schedule_date = "2026-03-29".to_owned();
    let day = canonicalize(&spring).unwrap();
    let (start, _) = day.instants(&day.shifts[0]).unwrap();
    assert_eq!(start.to_string(), "2026-03-29T01:30:00Z");
}

prop_compose! {
    fn any_entry()(
        from in 0u16..1440, to in 0u16..1440,
        title in "[A-Za-zäöüßéΑ-Ωα-ω0-9 '.–-]{0,12}", location in "[A-Za-z0-9äß ]{0,8}",
        customer in "[A-Z][a-z]{0,6}", kind in "(regular|on call||Overtime)",
    ) -> RawEntry {
        let time = |m: u16| format!("{:02}:{:02}", m / 60, m % 60);
        RawEntry { start: time(from), end: time(to), title, location, customer, kind }
    }
}

prop_compose! {
    fn any_observation()(
        entries in proptest::collection::vec(any_entry(), 0..6),
        day in 1u8..=28,
        timezone in "(|UTC|Europe/Berlin|America/New_York|[+]02:00)",
    ) -> Observation {
        let schedule_date = format!("2026-11-{day:02}");
        Observation { schedule_date, timezone, entries, confidence: None }
    }
}

/// One shift of a day of November, in the words of a language: date, start and end apart, both in one field.
fn told(language: usize, day: u8, from: (u16, u16), to: (u16, u16)) -> (String, [String; 3]) {
    let (f, t) = (from, to);
    let clock = |(hour, minute): (u16, u16)| match language {
        0 => format!("{hour}:{minute:02}"),
        1 => format!("{hour}.{minute:02} Uhr"),
        2 => format!("{hour} h {minute:02}"),
        3 => format!("las {hour}:{minute:02}"),
        _ => format!("{hour} ч {minute:02}"),
    };
    let (f, t) = (clock(f), clock(t));
    match language {
        0 => (format!("November {day}, 2026"), [format!("from {f} to {t}"), f, t]),
        1 => (format!("{day}. November 2026"), [format!("von {f} bis {t}"), f, t]),
        2 => (format!("le {day} novembre 2026"), [format!("de {f} à {t}"), f, t]),
        3 => (format!("{day} de noviembre de 2026"), [format!("de {f} a {t}"), f, t]),
        _ => (format!("{day} ноября 2026 г."), [format!("с {f} до {t}"), f, t]),
    }
}

proptest! {
    #[test]
    fn a_day_has_one_hash_in_every_language(
        language in 0usize..5, day in 1u8..=28, from in (0u16..24, 0u16..60), to in (0u16..24, 0u16..60), seed: u64,
    ) {
        let clock = |(hour, minute): (u16, u16)| format!("{hour:02}:{minute:02}");
        let mut plain = seen(vec![entry(&clock(from), &clock(to), "Nurse")]);
        plain.schedule_date = format!("2026-11-{day:02}");
        let plain = canonicalize(&plain).unwrap();
        let (date, [both, start, end]) = told(language, day, from, to);
        for raw in [entry(&both, "", "NURSE"), entry(&start, &end, "nurse")] {
            let mut foreign = seen(vec![raw]);
            foreign.schedule_date = date.clone();
            let read = canonicalize(&foreign);
            prop_assert_eq!(read.as_ref(), Ok(&plain), "{:?}", foreign);
            let noisy = canonicalize(&noise::disturb(&foreign, seed));
            prop_assert_eq!(noisy.as_ref(), Ok(&plain));
            let again = canonicalize(&written(&plain)).unwrap();
            prop_assert_eq!(again.hash(), plain.hash());
        }
    }

    #[test]
    fn noise_never_changes_the_hash(seen in any_observation(), seed: u64) {
        let plain = canonicalize(&seen).unwrap();
        let noisy = noise::disturb(&seen, seed);
        let heard = canonicalize(&noisy);
        prop_assert_eq!(heard.as_ref(), Ok(&plain), "{:?}", noisy);
        prop_assert_eq!(heard.unwrap().hash(), plain.hash());
    }

    #[test]
    fn canonicalizing_is_idempotent(seen in any_observation()) {
        let once = canonicalize(&seen).unwrap();
        prop_assert_eq!(&canonicalize(&written(&once)).unwrap(), &once);
        let read: Day = serde_json::from_str(&once.to_json()).unwrap();
        prop_assert_eq!(read, once);
    }

    #[test]
    fn another_meaning_is_another_hash(seen in any_observation(), title in "[b-y]{3,9}") {
        let plain = canonicalize(&seen).unwrap();
        let mut other = seen;
        other.entries.push(entry("03:07", "03:08", &format!("zz{title}")));
        prop_assert_ne!(canonicalize(&other).unwrap().hash(), plain.hash());
    }
}
