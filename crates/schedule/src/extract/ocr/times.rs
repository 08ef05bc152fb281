//! Recognises times in what was read: whether a cell is one, and where a range is parted.
//!
//! It does not make them canonical; it only turns letters that look like digits into digits.

/// A time that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Time {
    /// As it is written, with digits for what looks like them.
    pub(super) text: String,
    /// Hour, minute, and the half of the day (`a`, `p`) where it is told.
    pub(super) clock: (u8, u8, Option<char>),
}

/// The time that a text is. None if it is no time.
pub(super) fn time(text: &str) -> Option<Time> {
    let text = text.trim().trim_matches(['|', '_', '\'', '"', ',', ']', '[', '‘', '’']).trim();
    let (number, ending) = split_ending(text);
    let number = digits(number);
    let (hour, minute) = match number.split_once([':', '.', 'h']) {
        Some((hour, minute)) => (hour.trim(), minute.trim()),
        None if number.len() >= 3 => number.split_at(number.len() - 2),
        // A lone number is a time where a person wrote it so: 8, 8 am, 16 Uhr.
        None => (number.as_str(), "00"),
    };
    let minute = if minute.is_empty() && number.ends_with('h') { "00" } else { minute };
    let is_number = |text: &str, least: usize| {
        (least..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    if !is_number(hour, 1) || !is_number(minute, 2) {
        return None;
    }
    let (h, m): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    let half = ending.to_lowercase().chars().next().filter(|c| matches!(c, 'a' | 'p'));
    let sound = if half.is_some() { (1..=12).contains(&h) } else { h < 24 || (h == 24 && m == 0) };
    if !sound || m > 59 {
        return None;
    }
    let gap = if ending.is_empty() || text.ends_with(&format!("{}{ending}", last(&number))) {
        ""
    } else {
        " "
    };
    Some(Time { text: format!("{number}{gap}{ending}"), clock: (h, m, half) })
}

fn last(text: &str) -> &str {
    text.char_indices().next_back().map_or("", |(at, _)| &text[at..])
}

/// `am`, `p.m.`, `Uhr` at the end.
fn split_ending(text: &str) -> (&str, &str) {
    let lower = text.to_lowercase();
    // Lower case keeps the length of what stands in a time; where it does not, there is no ending.
    let known = ["a.m.", "p.m.", "am", "pm", "uhr", "ч."];
    let found = known.iter().find(|ending| lower.len() == text.len() && lower.ends_with(*ending));
    match found {
        Some(ending) => {
            let (number, ending) = text.split_at(text.len() - ending.len());
            (number.trim_end(), ending)
        }
        None => (text, ""),
    }
}

/// Letters that look like digits become digits, and `;` becomes `:`; blanks around a sign go.
fn digits(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| match c {
            'O' | 'o' | 'Q' | 'D' | 'О' | 'о' => '0',
            'l' | 'I' | 'i' | '|' | '!' => '1',
            'Z' | 'z' => '2',
            'S' | 's' => '5',
            'B' => '8',
            ';' | '：' => ':',
            ',' | '·' => '.',
            'H' => 'h',
            c => c,
        })
        .collect();
    text.split_whitespace().collect()
}

/// The two times of a range such as `08:00-16:00`, `8 – 16`, `08:00 to 16:00`, `08:00 16:00`.
pub(super) fn range(text: &str) -> Option<(Time, Time)> {
    let text = text.trim();
    let dashes = ['-', '–', '—', '−', '~', '‐', '‑'];
    // Of several dashes, as OCR doubles them, any may be the one; two times must be beside it.
    for (at, dash) in text.char_indices().filter(|(_, c)| dashes.contains(c)) {
        let (first, second) = (&text[..at], &text[at + dash.len_utf8()..]);
        let clean = |text: &str| time(text.trim_matches(|c| dashes.contains(&c) || c == ' '));
        if let (Some(first), Some(second)) = (clean(first), clean(second)) {
            return Some((first, second));
        }
    }
    for word in [" to ", " until ", " till ", " bis ", " до ", " по ", " "] {
        for (at, _) in text.match_indices(word) {
            let (first, second) = (time(&text[..at]), time(&text[at + word.len()..]));
            if let (Some(first), Some(second)) = (first, second) {
                return Some((first, second));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, read) in [
            ("08:00", "08:00"),
            ("8.30", "8.30"),
            ("0800", "0800"),
            ("930", "930"),
            ("8", "8"),
            ("8 am", "8 am"),
            ("8:15pm", "8:15pm"),
            ("12:30 P.M.", "12:30 P.M."),
            ("16 Uhr", "16 Uhr"),
            ("16h30", "16h30"),
            ("24:00", "24:00"),
            ("O8:0O", "08:00"),
            ("l6;3O", "16:30"),
            ("| 09:15", "09:15"),
            ("07 : 45", "07:45"),
        ] {
            assert_eq!(time(text).map(|time| time.text).as_deref(), Some(read), "{text}");
        }
        for text in
            ["", "Cleaning", "25:00", "08:60", "24:01", "13 pm", "123456", "8:5", "1.2.3", "-"]
        {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn the_same_time_is_written_in_many_ways() {
        for texts in [["08:15", "8.15", "0815", "815"], ["8", "8:00", "08h", "8 Uhr"]] {
            let clocks: BTreeSet<_> = texts.iter().map(|text| time(text).unwrap().clock).collect();
            assert_eq!(clocks.len(), 1, "{texts:?}");
        }
        for (a, b) in [("0:05", "5"), ("8 am", "8 pm"), ("8", "8 pm"), ("1:10", "11:0 am")] {
            assert_ne!(time(a).map(|t| t.clock), time(b).map(|t| t.clock), "{a} {b}");
        }
    }

    #[test]
    fn ranges_are_parted() {
        let both = |text: &str| range(text).map(|(first, second)| (first.text, second.text));
        for text in [
            "08:00-16:00",
            "08:00 – 16:00",
            "08:00—16:00",
            "O8:00 -- 16:00",
            "08:00 to 16:00",
            "08:00 16:00",
        ] {
            assert_eq!(both(text), Some(("08:00".to_owned(), "16:00".to_owned())), "{text}");
        }
        assert_eq!(both("8 am - 4 pm"), Some(("8 am".to_owned(), "4 pm".to_owned())));
        for text in ["08:00", "08:00-", "08:00-later", "a-b", ""] {
            assert_eq!(range(text), None, "{text}");
        }
    }
}
