//! Query parameters: each known, each understood, and there once unless it is a list.

use std::fmt::Display;
use std::str::FromStr;

use api::Refused;
use jiff::Timestamp;

/// The longest value; ids, times and cursors are shorter.
const MAX_VALUE_BYTES: usize = 1_000;
/// The most parameters.
const MAX_PARAMETERS: usize = 40;

/// What was asked.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

/// A parameter that cannot be read, and what would be right.
pub(crate) fn wrong(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} cannot be read: expected {expected}"))
}

impl Query {
    /// Reads a query that may have these parameters; `lists` may be there several times. An empty value counts as absent.
    pub(crate) fn read(
        text: Option<&str>,
        known: &[&str],
        lists: &[&str],
    ) -> Result<Query, Refused> {
        let mut found: Vec<(String, String)> = Vec::new();
        let all = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        for (name, value) in all.take(MAX_PARAMETERS + 1) {
            let listed = lists.contains(&&*name);
            if !listed && !known.contains(&&*name) {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                let message = format!(
                    "there is no such parameter: expected {}",
                    [known, lists].concat().join(", ")
                );
                return Err(Refused::malformed(Some(&shown), message));
            }
            if value.len() > MAX_VALUE_BYTES || found.len() >= MAX_PARAMETERS {
                return Err(Refused::malformed(Some(&name), "too much was asked at once"));
            }
            if !listed && found.iter().any(|(there, _)| *there == name) {
                return Err(Refused::malformed(Some(&name), format!("{name} is there twice")));
            }
            if !value.is_empty() {
                found.push((name.into_owned(), value.into_owned()));
            }
        }
        Ok(Query(found))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(there, _)| there == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn parse<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Refused> {
        let read =
            |text: &str| text.parse().map_err(|error: T::Err| wrong(name, &error.to_string()));
        self.get(name).map(read).transpose()
    }

    pub(crate) fn number(
        &self,
        name: &str,
        range: (usize, usize),
        default: usize,
    ) -> Result<usize, Refused> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (range.0..=range.1).contains(number));
        number.ok_or_else(|| wrong(name, &format!("an integer from {} to {}", range.0, range.1)))
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, Refused> {
        let expected = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
        let read = |text: &str| text.parse().map_err(|_| wrong(name, expected));
        self.get(name).map(read).transpose()
    }

    /// `from` and `to`, both there, in their order.
    pub(crate) fn range(&self) -> Result<(Timestamp, Timestamp), Refused> {
        let missing = |name: &'static str| move || wrong(name, "it to be there");
        let from = self.time("from")?.ok_or_else(missing("from"))?;
        let to = self.time("to")?.ok_or_else(missing("to"))?;
        match from < to {
            true => Ok((from, to)),
            false => Err(wrong("to", "a time after from")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_or_there_twice_is_refused_by_name() {
        let read = |text| Query::read(Some(text), &["from", "to", "limit"], &["series"]);
        let query = read("series=a&series=b&limit=5&from=").unwrap();
        assert_eq!(query.all("series").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query.number("limit", (1, 9), 3).unwrap(), 5);
        assert_eq!(query.get("from"), None, "an empty value is none");
        assert!(query.range().is_err());
        assert!(read("limit=1&limit=2").is_err());
        assert_eq!(read("nothing=1").unwrap_err().field.as_deref(), Some("nothing"));
        assert!(read("limit=0").unwrap().number("limit", (1, 9), 3).is_err());
        let range = read("from=2026-02-01T10:00:00Z&to=2026-02-01T10:00:00Z").unwrap();
        assert_eq!(range.range().unwrap_err().field.as_deref(), Some("to"));
    }
}
