//! A JSON body, field by field: a refusal names the field and the rule. Pure.
//!
//! Null counts as absent. A field that is not known is refused, because one that was misspelt would
//! silently not count.

use std::collections::BTreeMap;
use std::str::FromStr;

use api::Refused;
use event::id::IdError;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Says who asks, not what is asked: a repeat may have another one.
const TRACE_ID: &str = "trace_id";

/// The fields of a body that are there.
#[derive(Debug)]
pub(crate) struct Fields(BTreeMap<String, Value>);

impl Fields {
    /// Reads an object; `trace_id` may always be there.
    pub(crate) fn read(body: &[u8], known: &[&str]) -> Result<Fields, Refused> {
        let object: BTreeMap<String, Value> = serde_json::from_slice(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let message = format!("the body is no JSON object: see line {line}, column {column}");
            Refused::malformed(None, message)
        })?;
        for name in object.keys() {
            if name != TRACE_ID && !known.contains(&name.as_str()) {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                let message =
                    format!("there is no such field: expected {}, {TRACE_ID}", known.join(", "));
                return Err(Refused::malformed(Some(&shown), message));
            }
        }
        Ok(Fields(object.into_iter().filter(|(_, value)| !value.is_null()).collect()))
    }

    /// What the body says, as a hash: the same for the same fields and values.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (name, value) in self.0.iter().filter(|(name, _)| *name != TRACE_ID) {
            hash.update(name.as_bytes());
            hash.update([0]);
            hash.update(value.to_string().as_bytes());
            hash.update([0]);
        }
        hash.finalize().into()
    }

    /// An id that must be there.
    pub(crate) fn id<T: FromStr<Err = IdError>>(&self, name: &str) -> Result<T, Refused> {
        self.maybe_id(name)?.ok_or_else(|| missing(name, "a UUID of version 4 or 7"))
    }

    /// An id that may be there.
    pub(crate) fn maybe_id<T: FromStr<Err = IdError>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Refused> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let expected = "a UUID of version 4 or 7";
        let text = value.as_str().ok_or_else(|| wrong(name, expected))?;
        text.parse().map(Some).map_err(|_| wrong(name, expected))
    }

    /// A number that must be there.
    pub(crate) fn number(&self, name: &str) -> Result<f64, Refused> {
        let value = self.0.get(name).ok_or_else(|| missing(name, "a number"))?;
        let number = value.as_f64().filter(|number| number.is_finite());
        number.ok_or_else(|| wrong(name, "a number"))
    }

    /// A time that may be there, to the microsecond: Postgres keeps no more.
    pub(crate) fn maybe_time(&self, name: &str) -> Result<Option<Timestamp>, Refused> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let expected = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
        let text = value.as_str().ok_or_else(|| wrong(name, expected))?;
        let at = event::rfc3339(name, text).map_err(|_| wrong(name, expected))?;
        Ok(Some(to_microsecond(at)))
    }

    /// A text that may be there, of 1 to `max` characters.
    pub(crate) fn maybe_text(&self, name: &str, max: usize) -> Result<Option<String>, Refused> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let expected = format!("1 to {max} characters, none of them a control character");
        let sound = |text: &&str| {
            (1..=max).contains(&text.chars().count()) && !text.contains(char::is_control)
        };
        let text = value.as_str().filter(sound).ok_or_else(|| wrong(name, &expected))?;
        Ok(Some(text.to_owned()))
    }

    /// A text that must be there.
    pub(crate) fn text(&self, name: &str, max: usize) -> Result<String, Refused> {
        let expected = format!("1 to {max} characters");
        self.maybe_text(name, max)?.ok_or_else(|| missing(name, &expected))
    }

    /// The trace, if the body names one.
    pub(crate) fn trace_id(&self) -> Result<Option<String>, Refused> {
        let Some(value) = self.0.get(TRACE_ID) else { return Ok(None) };
        let sound = |text: &&str| event::farm::rules::trace_id(TRACE_ID, text).is_ok();
        let text = value.as_str().filter(sound);
        let text = text.ok_or_else(|| wrong(TRACE_ID, "1 to 128 visible ASCII characters"))?;
        Ok(Some(text.to_owned()))
    }
}

/// The time as Postgres keeps it.
pub(crate) fn to_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

fn missing(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} is missing: expected {expected}"))
}

fn wrong(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} is not understood: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use event::id::TenantId;

    use super::*;

    fn read(body: &str) -> Result<Fields, Refused> {
        Fields::read(body.as_bytes(), &["a", "b"])
    }

    #[test]
    fn a_refusal_names_the_field() {
        for body in ["", "[]", "1", "{", "{\"a\":1e999}"] {
            assert_eq!(read(body).unwrap_err().status, 400, "{body}");
        }
        assert_eq!(read(r#"{"c":1}"#).unwrap_err().field.as_deref(), Some("c"));
        let fields = read(r#"{"a":"../../etc","b":null}"#).unwrap();
        assert_eq!(fields.id::<TenantId>("a").unwrap_err().field.as_deref(), Some("a"));
        assert_eq!(fields.id::<TenantId>("b").unwrap_err().field.as_deref(), Some("b"));
        assert!(fields.maybe_id::<TenantId>("b").unwrap().is_none());
        assert!(fields.number("a").is_err() && fields.maybe_time("a").is_err());
        assert!(fields.maybe_text("a", 8).is_err() && fields.maybe_text("a", 9).is_ok());
    }

    #[test]
    fn the_same_said_otherwise_has_the_same_digest() {
        let digest = |body| read(body).unwrap().digest();
        let one = digest(r#"{"a":1.5,"b":"x"}"#);
        assert_eq!(one, digest("{ \"b\":\"x\", \"trace_id\":\"t\", \"a\":1.50 }"));
        assert_ne!(one, digest(r#"{"a":1.5}"#));
        assert_ne!(one, digest(r#"{"a":1.5,"b":"y"}"#));
        assert_eq!(digest("{}"), digest(r#"{"a":null}"#));
    }
}
