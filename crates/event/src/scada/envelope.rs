//! The envelope: reading, checking, writing.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{AssetName, Category, Tag};
use crate::farm::rules;
use crate::id::EventId;
use crate::names::kafka;
use crate::{Invalid, InvalidKind, MAX_EVENT_BYTES, QualityCode, json, timestamp};

/// The highest `nodeId`; the lowest is 1.
pub const MAX_NODE_ID: u16 = 1000;

const NAMES: [&str; 9] =
    ["eventId", "timestamp", "asset", "tag", "value", "unit", "quality", "category", "nodeId"];

const UNIT: &str = "at most 32 characters, no control characters";

/// A SCADA event. Serialises with the documented field names in the documented order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The global dedupe key.
    pub event_id: EventId,
    /// When the sensor measured, not when anyone received it.
    pub timestamp: Timestamp,
    /// Where in the plant.
    pub asset: Asset,
    /// The process variable, the event or the alarm.
    pub tag: Tag,
    /// The value; finite.
    #[serde(serialize_with = "shortest_number")]
    pub value: f64,
    /// The engineering unit, such as `m³/h`.
    pub unit: String,
    /// How far the value can be trusted.
    pub quality: QualityCode,
    /// What sort of message it is.
    pub category: Category,
    /// The node it came from, 1 to [`MAX_NODE_ID`].
    pub node_id: u16,
}

/// A place in the ISA-95 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Asset {
    /// The site.
    pub plant: AssetName,
    /// The area of the site.
    pub area: AssetName,
    /// The work unit of the area.
    pub unit: AssetName,
}

impl Envelope {
    /// Reads an event and checks every rule.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, Invalid> {
        if bytes.len() > MAX_EVENT_BYTES {
            let problem =
                format!("is {} bytes: expected at most {MAX_EVENT_BYTES} bytes", bytes.len());
            return Err(Invalid::new("event", problem).with_kind(InvalidKind::TooLarge));
        }
        let [id, at, asset, tag, value, unit, quality, category, node_id] =
            json::document("event", json::utf8("event", bytes)?, &NAMES)?;
        let timestamp = json::text("timestamp", at, "an ISO 8601 time in UTC")?;
        let unit = json::text("unit", unit, UNIT)?;
        let node_id = json::integer("nodeId", node_id, 1, u64::from(MAX_NODE_ID))?;
        let envelope = Envelope {
            event_id: json::id("eventId", id)?,
            timestamp: timestamp::utc("timestamp", &timestamp)?,
            asset: Asset::read(asset)?,
            tag: json::text("tag", tag, Tag::EXPECTED)?.parse()?,
            value: json::finite("value", value)?,
            unit: unit.into_owned(),
            quality: json::text("quality", quality, QualityCode::EXPECTED)?.parse()?,
            category: json::text("category", category, Category::EXPECTED)?.parse()?,
            node_id: u16::try_from(node_id).unwrap_or(MAX_NODE_ID),
        };
        envelope.check()?;
        Ok(envelope)
    }

    /// Checks what the types of the fields do not already promise; for an envelope that was put
    /// together by hand.
    pub fn check(&self) -> Result<(), Invalid> {
        rules::metric_value("value", self.value)?;
        let unit_is_sound = self.unit.is_empty() || rules::unit("unit", &self.unit).is_ok();
        rules::accept(unit_is_sound, "unit", &self.unit, UNIT)?;
        let node_id_is_sound = (1..=MAX_NODE_ID).contains(&self.node_id);
        rules::accept(
            node_id_is_sound,
            "nodeId",
            &self.node_id.to_string(),
            "an integer from 1 to 1000",
        )
    }

    /// The partition key: messages of one tag of one asset stay in order.
    pub fn partition_key(&self) -> String {
        kafka::partition_key(&self.asset.plant, &self.asset.area, &self.asset.unit, &self.tag)
    }

    /// The topic it belongs to.
    pub fn topic(&self) -> kafka::Topic {
        kafka::Topic::of(self.category, &self.tag)
    }

    /// The event as JSON.
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }
}

impl Asset {
    fn read(raw: Option<&RawValue>) -> Result<Asset, Invalid> {
        let raw = raw.ok_or_else(|| Invalid::missing("asset", "an object"))?;
        let [plant, area, unit] = json::pick("asset", raw, &["plant", "area", "unit"])?;
        let name = |field: &str, raw| -> Result<AssetName, Invalid> {
            let text = json::text(field, raw, AssetName::EXPECTED)?;
            text.parse().map_err(|err| Invalid { field: field.to_owned(), ..err })
        };
        Ok(Asset {
            plant: name("asset.plant", plant)?,
            area: name("asset.area", area)?,
            unit: name("asset.unit", unit)?,
        })
    }
}

/// Writes 50 and not 50.0, as the producers that share these topics do.
fn shortest_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: every integer up to here is exact.
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "an integer within 2^53")]
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}
