//! Pages of a list, and a place in one that is ordered by time and id, as one word: microseconds, a dot, the id.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use uuid::Uuid;

/// The place of the last row of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: Timestamp,
    pub(crate) id: Uuid,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_microsecond(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Cursor, &'static str> {
        let read = || {
            let (at, id) = text.split_once('.')?;
            let at = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
            Some(Cursor { at, id: Uuid::try_parse(id).ok().filter(|_| id.len() == 36)? })
        };
        read().ok_or("expected the next of an earlier page")
    }
}

impl serde::Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Some rows of a list, and where the next page starts.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Page<T, P = Cursor> {
    rows: Vec<T>,
    next: Option<P>,
}

impl<T, P> Page<T, P> {
    /// The page of `rows` of which one more than `limit` were asked for; `place` says where a row is.
    pub(crate) fn new(mut rows: Vec<T>, limit: u32, place: impl Fn(&T) -> P) -> Page<T, P> {
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(place);
        Page { rows, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let at = Timestamp::from_microsecond(-5_000_001).unwrap();
        let cursor = Cursor { at, id: Uuid::now_v7() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", ".", "1", "1.2", "x.018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300", "1.../../etc"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        let far = format!("{}.{}", i64::MAX, Uuid::now_v7());
        assert!(far.parse::<Cursor>().is_err());
    }
}
