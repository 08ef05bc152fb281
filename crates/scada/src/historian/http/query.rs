//! The parameters of a query, each known and each once, and the statement they make.
//!
//! The texts of statements are written in this program; what the asker says is a parameter of the statement, always.

use std::collections::BTreeMap;

use api::Refused;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;

/// The longest value; names, times and cursors are shorter.
const MAX_VALUE_BYTES: usize = 512;

/// What was asked, by name.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads a query string in which only `known` parameters may stand.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Parameters, Refused> {
        let mut found = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let message = format!("there is no such parameter: expected {}", known.join(", "));
                let shown: String = name.chars().take(64).collect();
                return Err(Refused::malformed(Some(&shown), message));
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(wrong(&name, "a shorter value"));
            }
            if found.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(wrong(&name, "it once"));
            }
        }
        Ok(Parameters(found))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// One that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<&str, Refused> {
        self.get(name).ok_or_else(|| wrong(name, "it to be there"))
    }

    /// A number in a range, or what holds without.
    pub(super) fn number(
        &self,
        name: &str,
        (min, max): (i64, i64),
        otherwise: i64,
    ) -> Result<i64, Refused> {
        let Some(text) = self.get(name) else { return Ok(otherwise) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| wrong(name, &format!("an integer from {min} to {max}")))
    }

    /// A time.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, Refused> {
        let expected = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
        let read = |text| event::rfc3339(name, text).map_err(|_| wrong(name, expected));
        self.get(name).map(read).transpose()
    }
}

/// A refusal that says what would be right.
pub(super) fn wrong(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} is not understood: expected {expected}"))
}

/// What a parameter compares.
#[derive(Debug, Clone, Copy)]
pub(super) enum Filter {
    /// The column of the same name is this word of capitals, digits and underscores.
    Name(&'static str),
    /// The column of the same name is one of these words.
    Word(&'static str, &'static [&'static str]),
    /// `node_id`.
    Node,
    /// `from` and `to`: the column is a time in this range, the end not included.
    Range(&'static str),
    /// A flag, and what holds when it is true.
    Flag(&'static str, &'static str),
}

type Values = Vec<Box<dyn ToSql + Sync + Send>>;

/// Conditions and their values.
#[derive(Default)]
pub(super) struct Conditions {
    pub(super) text: String,
    pub(super) values: Values,
}

impl Conditions {
    pub(super) fn and(
        &mut self,
        before: &str,
        value: impl ToSql + Sync + Send + 'static,
        after: &str,
    ) {
        self.values.push(Box::new(value));
        self.text += &format!(" AND {before}${}{after}", self.values.len());
    }

    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

impl Filter {
    pub(super) fn names(self) -> Vec<&'static str> {
        match self {
            Filter::Name(name) | Filter::Word(name, _) | Filter::Flag(name, _) => vec![name],
            Filter::Node => vec!["node_id"],
            Filter::Range(_) => vec!["from", "to"],
        }
    }

    pub(super) fn apply(
        self,
        parameters: &Parameters,
        conditions: &mut Conditions,
    ) -> Result<(), Refused> {
        match self {
            Filter::Name(name) => {
                if let Some(text) = parameters.get(name) {
                    let tag: event::scada::Tag = text
                        .parse()
                        .map_err(|_| wrong(name, "1 to 128 of A-Z, 0-9 and underscore"))?;
                    conditions.and(&format!("{name} = "), tag.to_string(), "");
                }
            }
            Filter::Word(name, words) => {
                if let Some(text) = parameters.get(name) {
                    if !words.contains(&text) {
                        return Err(wrong(name, &format!("one of {}", words.join(", "))));
                    }
                    conditions.and(&format!("{name} = "), text.to_owned(), "");
                }
            }
            Filter::Node => {
                if parameters.get("node_id").is_some() {
                    let node = parameters.number("node_id", (1, 1000), 1)?;
                    conditions.and("node_id = ", i32::try_from(node).unwrap_or(1), "");
                }
            }
            Filter::Range(column) => {
                for (name, comparison) in [("from", ">="), ("to", "<")] {
                    if let Some(at) = parameters.time(name)? {
                        conditions.and(&format!("{column} {comparison} "), at, "");
                    }
                }
            }
            Filter::Flag(name, holds) => match parameters.get(name) {
                None => {}
                Some("true") => conditions.text += &format!(" AND {holds}"),
                Some("false") => conditions.text += &format!(" AND NOT ({holds})"),
                Some(_) => return Err(wrong(name, "true or false")),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let read = |query| Parameters::read(Some(query), &["limit", "from"]);
        assert_eq!(read("limit=5&from=a%2Bb").unwrap().get("from"), Some("a+b"));
        assert_eq!(read("limits=5").unwrap_err().field.as_deref(), Some("limits"));
        assert_eq!(read("limit=5&limit=6").unwrap_err().field.as_deref(), Some("limit"));
        let long = format!("from={}", "a".repeat(3_000));
        assert!(Parameters::read(Some(&long), &["from"]).is_err());
        assert!(read("limit=0").unwrap().number("limit", (1, 9), 5).is_err());
    }
}
