//! The fields of one line, as raw text.

use event::Invalid;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// More names than this are no request.
const MAX_FIELDS: usize = 32;

/// Name and raw value of every field that is not null.
#[derive(Debug)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads one JSON object.
    pub(super) fn parse(line: &'a [u8]) -> Result<Fields<'a>, Invalid> {
        let refuse = |problem: &str| Err(Invalid::new("line", problem));
        let Ok(text) = std::str::from_utf8(line) else {
            return refuse("is not UTF-8: expected one JSON object");
        };
        if !text.trim_ascii_start().starts_with('{') {
            return refuse("is not a JSON object: expected {…}");
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = json.deserialize_map(FieldVisitor).and_then(|fields| {
            json.end()?;
            Ok(fields)
        });
        match fields {
            Err(error) => refuse(&format!("is not JSON: {error}")),
            Ok(Err(invalid)) => Err(invalid),
            Ok(Ok(fields)) => Ok(Fields(fields)),
        }
    }

    /// The value of a field, unless absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, raw)| *raw)
    }

    /// The value of a field that must be there.
    pub(super) fn required(&self, name: &str, expected: &str) -> Result<&'a RawValue, Invalid> {
        self.get(name)
            .ok_or_else(|| Invalid::new(name, format!("is missing or null: expected {expected}")))
    }

    /// Refuses any name outside the lists.
    pub(super) fn refuse_others(&self, known: &[&[&str]], what: &str) -> Result<(), Invalid> {
        let known = |name: &str| known.iter().any(|names| names.contains(&name));
        match self.0.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                Err(Invalid::new(name, format!("is not a field of {what}")))
            }
        }
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Result<Vec<(Cow<'de, str>, &'de RawValue)>, Invalid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names: Vec<Cow<'de, str>> = Vec::new();
        let mut fields = Vec::new();
        let mut wrong = None;
        while let Some(Name(name)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            if names.len() == MAX_FIELDS {
                wrong = Some(Invalid::new("line", "has more than 32 fields"));
            } else if names.contains(&name) {
                let shown: String = name.chars().take(40).collect();
                wrong = Some(Invalid::new(shown, "is there twice: expected each field once"));
            } else {
                names.push(name.clone());
                if value.get() != "null" {
                    fields.push((name, value));
                }
            }
        }
        Ok(match wrong {
            Some(invalid) => Err(invalid),
            None => Ok(fields),
        })
    }
}

/// A key, borrowed where it has no escape.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
