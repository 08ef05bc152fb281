//! The words that head columns. docs/spec/schedule-extraction.md lists them.

use crate::extract::Column;

/// Words and phrases, in lower case.
const KNOWN: [(Column, &[&str]); 7] = [
    (
        Column::Start,
        &[
            "start",
            "starts",
            "from",
            "begin",
            "begins",
            "start time",
            "time from",
            "beginn",
            "von",
            "anfang",
            "начало",
            "с",
        ],
    ),
    (
        Column::End,
        &[
            "end",
            "ends",
            "to",
            "until",
            "till",
            "finish",
            "end time",
            "time to",
            "ende",
            "bis",
            "конец",
            "окончание",
            "до",
            "по",
        ],
    ),
    (
        Column::Range,
        &[
            "time",
            "times",
            "hours",
            "shift",
            "shift time",
            "working time",
            "working hours",
            "zeit",
            "uhrzeit",
            "arbeitszeit",
            "время",
            "часы",
            "смена",
        ],
    ),
    (
        Column::Title,
        &[
            "task",
            "title",
            "job",
            "work",
            "activity",
            "duty",
            "job title",
            "aufgabe",
            "tätigkeit",
            "задача",
            "работа",
        ],
    ),
    (
        Column::Location,
        &[
            "place",
            "location",
            "site",
            "address",
            "where",
            "work place",
            "ort",
            "standort",
            "адрес",
            "место",
            "объект",
        ],
    ),
    (
        Column::Customer,
        &[
            "customer",
            "client",
            "customer name",
            "client name",
            "kunde",
            "auftraggeber",
            "клиент",
            "заказчик",
        ],
    ),
    (
        Column::Kind,
        &[
            "type",
            "kind",
            "category",
            "shift type",
            "job type",
            "task type",
            "type of work",
            "art",
            "typ",
            "тип",
            "вид",
        ],
    ),
];
/// Words of so many letters may have one wrong.
const FUZZY_CHARS: usize = 5;

/// What a column under this heading holds.
pub(super) fn column(heading: &str) -> Option<Column> {
    let heading: String =
        heading.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let heading = heading.split_whitespace().collect::<Vec<_>>().join(" ");
    let exact = |known: &&str| **known == heading;
    let near =
        |known: &&str| known.chars().count() >= FUZZY_CHARS && distance(known, &heading) <= 1;
    let find = |fits: &dyn Fn(&&str) -> bool| {
        KNOWN.iter().find(|(_, words)| words.iter().any(fits)).map(|(column, _)| *column)
    };
    find(&exact).or_else(|| find(&near))
}

/// How many letters must be added, taken away or changed to make one text the other.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut line: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = line[0];
        line[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = line[j + 1];
            line[j + 1] = change.min(line[j] + 1).min(corner + 1);
        }
    }
    line[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_in_several_wordings() {
        for (heading, column_is) in [
            ("Start", Some(Column::Start)),
            ("FROM:", Some(Column::Start)),
            ("Start time", Some(Column::Start)),
            ("until", Some(Column::End)),
            ("Hours", Some(Column::Range)),
            ("Locat1on", Some(Column::Location)),
            ("Custorner", None),
            ("Cuslomer", Some(Column::Customer)),
            ("Job type", Some(Column::Kind)),
            ("Tätigkeit", Some(Column::Title)),
            ("Начало", Some(Column::Start)),
            ("Ten", None),
            ("Notes", None),
            ("", None),
        ] {
            assert_eq!(column(heading), column_is, "{heading}");
        }
    }

    #[test]
    fn no_word_is_near_to_that_of_another_column() {
        for (column_is, words) in KNOWN {
            for word in words {
                assert_eq!(column(word), Some(column_is), "{word}");
                for (other, others) in KNOWN.iter().filter(|(other, _)| *other != column_is) {
                    let close = others
                        .iter()
                        .find(|o| o.chars().count() >= FUZZY_CHARS && distance(o, word) <= 1);
                    assert_eq!(close, None, "{word} is near to a word for {other}");
                }
            }
        }
    }

    #[test]
    fn distance_is_that_of_levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("до", "по", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
