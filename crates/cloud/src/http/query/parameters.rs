//! The parameters of a query: each known, each once.

use std::collections::BTreeMap;

use crate::http::refused::Refused;

/// The longest value; ids, times and cursors are shorter.
const MAX_VALUE_BYTES: usize = 2_048;

/// What was asked, by name.
#[derive(Debug)]
pub(in crate::http) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads a query string in which only `known` parameters may stand.
    pub(in crate::http) fn read(
        query: Option<&str>,
        known: Vec<&'static str>,
    ) -> Result<Parameters, Refused> {
        let mut found = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let Some(name) = known.iter().find(|one| **one == name) else {
                let message = format!("there is no such parameter: expected {}", known.join(", "));
                let shown: String = name.chars().take(64).collect();
                return Err(Refused::malformed(Some(&shown), message));
            };
            if value.len() > MAX_VALUE_BYTES {
                let message = format!("{name} is longer than {MAX_VALUE_BYTES} bytes");
                return Err(Refused::malformed(Some(name), message));
            }
            if found.insert((*name).to_owned(), value.into_owned()).is_some() {
                let message = format!("{name} is there twice: expected it once");
                return Err(Refused::malformed(Some(name), message));
            }
        }
        Ok(Parameters(found))
    }

    pub(in crate::http) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let read = |query| Parameters::read(Some(query), vec!["limit", "from"]);
        assert_eq!(read("limit=5&from=a%2Bb").unwrap().get("from"), Some("a+b"));
        assert_eq!(read("limits=5").unwrap_err().field.as_deref(), Some("limits"));
        assert_eq!(read("limit=5&limit=6").unwrap_err().field.as_deref(), Some("limit"));
        assert!(read(&format!("from={}", "a".repeat(3_000))).is_err());
        assert!(Parameters::read(None, vec![]).unwrap().get("limit").is_none());
    }
}
