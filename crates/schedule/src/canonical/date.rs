//! Dates and time zones as people write them. Pure.

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Names and short names of months in German, French, Spanish and Russian that do not begin as the English one does, with and without their accents. They
/// are folded.
const MORE_MONTHS: [(i8, &[&str]); 12] = [
    (1, &["jänner", "jän", "enero", "ene", "января", "январь", "янв"]),
    (2, &["février", "fevrier", "févr", "fevr", "fév", "fev", "февраля", "февраль", "фев", "февр"]),
    (3, &["märz", "maerz", "mär", "mrz", "марта", "март", "мар"]),
    (4, &["avril", "avr", "abril", "abr", "апреля", "апрель", "апр"]),
    (5, &["mai", "мая", "май"]),
    (6, &["juin", "июня", "июнь", "июн"]),
    (7, &["juillet", "juil", "июля", "июль", "июл"]),
    (8, &["août", "aout", "agosto", "ago", "августа", "август", "авг"]),
    (9, &["setiembre", "set", "сентября", "сентябрь", "сент", "сен"]),
    (10, &["oktober", "okt", "октября", "октябрь", "окт"]),
    (11, &["ноября", "ноябрь", "нояб", "ноя"]),
    (
        12,
        &[
            "dezember",
            "dez",
            "décembre",
            "decembre",
            "déc",
            "diciembre",
            "dic",
            "декабря",
            "декабрь",
            "дек",
        ],
    ),
];
/// Words of a date that say nothing: 16 de noviembre de 2026, le 16 novembre, 16 ноября 2026 г.
const FILLERS: [&str; 11] =
    ["de", "del", "le", "el", "den", "der", "the", "of", "г", "года", "год"];

/// What is wrong with a date or a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DateProblem {
    /// It is not a date.
    #[error("is not a date that can be read")]
    Unreadable,
    /// Day and month could be either way round.
    #[error("could be two different days: write it as year-month-day")]
    Ambiguous,
    /// No zone of that name.
    #[error("is not a known time zone")]
    UnknownZone,
}

/// Reads a folded date.
pub(crate) fn read_date(text: &str) -> Result<Date, DateProblem> {
    let date = |year: i16, month: i8, day: i8| {
        Date::new(year, month, day).map_err(|_| DateProblem::Unreadable)
    };
    if text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()) {
        return date(number(&text[..4])?, number(&text[4..6])?, number(&text[6..])?);
    }
    let parts: Vec<&str> = text
        .split(['-', '/', '.', ' ', ','])
        .filter(|part| !part.is_empty() && !FILLERS.contains(part))
        .collect();
    let [a, b, c] = parts[..] else { return Err(DateProblem::Unreadable) };
    if let Some(month) = month(b) {
        return date(number(year(c)?)?, month, number(ordinal(a))?);
    }
    if let Some(month) = month(a) {
        return date(number(year(c)?)?, month, number(ordinal(b))?);
    }
    if a.len() == 4 {
        return date(number(a)?, number(b)?, number(c)?);
    }
    let (a, b, year): (i8, i8, i16) = (number(a)?, number(b)?, number(year(c)?)?);
    match (a, b) {
        _ if text.contains('.') => date(year, b, a),
        (13.., _) => date(year, b, a),
        (_, 13..) => date(year, a, b),
        _ if a == b => date(year, a, b),
        _ => Err(DateProblem::Ambiguous),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, DateProblem> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().map_err(|_| DateProblem::Unreadable)
    } else {
        Err(DateProblem::Unreadable)
    }
}

/// A year has four digits, or it could be a day.
fn year(text: &str) -> Result<&str, DateProblem> {
    if text.len() == 4 { Ok(text) } else { Err(DateProblem::Unreadable) }
}

fn ordinal(text: &str) -> &str {
    let ending =
        ["st", "nd", "rd", "th", "er", "o"].into_iter().find_map(|end| text.strip_suffix(end));
    ending.unwrap_or(text)
}

fn month(text: &str) -> Option<i8> {
    let more = MORE_MONTHS.iter().find(|(_, names)| names.contains(&text));
    if let Some((month, _)) = more {
        return Some(*month);
    }
    let start = text.get(..3)?;
    let at = MONTHS.iter().position(|month| *month == start)?;
    i8::try_from(at + 1).ok()
}

/// Reads a folded zone; returns its name as the canonical form has it.
pub(crate) fn read_zone(text: &str) -> Result<String, DateProblem> {
    if matches!(text, "" | "utc" | "z" | "gmt" | "etc/utc") {
        return Ok("UTC".to_owned());
    }
    if text.starts_with(['+', '-']) {
        let offset = read_offset(text).ok_or(DateProblem::UnknownZone)?;
        let minutes = offset.seconds() / 60;
        if minutes == 0 {
            return Ok("UTC".to_owned());
        }
        let sign = if minutes < 0 { '-' } else { '+' };
        return Ok(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60));
    }
    // The database knows names in any case and gives its own spelling.
    let name = text.replace(' ', "_");
    let zone = TimeZone::get(&name).map_err(|_| DateProblem::UnknownZone)?;
    zone.iana_name().map(str::to_owned).ok_or(DateProblem::UnknownZone)
}

/// The zone of a canonical name.
pub(crate) fn zone(name: &str) -> Result<TimeZone, DateProblem> {
    if let Some(offset) = read_offset(name) {
        return Ok(TimeZone::fixed(offset));
    }
    TimeZone::get(name).map_err(|_| DateProblem::UnknownZone)
}

/// `+2`, `+02`, `+0200`, `+02:00`.
fn read_offset(text: &str) -> Option<Offset> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => (hours, minutes),
        Some(_) => return None,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let plain = |text: &str| number::<i32>(text).ok().filter(|_| (1..=2).contains(&text.len()));
    let (hours, minutes) = (plain(hours)?, plain(minutes)?);
    if hours > 14 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::text::fold;

    #[test]
    fn one_day_in_many_ways() {
        let day = jiff::civil::date(2026, 11, 16);
        for text in [
            "2026-11-16",
            "2026/11/16",
            "2026.11.16",
            "20261116",
            "16.11.2026",
            "16/11/2026",
            "11/16/2026",
            "16 Nov 2026",
            "November 16, 2026",
            "16th november 2026",
            "２０２６–11–16",
            "16. Nov. 2026",
            "den 16. November 2026",
            "le 16 novembre 2026",
            "16 de noviembre de 2026",
            "16 NOVIEMBRE 2026",
            "16 ноября 2026 г.",
            "16 Ноябрь 2026",
            "16 нояб. 2026 года",
            "the 16th of November, 2026",
        ] {
            assert_eq!(read_date(&fold(text)), Ok(day), "{text}");
        }
        assert_eq!(read_date("05/06/2026"), Err(DateProblem::Ambiguous));
        assert_eq!(read_date("05.06.2026"), Ok(jiff::civil::date(2026, 6, 5)));
        for text in
            ["", "2026-13-01", "2026-02-30", "16-11-26", "tomorrow", "1-2", "1-2-3-4", "é12-1-1"]
        {
            assert!(read_date(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_month_has_its_names_in_five_languages() {
        let names = [
            "January Januar janvier enero января",
            "February Februar février febrero февраля",
            "March März mars marzo марта",
            "April April avril abril апреля",
            "May Mai mai mayo мая",
            "June Juni juin junio июня",
            "July Juli juillet julio июля",
            "August August août agosto августа",
            "September September septembre septiembre сентября",
            "October Oktober octobre octubre октября",
            "November November novembre noviembre ноября",
            "December Dezember décembre diciembre декабря",
        ];
        for (month, names) in (1..).zip(names) {
            let day = jiff::civil::date(2026, month, 1);
            for name in names.split(' ') {
                for text in [format!("1 {name} 2026"), format!("1. {} 2026", name.to_uppercase())] {
                    assert_eq!(read_date(&fold(&text)), Ok(day), "{text}");
                }
            }
        }
        let short = "jän fév mrz avr mai juin juil août sept okt ноя déc";
        for (month, name) in (1..).zip(short.split(' ')) {
            let text = format!("1er {name}. 2026");
            assert_eq!(read_date(&fold(&text)), Ok(jiff::civil::date(2026, month, 1)), "{text}");
        }
        for text in ["16 de 2026", "de de de", "16 maison 2026", "16 мама 2026", "31 juin 2026"]
        {
            assert!(read_date(&fold(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn zones_have_one_name() {
        let of = |text: &str| read_zone(&fold(text)).unwrap();
        assert_eq!(of("europe/BERLIN "), "Europe/Berlin");
        assert_eq!(of("America/New York"), "America/New_York");
        for text in ["", "utc", "Z", "+00:00", "GMT"] {
            assert_eq!(of(text), "UTC");
        }
        for text in ["+2", "+02:00", "+0200", "+02"] {
            assert_eq!(of(text), "+02:00");
        }
        assert_eq!(of("−03:30"), "-03:30");
        for text in ["Mars/Olympus", "+99", "+1:2", "+é"] {
            assert_eq!(read_zone(text), Err(DateProblem::UnknownZone), "{text}");
        }
        for name in ["UTC", "+02:00", "-03:30", "Europe/Berlin"] {
            assert!(zone(name).is_ok());
            assert_eq!(of(name), name);
        }
    }
}
