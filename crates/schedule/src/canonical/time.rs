//! Times as people write them, as minutes of the day. Pure.

/// Minutes of a day.
pub(crate) const DAY: u16 = 24 * 60;

/// Words between the two ends in one field, beside the dash, in English, German, French, Spanish and Russian.
const BETWEEN: [&str; 15] = [
    " to ",
    " bis ",
    " until ",
    " till ",
    " til ",
    " - ",
    " à ",
    " jusqu'à ",
    " hasta ",
    " a las ",
    " a la ",
    " al ",
    " до ",
    " по ",
    " a ",
];
/// Words before a time that say nothing, in the order in which they follow each other.
const FILLERS: [&str; 21] = [
    "from ", "von ", "kl. ", "kl ", "at ", "um ", "ab ", "desde ", "del ", "de ", "dès ", "des ",
    "à ", "a ", "las ", "la ", "с ", "со ", "в ", "до ",
    // The Latin letter, as keyboards and OCR have it.
    "c ",
];
/// Words behind an hour. Those of several letters may stand between hour and minute as well.
const HOURS: [&str; 7] = ["uhr", "heures", "heure", "horas", "часов", "часа", "час"];
const UNITS: [&str; 8] = ["hrs", "hr", "hours", "o'clock", "ч.", "ч", "h", "u"];
/// The middle of the day, by its names.
const NOON: [&str; 9] =
    ["noon", "midday", "mittag", "mittags", "midi", "mediodía", "mediodia", "полдень", "полудня"];
const MIDNIGHT: [&str; 7] =
    ["midnight", "mitternacht", "mitternachts", "minuit", "medianoche", "полночь", "полуночи"];

/// What is wrong with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeProblem {
    /// Nothing is there.
    #[error("is missing")]
    Missing,
    /// It is not a time.
    #[error("is not a time that can be read")]
    Unreadable,
    /// An hour or minute that no clock has.
    #[error("is not on a clock")]
    OffTheClock,
    /// A start at 24:00.
    #[error("is 24:00, which can only be an end")]
    StartsAtTheEnd,
}

/// A time and how it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    minutes: u16,
    /// A bare 1 to 12, with or without minutes, that could be either half of the day.
    bare: bool,
    meridiem: bool,
}

/// Reads the two ends of a shift: minutes of the start in `0..1440`, and of the end in `start + 1..=start + 1440`. The texts are folded.
pub(crate) fn read_ends(start: &str, end: &str) -> Result<(u16, u16), (&'static str, TimeProblem)> {
    let (first, last) = if end.is_empty() {
        let (first, last) = read_both(start)?;
        settle_halves(first, last)
    } else {
        let first = read(start).map_err(|problem| ("start", problem))?;
        (first.minutes, read(end).map_err(|problem| ("end", problem))?.minutes)
    };
    if first == DAY {
        return Err(("start", TimeProblem::StartsAtTheEnd));
    }
    // An end that is not after the start is on the next day.
    Ok((first, if last <= first { last + DAY } else { last }))
}

/// Reads a field that has both ends. It is parted where both parts are times: a word such as `a` may stand for other things. Where no parting
/// gives two, the first says what is wrong.
fn read_both(text: &str) -> Result<(Clock, Clock), (&'static str, TimeProblem)> {
    let both = |(first, last): (&str, &str)| {
        let first = read(first).map_err(|problem| ("start", problem))?;
        Ok((first, read(last).map_err(|problem| ("end", problem))?))
    };
    let words = BETWEEN.iter().filter_map(|between| text.split_once(between));
    let partings = words
        .chain(text.split_once('-'))
        .filter(|(first, last)| !first.trim().is_empty() && !last.trim().is_empty());
    let mut wrong = None;
    for parting in partings {
        match both(parting) {
            Ok(ends) => return Ok(ends),
            Err(problem) => wrong = wrong.or(Some(problem)),
        }
    }
    Err(wrong.unwrap_or(("end", TimeProblem::Missing)))
}

/// Where one end says am or pm and the other could be either, the shift is the shorter one.
fn settle_halves(first: Clock, last: Clock) -> (u16, u16) {
    let span = |(from, to): (u16, u16)| match to % DAY + DAY - from % DAY {
        span if span > DAY => span - DAY,
        span => span,
    };
    let other = |clock: Clock| {
        // 12 is noon or midnight; the others are the same hour of the other half.
        (clock.minutes + DAY / 2) % DAY
    };
    let written = (first.minutes, last.minutes);
    let turned = match (first, last) {
        (Clock { bare: true, .. }, Clock { meridiem: true, .. }) => (other(first), last.minutes),
        (Clock { meridiem: true, .. }, Clock { bare: true, .. }) => (first.minutes, other(last)),
        _ => return written,
    };
    if span(turned) < span(written) { turned } else { written }
}

fn read(text: &str) -> Result<Clock, TimeProblem> {
    let mut text = text.trim();
    for filler in FILLERS {
        text = text.strip_prefix(filler).unwrap_or(text).trim();
    }
    let named = |minutes| Ok(Clock { minutes, bare: false, meridiem: false });
    match text {
        "" => return Err(TimeProblem::Missing),
        text if NOON.contains(&text) => return named(DAY / 2),
        text if MIDNIGHT.contains(&text) => return named(0),
        _ => {}
    }
    let (text, afternoon) = meridiem(text);
    let (hour, minute) = digits(text).ok_or(TimeProblem::Unreadable)?;
    if minute > 59 {
        return Err(TimeProblem::OffTheClock);
    }
    let hour = match (hour, afternoon) {
        (24, None) if minute == 0 => 24,
        (0..=23, None) => hour,
        (1..=12, Some(afternoon)) => hour % 12 + if afternoon { 12 } else { 0 },
        _ => return Err(TimeProblem::OffTheClock),
    };
    Ok(Clock {
        minutes: hour * 60 + minute,
        bare: afternoon.is_none() && (1..=12).contains(&hour),
        meridiem: afternoon.is_some(),
    })
}

/// Takes am or pm off the end; true for pm.
fn meridiem(text: &str) -> (&str, Option<bool>) {
    for (endings, afternoon) in
        [(["a.m.", "a.m", "a. m.", "am", "a"], false), (["p.m.", "p.m", "p. m.", "pm", "p"], true)]
    {
        for ending in endings {
            if let Some(rest) = text.strip_suffix(ending) {
                return (rest.trim_end(), Some(afternoon));
            }
        }
    }
    (text, None)
}

/// Hour and minute. Seconds are read over if they are zero.
fn digits(text: &str) -> Option<(u16, u16)> {
    let mut text = text.trim().to_owned();
    for word in HOURS {
        // 16 Uhr 30.
        if let Some((hour, minute)) = text.split_once(word) {
            let (hour, minute) = (hour.trim(), minute.trim());
            text = if minute.is_empty() { hour.to_owned() } else { format!("{hour}:{minute}") };
            break;
        }
    }
    let mut text = text.as_str();
    for unit in UNITS {
        if let Some(rest) = text.strip_suffix(unit) {
            text = rest.trim_end();
            break;
        }
    }
    let number = |text: &str| {
        let text = text.trim();
        let plain = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        if plain { text.parse::<u16>().ok() } else { None }
    };
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.len() {
            1 | 2 => Some((number(text)?, 0)),
            3 => Some((number(&text[..1])?, number(&text[1..])?)),
            4 => Some((number(&text[..2])?, number(&text[2..])?)),
            _ => None,
        };
    }
    let mut parts = text.split([':', '.', ',', 'h', 'u', 'ч']);
    let (hour, minute) = (number(parts.next()?)?, parts.next()?);
    // A minute has two digits: 8.5 may be half past or five past.
    if minute.trim().len() != 2 {
        return None;
    }
    let zero_seconds = parts.next().is_none_or(|seconds| seconds.trim() == "00");
    (zero_seconds && parts.next().is_none()).then_some((hour, number(minute)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::text::fold;

    fn ends(start: &str, end: &str) -> Result<(u16, u16), (&'static str, TimeProblem)> {
        read_ends(&fold(start), &fold(end))
    }

    #[test]
    fn eight_and_half_past_eight_in_the_evening() {
        let eight = [
            "8",
            "08",
            "8:00",
            "08.00",
            "8h",
            "8h00",
            "8 am",
            "8AM",
            "8 a.m.",
            "0800",
            "800",
            "08:00:00",
            "8 Uhr",
            "８：００",
            "8u00",
            "8u",
            "8 hrs",
            "8,00",
            "from 8",
            "8 h 00",
            "8 o’clock",
        ];
        for text in eight {
            assert_eq!(ends(text, "23"), Ok((480, 1380)), "{text}");
        }
        for text in [
            "20:30",
            "8:30 PM",
            "830pm",
            "20h30",
            "2030",
            "8.30 p.m.",
            "20.30 Uhr",
            "20 Uhr 30",
            "20u30",
            "8:30p",
        ] {
            assert_eq!(ends("1", text), Ok((60, 1230)), "{text}");
        }
    }

    #[test]
    fn the_day_turns_at_midnight() {
        for end in ["24:00", "0:00", "midnight", "12am", "00.00", "2400"] {
            assert_eq!(ends("22", end), Ok((1320, 1440)), "{end}");
        }
        for end in ["Mitternacht", "minuit", "Medianoche", "полночь", "à minuit"] {
            assert_eq!(ends("22", end), Ok((1320, 1440)), "{end}");
        }
        for start in
            ["noon", "Mittag", "midi", "Mediodía", "MEDIODÍA", "mediodi\u{301}a", "полдень"]
        {
            assert_eq!(ends(start, "6pm"), Ok((720, 1080)), "{start}");
        }
        assert_eq!(ends("22", "6"), Ok((1320, 1800)));
        assert_eq!(ends("8", "8"), Ok((480, 1920)));
        assert_eq!(ends("24:00", "6"), Err(("start", TimeProblem::StartsAtTheEnd)));
        assert_eq!(ends("midnight", "24"), Ok((0, 1440)));
    }

    #[test]
    fn both_ends_in_one_field() {
        let day = [
            "8-16",
            "8 – 16",
            "08:00—16:00",
            "8 to 16",
            "8am-4pm",
            "8-4pm",
            "8am-4",
            "von 8 bis 16 Uhr",
            "8 Uhr bis 16 Uhr",
            "de 8 à 16",
            "de 8h à 16h",
            "De 8 heures à 16 heures",
            "8 h 00 à 16 h 00",
            "8H JUSQU’À 16H",
            "de 8 a 16",
            "de las 8 a las 16",
            "desde las 8:00 hasta las 16:00",
            "8 a. m. a 4 p. m.",
            "de 8 a 16 horas",
            "с 8 до 16",
            "С 8:00 до 16:00",
            "c 8 до 16",
            "с 8 ч. до 16 ч.",
            "с 8 часов по 16 часов",
            "8ч00-16ч00",
            "8 a -16",
            "8 a - 4 p",
        ];
        for text in day {
            assert_eq!(ends(text, ""), Ok((480, 960)), "{text}");
        }
        for (text, minutes) in [
            ("8 bis Mittag", (480, 720)),
            ("de 8 à midi", (480, 720)),
            ("de 8 a mediodía", (480, 720)),
            ("de 8 al mediodia", (480, 720)),
            ("с 8 до полудня", (480, 720)),
            ("mittags - mitternachts", (720, 1440)),
            ("de midi à minuit", (720, 1440)),
            ("del mediodía a la medianoche", (720, 1440)),
            ("de la 1 a las 3", (60, 180)),
            ("с 22 до 6", (1320, 1800)),
            ("de 22h30 à 6h15", (1350, 1815)),
            ("с 8 часов 30 до 16", (510, 960)),
        ] {
            assert_eq!(ends(text, ""), Ok(minutes), "{text}");
        }
        assert_eq!(ends("1-4pm", ""), Ok((780, 960)));
        assert_eq!(ends("11-1pm", ""), Ok((660, 780)));
        assert_eq!(ends("11pm-7", ""), Ok((1380, 1860)));
        assert_eq!(ends("10-6am", ""), Ok((1320, 1800)));
        assert_eq!(ends("12-4pm", ""), Ok((720, 960)));
        assert_eq!(ends("22-6", ""), Ok((1320, 1800)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in
            ["", "-", "x", "8:3", "8.5", "25", "8:60", "13pm", "0am", "8:00:30", "1:2:3:4", "99999"]
        {
            assert!(ends(text, "16").is_err(), "{text}");
            assert!(ends("8", text).is_err() || text.is_empty(), "{text}");
        }
        for text in [
            "de à 16",
            "8 à",
            "с до",
            "8 a",
            "heures",
            "8 heures 3",
            "8 часов 60",
            "midi 30",
            "a 8 a 16 a 20",
        ] {
            assert!(ends(text, "").is_err(), "{text}");
        }
        assert_eq!(ends("8 à soon", ""), Err(("end", TimeProblem::Unreadable)));
        assert_eq!(ends("8", ""), Err(("end", TimeProblem::Missing)));
        assert_eq!(ends("24:01", "6"), Err(("start", TimeProblem::OffTheClock)));
    }
}
