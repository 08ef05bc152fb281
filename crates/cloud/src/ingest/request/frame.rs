//! The frame of a batch: its version, its name, its two lists.

use std::fmt;

use event::wire::{Limits, VERSION};
use event::{Invalid, rfc3339};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Batch, event as item, tombstone};
use crate::tokens::Tenants;

/// The longest name of a batch or a site.
const MAX_NAME_CHARS: usize = 64;

/// Why a body is no batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    /// There is more in it than allowed: a 413.
    #[error("{what} are more than the limit of {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A rule of the frame is broken: a 400.
    #[error("{field} {problem}")]
    Malformed {
        /// The field.
        field: String,
        /// The rest of the sentence.
        problem: String,
    },
}

impl BadBatch {
    fn new(field: &str, problem: impl Into<String>) -> BadBatch {
        BadBatch::Malformed { field: field.to_owned(), problem: problem.into() }
    }

    /// The field that is wrong, where it is a field.
    pub fn field(&self) -> Option<&str> {
        match self {
            BadBatch::Malformed { field, .. } => Some(field),
            BadBatch::TooMany { what, .. } => Some(what),
        }
    }
}

impl From<Invalid> for BadBatch {
    fn from(invalid: Invalid) -> BadBatch {
        BadBatch::Malformed { field: invalid.field, problem: invalid.problem }
    }
}

/// Reads a batch and judges its events and tombstones. `tenants` are those the sender may write.
pub fn parse(body: &[u8], limits: &Limits, tenants: &Tenants) -> Result<Batch, BadBatch> {
    let text = std::str::from_utf8(body).map_err(|error| {
        BadBatch::new("body", format!("is not UTF-8 at byte {}", error.valid_up_to()))
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let frame = FrameSeed { limits }
        .deserialize(&mut reader)
        .and_then(|frame| reader.end().map(|()| frame))
        .map_err(|error| {
            // The library's words name a position; some would also repeat a value.
            let (line, column) = (error.line(), error.column());
            BadBatch::new(
                "body",
                format!("is not a batch in JSON: see line {line} column {column}"),
            )
        })?;
    if let Some(name) = frame.twice {
        return Err(BadBatch::new(name, "is there twice"));
    }
    match frame.v.map(RawValue::get) {
        Some(v) if v == VERSION.to_string() => {}
        _ => return Err(BadBatch::new("v", format!("is not {VERSION}"))),
    }
    let batch_id =
        name("batch_id", frame.batch_id)?.ok_or_else(|| BadBatch::new("batch_id", "is missing"))?;
    let edge_cluster_id = name("edge_cluster_id", frame.edge_cluster_id)?;
    if let Some(raw) = frame.sent_at {
        rfc3339("sent_at", &string("sent_at", raw)?)?;
    }
    let events = elements(frame.events, "events", limits.records)?;
    let tombstones = elements(frame.tombstones, "tombstones", limits.gaps)?;
    if events.is_empty() && tombstones.is_empty() {
        return Err(BadBatch::new("events", "and tombstones are both empty"));
    }
    Ok(Batch {
        batch_id,
        edge_cluster_id,
        items: events.into_iter().map(|raw| item::judge(raw, tenants)).collect(),
        tombstones: tombstones.into_iter().map(|raw| tombstone::judge(raw, tenants)).collect(),
    })
}

fn elements<'a>(
    list: Option<List<'a>>,
    what: &'static str,
    limit: usize,
) -> Result<Vec<&'a RawValue>, BadBatch> {
    match list {
        None => Ok(Vec::new()),
        Some(List::Elements(elements)) => Ok(elements),
        Some(List::TooMany) => Err(BadBatch::TooMany { what, limit }),
        Some(List::Other) => Err(BadBatch::new(what, "is not an array")),
    }
}

fn string(field: &str, raw: &RawValue) -> Result<String, BadBatch> {
    serde_json::from_str(raw.get()).map_err(|_| BadBatch::new(field, "is not text"))
}

fn name(field: &str, raw: Option<&RawValue>) -> Result<Option<String>, BadBatch> {
    let Some(raw) = raw else { return Ok(None) };
    let text = string(field, raw)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(plain) {
        Ok(Some(text))
    } else {
        Err(BadBatch::new(field, "is not 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen"))
    }
}

#[derive(Default)]
struct Frame<'a> {
    v: Option<&'a RawValue>,
    batch_id: Option<&'a RawValue>,
    edge_cluster_id: Option<&'a RawValue>,
    sent_at: Option<&'a RawValue>,
    events: Option<List<'a>>,
    tombstones: Option<List<'a>>,
    twice: Option<&'static str>,
}

/// The elements of a list, up to its limit.
enum List<'a> {
    Elements(Vec<&'a RawValue>),
    TooMany,
    Other,
}

#[derive(Clone, Copy)]
struct FrameSeed<'l> {
    limits: &'l Limits,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    V,
    BatchId,
    EdgeClusterId,
    SentAt,
    Events,
    Tombstones,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for FrameSeed<'_> {
    type Value = Frame<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Frame<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FrameSeed<'_> {
    type Value = Frame<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Frame<'de>, A::Error> {
        let mut frame = Frame::default();
        let mut seen: Vec<Name> = Vec::new();
        while let Some(name) = map.next_key::<Name>()? {
            if name == Name::Other {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let twice = seen.contains(&name);
            seen.push(name);
            let (word, slot) = match name {
                Name::Events => {
                    frame.events = map.next_value_seed(ListSeed { max: self.limits.records })?;
                    ("events", None)
                }
                Name::Tombstones => {
                    frame.tombstones = map.next_value_seed(ListSeed { max: self.limits.gaps })?;
                    ("tombstones", None)
                }
                Name::V => ("v", Some(&mut frame.v)),
                Name::BatchId => ("batch_id", Some(&mut frame.batch_id)),
                Name::EdgeClusterId => ("edge_cluster_id", Some(&mut frame.edge_cluster_id)),
                Name::SentAt | Name::Other => ("sent_at", Some(&mut frame.sent_at)),
            };
            if let Some(slot) = slot {
                *slot = map.next_value::<Option<&'de RawValue>>()?;
            }
            if twice {
                frame.twice = Some(word);
                // Each repetition would be kept in `seen`; one is enough to refuse.
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(frame);
            }
        }
        Ok(frame)
    }
}

/// Reads a list, or null. What is over the limit is read without being kept.
struct ListSeed {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for ListSeed {
    type Value = Option<List<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed {
    type Value = Option<List<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if elements.len() == self.max {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Some(List::TooMany));
            }
            elements.push(element);
        }
        Ok(Some(List::Elements(elements)))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(List::Other))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Some(List::Other))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Some(List::Other))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Some(List::Other))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Some(List::Other))
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Some(List::Other))
    }
}
