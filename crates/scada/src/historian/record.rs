//! A message as the historian sees it: an event to be stored, or why it is none.

use bus::{Cause, Message};
use bytes::Bytes;
use event::scada::{Category, Envelope, Severity};
use pg::copy::Row;
use serde_json::{Map, Value};

use super::rows;

/// The dead letter's cause when a rule of the envelope is broken.
pub const INVALID: &str = "invalid_envelope";
/// The dead letter's cause when the schema is one that this historian does not read.
pub const INCOMPATIBLE: &str = "incompatible_schema";
/// The dead letter's cause when Postgres refuses the values.
pub const REFUSED: &str = "refused_by_database";

/// The header that has the version.
const SCHEMA_VERSION: &str = "schema_version";
/// The version whose fields are all known.
const KNOWN: Version = Version(1, 0, 0);
/// The most bytes of unknown fields that are kept with an event.
const MAX_EXTRA_BYTES: usize = 16 << 10;
/// Messages that are read before others may have the core: a tenth of a millisecond.
const READ_AT_ONCE: usize = 32;
const FIELDS: [&str; 9] =
    ["eventId", "timestamp", "asset", "tag", "value", "unit", "quality", "category", "nodeId"];
const ASSET_FIELDS: [&str; 3] = ["plant", "area", "unit"];

/// `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version(u32, u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let number = |word: &str| -> Option<u32> {
            let digits = (1..=9).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| word.parse().ok())?
        };
        let mut words = text.split('.');
        let version =
            Version(number(words.next()?)?, number(words.next()?)?, number(words.next()?)?);
        words.next().is_none().then_some(version)
    }
}

/// An event to be stored.
#[derive(Debug, Clone)]
pub struct Record {
    /// The event.
    pub envelope: Envelope,
    /// Fields of a newer schema that are not known here.
    pub extra: Option<Value>,
    /// The message's body, for whoever it is sent on to.
    pub body: Bytes,
    /// Its schema version, as it came.
    pub version: Option<String>,
    /// Made here because a message is read on a thread that no batch waits for.
    row: Row,
}

impl Record {
    /// Judges a message: its schema version, then every rule.
    pub fn read(message: &Message) -> Result<Record, Cause> {
        let version = message.headers.get(SCHEMA_VERSION);
        let known = match version.map(|text| Version::parse(text)) {
            None => KNOWN,
            Some(Some(version)) if version.0 == KNOWN.0 => version,
            Some(Some(Version(major, ..))) => {
                let words = format!("the schema has major version {major}, this historian reads 1");
                return Err(Cause::new(INCOMPATIBLE, words));
            }
            Some(None) => {
                let words = "the header schema_version is no version: expected major.minor.patch";
                return Err(Cause::new(INCOMPATIBLE, words));
            }
        };
        let envelope = Envelope::parse(&message.body).map_err(|fault| {
            // The fault may quote what it found, and a dead letter's cause must hold no payload.
            Cause::new(INVALID, format!("the field {} breaks its rule", fault.field))
        })?;
        // The fields of the known version are all in the envelope, which spares a second reading.
        let extra = if known == KNOWN { None } else { extra(&message.body)? };
        let row = rows::encode(&envelope, extra.as_ref())
            .map_err(|error| Cause::new(REFUSED, error.to_string()))?;
        let version = version.cloned();
        Ok(Record { envelope, extra, body: message.body.clone(), version, row })
    }

    /// Judges many on a thread of its own, which steps aside after every few: whoever stores the batch before may wait for the same core, and would
    /// leave the database idle until all were read.
    pub fn read_each<'a>(
        messages: impl Iterator<Item = &'a Message>,
    ) -> impl Iterator<Item = Result<Record, Cause>> {
        messages.enumerate().map(|(index, message)| {
            if index % READ_AT_ONCE == READ_AT_ONCE - 1 {
                std::thread::yield_now();
            }
            Record::read(message)
        })
    }

    /// Its row, for COPY.
    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    /// The severity of an alarm.
    pub fn severity(&self) -> Severity {
        severity(&self.envelope)
    }

    /// Whether it is of this category.
    pub(super) fn is(&self, category: Category) -> bool {
        self.envelope.category == category
    }
}

/// The severity of an alarm. A tag that is not documented counts as one that wants an answer within the shift.
pub(super) fn severity(envelope: &Envelope) -> Severity {
    Severity::of_alarm(&envelope.tag).unwrap_or(Severity::Medium)
}

/// What the envelope does not have, by name; those of the asset as `asset.NAME`.
fn extra(body: &[u8]) -> Result<Option<Value>, Cause> {
    let invalid = |words: &str| Cause::new(INVALID, words);
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(body) else {
        return Err(invalid("the body is no object"));
    };
    let asset = match fields.remove("asset") {
        Some(Value::Object(asset)) => asset,
        _ => Map::new(),
    };
    let own = fields.into_iter().filter(|(name, _)| !FIELDS.contains(&name.as_str()));
    let of_asset = asset
        .into_iter()
        .filter(|(name, _)| !ASSET_FIELDS.contains(&name.as_str()))
        .map(|(name, value)| (format!("asset.{name}"), value));
    let extra: Map<String, Value> = own.chain(of_asset).collect();
    if extra.is_empty() {
        return Ok(None);
    }
    let extra = Value::Object(extra);
    if extra.to_string().len() > MAX_EXTRA_BYTES {
        return Err(invalid("the fields that are not known have more than 16 KiB"));
    }
    Ok(Some(extra))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_numbers() {
        assert_eq!(Version::parse("1.20.3"), Some(Version(1, 20, 3)));
        for text in
            ["", "1", "1.0", "1.0.0.0", "1.0.x", "v1.0.0", "1..0", "+1.0.0", "1.0.9999999999"]
        {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
