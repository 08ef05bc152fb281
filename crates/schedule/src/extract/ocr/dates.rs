//! The day that a heading names.

use jiff::civil::{Date, Weekday};

use super::MIN_TIME;
use super::headers::distance;
use super::lines::Line;
use crate::extract::Fault;

/// The months in the languages we know.
const MONTHS: [(i8, &[&str]); 12] = [
    (1, &["january", "jan", "januar", "января", "январь"]),
    (2, &["february", "feb", "februar", "февраля", "февраль"]),
    (3, &["march", "mar", "märz", "марта", "март"]),
    (4, &["april", "apr", "апреля", "апрель"]),
    (5, &["may", "mai", "мая", "май"]),
    (6, &["june", "jun", "juni", "июня", "июнь"]),
    (7, &["july", "jul", "juli", "июля", "июль"]),
    (8, &["august", "aug", "августа", "август"]),
    (9, &["september", "sep", "sept", "сентября", "сентябрь"]),
    (10, &["october", "oct", "oktober", "okt", "октября", "октябрь"]),
    (11, &["november", "nov", "ноября", "ноябрь"]),
    (12, &["december", "dec", "dezember", "dez", "декабря", "декабрь"]),
];
const WEEKDAYS: [(Weekday, &[&str]); 7] = [
    (Weekday::Monday, &["monday", "mon", "montag", "понедельник"]),
    (Weekday::Tuesday, &["tuesday", "tue", "dienstag", "вторник"]),
    (Weekday::Wednesday, &["wednesday", "wed", "mittwoch", "среда"]),
    (Weekday::Thursday, &["thursday", "thu", "donnerstag", "четверг"]),
    (Weekday::Friday, &["friday", "fri", "freitag", "пятница"]),
    (Weekday::Saturday, &["saturday", "sat", "samstag", "суббота"]),
    (Weekday::Sunday, &["sunday", "sun", "sonntag", "воскресенье"]),
];
/// Names of so many letters may have one wrong.
const FUZZY_CHARS: usize = 6;
/// Years that a schedule may be of: anything else is a misread number.
const YEARS: std::ops::RangeInclusive<i16> = 2000..=2099;

/// The day that the lines above a table name, if they do so surely.
pub(super) fn in_heading(heading: &[Line]) -> Result<Option<Date>, Fault> {
    for line in heading {
        let Some(date) = in_line(&line.text())? else { continue };
        let digits = line.words.iter().filter(|w| w.text.contains(|c: char| c.is_ascii_digit()));
        let worst = digits.map(|word| word.confidence).fold(1.0, f64::min);
        return if worst < MIN_TIME { Err(Fault::UnsureDate) } else { Ok(Some(date)) };
    }
    Ok(None)
}

/// The day that a line names.
fn in_line(line: &str) -> Result<Option<Date>, Fault> {
    let lower = line.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '|'))
        .filter(|word| !word.is_empty())
        .collect();
    let weekday = words.iter().find_map(|word| named(word, &WEEKDAYS));
    let mut candidates: Vec<Date> = Vec::new();
    for at in 0..words.len() {
        candidates.extend(numbers(words[at]));
        candidates.extend(with_month(&words[at..]));
    }
    candidates.dedup();
    let Some(first) = candidates.first().copied() else { return Ok(None) };
    let fitting: Vec<Date> = match weekday {
        None => candidates,
        Some(weekday) => candidates.into_iter().filter(|date| date.weekday() == weekday).collect(),
    };
    match fitting[..] {
        [] => Err(Fault::WrongWeekday),
        [date] => Ok(Some(date)),
        // Two dates in one heading, or one that can be read in two ways.
        _ if fitting.iter().all(|date| *date == first) => Ok(Some(first)),
        _ => Err(Fault::AmbiguousDate),
    }
}

/// `2026-11-16`, `16.11.2026`, `16/11/2026`: all days it may be.
fn numbers(word: &str) -> Vec<Date> {
    let word = word.trim_end_matches(['.', ':', ';']);
    let Some(sign) = word.chars().find(|c| matches!(c, '-' | '.' | '/')) else { return Vec::new() };
    let parts: Vec<&str> = word.split(sign).collect();
    let [a, b, c] = parts[..] else { return Vec::new() };
    if a.len() == 4 {
        return date(a, b, c).into_iter().collect();
    }
    if c.len() != 4 {
        return Vec::new();
    }
    let day_first = date(c, b, a);
    // With dots and dashes the day always comes first; with slashes it depends on the country.
    let month_first = if sign == '/' { date(c, a, b) } else { None };
    let mut days: Vec<Date> = day_first.into_iter().chain(month_first).collect();
    days.dedup();
    days
}

/// `16 november 2026`, `16. november 2026`, `november 16 2026`.
fn with_month(words: &[&str]) -> Option<Date> {
    let [a, b, c, ..] = words else { return None };
    let year = c.trim_end_matches(['.', ':', 'г']);
    let day = |word: &str| {
        let word = word.trim_end_matches('.');
        ["st", "nd", "rd", "th"]
            .iter()
            .find_map(|ending| word.strip_suffix(ending))
            .unwrap_or(word)
            .to_owned()
    };
    let (month, day) = match (named(a, &MONTHS), named(b, &MONTHS)) {
        (_, Some(month)) => (month, day(a)),
        (Some(month), None) => (month, day(b)),
        (None, None) => return None,
    };
    date(year, &month.to_string(), &day)
}

fn date(year: &str, month: &str, day: &str) -> Option<Date> {
    let year = (year.len() == 4).then(|| year.parse().ok()).flatten();
    let year = year.filter(|year| YEARS.contains(year))?;
    Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()
}

fn named<T: Copy, const N: usize>(word: &str, names: &[(T, &[&str]); N]) -> Option<T> {
    let word = word.trim_end_matches(['.', ':']);
    let exact = names.iter().find(|(_, names)| names.contains(&word));
    let near = |known: &&str| known.chars().count() >= FUZZY_CHARS && distance(known, word) <= 1;
    exact.or_else(|| names.iter().find(|(_, names)| names.iter().any(near))).map(|(of, _)| *of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn a_day_in_all_its_ways() {
        for line in [
            "Monday 16 November 2026",
            "Schedule for Monday, 16th November 2026",
            "November 16, 2026",
            "Mon 16 Nov 2026",
            "Monday 16 Novenber 2026",
            "Montag, 16. November 2026",
            "понедельник, 16 ноября 2026 г.",
            "Rota 2026-11-16",
            "16.11.2026",
            "Date: 16/11/2026",
            "11/16/2026",
        ] {
            assert_eq!(in_line(line), Ok(Some(date(2026, 11, 16))), "{line}");
        }
        for line in
            ["", "Week 47", "16 November", "31.02.2026", "16.11.1026", "12-34", "8:00-16:00"]
        {
            assert_eq!(in_line(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn a_doubtful_day_is_refused() {
        assert_eq!(in_line("03/04/2026"), Err(Fault::AmbiguousDate));
        assert_eq!(in_line("Friday 03/04/2026"), Ok(Some(date(2026, 4, 3))));
        assert_eq!(in_line("Wednesday 03/04/2026"), Ok(Some(date(2026, 3, 4))));
        assert_eq!(in_line("Tuesday 16 November 2026"), Err(Fault::WrongWeekday));
        assert_eq!(in_line("2026-11-16 to 2026-11-22"), Err(Fault::AmbiguousDate));
        assert_eq!(in_line("05/05/2026"), Ok(Some(date(2026, 5, 5))));
    }
}
