//! Reading JSON without building a tree.
//!
//! An envelope is read by picking its named fields as raw text and checking each one, so that a value
//! of the wrong type is an error that names the field, and so that a payload of any shape costs no
//! allocation. Promises: a field that is named twice is refused (two readers could otherwise disagree
//! on which one counts); names that were not asked for are ignored; `null` and absent are the same.

mod storable;

pub(crate) use storable::check_storable;
pub use storable::{MAX_EXPONENT, MAX_NESTING, MAX_NUMBER_CHARS};

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::IdError;
use crate::{Invalid, InvalidKind};

/// Picks the named fields of a whole document, such as an event; absent and null ones are `None`.
pub(crate) fn document<'a, const N: usize>(
    name: &str,
    text: &'a str,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a RawValue>; N], Invalid> {
    object(name, "", text, names)
}

/// Picks the named fields of an object inside a document, as [`document`] does; `field` is its path.
pub(crate) fn pick<'a, const N: usize>(
    field: &str,
    raw: &'a RawValue,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a RawValue>; N], Invalid> {
    object(field, field, raw.get(), names)
}

fn object<'a, const N: usize>(
    field: &str,
    prefix: &str,
    text: &'a str,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a RawValue>; N], Invalid> {
    if !text.trim_ascii_start().starts_with('{') {
        return match serde_json::from_str::<&RawValue>(text) {
            Ok(other) => Err(Invalid::json(field, other.get(), "an object")),
            Err(err) => Err(syntax(field, &err)),
        };
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let picked = Object { names }
        .deserialize(&mut deserializer)
        .and_then(|picked| deserializer.end().map(|()| picked))
        .map_err(|err| syntax(field, &err))?;
    match picked.twice {
        Some(name) => {
            let dot = if prefix.is_empty() { "" } else { "." };
            let path = format!("{prefix}{dot}{name}");
            Err(Invalid::new(path, "is there twice: expected each field once"))
        }
        None => Ok(picked.values),
    }
}

/// The elements of a JSON array as raw text; `Ok(None)` if there are more than `max`.
pub(crate) fn elements<'a>(
    field: &str,
    raw: &'a RawValue,
    max: usize,
) -> Result<Option<Vec<&'a RawValue>>, Invalid> {
    if !raw.get().starts_with('[') {
        return Err(Invalid::json(field, raw.get(), "an array"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    deserializer.deserialize_seq(Array { max }).map_err(|err| syntax(field, &err))
}

/// The text of a JSON string. It is copied only if it holds an escape.
pub(crate) fn text<'a>(
    field: &str,
    raw: Option<&'a RawValue>,
    expected: &str,
) -> Result<Cow<'a, str>, Invalid> {
    let json = raw.ok_or_else(|| Invalid::missing(field, expected))?.get();
    let inner = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| Invalid::json(field, json, expected))?;
    if inner.contains('\\') {
        // Only here can a lone surrogate show itself.
        serde_json::from_str(json)
            .map(Cow::Owned)
            .map_err(|_| Invalid::new(field, format!("is not valid text: expected {expected}")))
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

/// A finite number.
pub(crate) fn finite(field: &str, raw: Option<&RawValue>) -> Result<f64, Invalid> {
    const EXPECTED: &str = "a finite number";
    let json = raw.ok_or_else(|| Invalid::missing(field, EXPECTED))?.get();
    let fault = || Invalid::json(field, json, EXPECTED);
    if !json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return Err(fault());
    }
    let value: f64 = json.parse().map_err(|_| fault())?;
    if value.is_finite() { Ok(value) } else { Err(fault()) }
}

/// A whole number without fraction or exponent, from `min` to `max`.
pub(crate) fn integer(
    field: &str,
    raw: Option<&RawValue>,
    min: u64,
    max: u64,
) -> Result<u64, Invalid> {
    let expected = || format!("an integer from {min} to {max}");
    let json = raw.ok_or_else(|| Invalid::missing(field, &expected()))?.get();
    json.parse()
        .ok()
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| Invalid::json(field, json, &expected()))
}

/// A typed id that must be there.
pub(crate) fn id<T: FromStr<Err = IdError>>(
    field: &str,
    raw: Option<&RawValue>,
) -> Result<T, Invalid> {
    let text = text(field, raw, "a UUID of version 4 or 7")?;
    text.parse().map_err(|err: IdError| {
        Invalid::new(field, format!("{} {err}", crate::invalid::quoted(&text)))
    })
}

/// A typed id that may be null.
pub(crate) fn optional_id<T: FromStr<Err = IdError>>(
    field: &str,
    raw: Option<&RawValue>,
) -> Result<Option<T>, Invalid> {
    raw.map(|raw| id(field, Some(raw))).transpose()
}

/// The bytes as text. `field` names the whole document.
pub(crate) fn utf8<'a>(field: &str, bytes: &'a [u8]) -> Result<&'a str, Invalid> {
    std::str::from_utf8(bytes).map_err(|err| {
        let problem = format!("is not UTF-8 at byte {}: expected JSON", err.valid_up_to());
        Invalid::new(field, problem).with_kind(InvalidKind::Syntax)
    })
}

/// The JSON of a value whose parts always serialise.
pub(crate) fn to_string<T: Serialize>(value: &T) -> String {
    // Serialising to memory fails only for maps with keys that are not text and for types that refuse;
    // the structs of this crate hold neither.
    serde_json::to_string(value).expect("plain structs serialise to memory")
}

fn syntax(field: &str, err: &serde_json::Error) -> Invalid {
    // The library's message names a position and what was expected there, never the text itself.
    Invalid::new(field, format!("is not JSON: {err}")).with_kind(InvalidKind::Syntax)
}

struct Picked<'a, const N: usize> {
    values: [Option<&'a RawValue>; N],
    twice: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct Object<const N: usize> {
    names: &'static [&'static str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Object<N> {
    type Value = Picked<'de, N>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Object<N> {
    type Value = Picked<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = [false; N];
        let mut picked = Picked { values: [None; N], twice: None };
        while let Some(index) = map.next_key_seed(Name { names: self.names })? {
            let Some(index) = index else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &'de RawValue = map.next_value()?;
            if seen[index] {
                picked.twice = Some(self.names[index]);
            }
            seen[index] = true;
            picked.values[index] = (value.get() != "null").then_some(value);
        }
        Ok(picked)
    }
}

/// A key, as its place among the names.
struct Name<const N: usize> {
    names: &'static [&'static str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Name<N> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for Name<N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.names.iter().position(|name| *name == key))
    }
}

struct Array {
    max: usize,
}

impl<'de> Visitor<'de> for Array {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if elements.len() == self.max {
                // The rest is read without being kept, so that the array ends where it should.
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
            elements.push(element);
        }
        Ok(Some(elements))
    }
}
