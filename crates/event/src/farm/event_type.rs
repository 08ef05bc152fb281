//! The type of a farm event, which is also its routing key.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::{Class, Invalid};

/// The type of a farm event: lower-case words with dots between them, at least two.
///
/// `[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+`, at most 128 characters. The eight core types are constants;
/// any other that keeps the grammar passes, because services add their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Cow<'static, str>);

impl EventType {
    /// The longest type, in characters.
    pub const MAX_LEN: usize = 128;

    /// A reading of a device.
    pub const TELEMETRY_INGESTED: EventType = EventType(Cow::Borrowed("telemetry.ingested"));
    /// An average, minimum and maximum over a window of readings.
    pub const TELEMETRY_AGGREGATED: EventType = EventType(Cow::Borrowed("telemetry.aggregated"));
    /// A weighing session began.
    pub const SESSION_CREATED: EventType = EventType(Cow::Borrowed("weighvision.session.created"));
    /// A weighing session ended with a weight.
    pub const SESSION_FINALIZED: EventType =
        EventType(Cow::Borrowed("weighvision.session.finalized"));
    /// A weighing session ended without a weight. Not one of the core types; its rules are kept all the
    /// same.
    pub const SESSION_CANCELLED: EventType =
        EventType(Cow::Borrowed("weighvision.session.cancelled"));
    /// An image is in the object store.
    pub const MEDIA_STORED: EventType = EventType(Cow::Borrowed("media.stored"));
    /// An image was evaluated.
    pub const INFERENCE_COMPLETED: EventType = EventType(Cow::Borrowed("inference.completed"));
    /// A batch left for the cloud.
    pub const SYNC_BATCH_SENT: EventType = EventType(Cow::Borrowed("sync.batch.sent"));
    /// The cloud acknowledged a batch.
    pub const SYNC_BATCH_ACKED: EventType = EventType(Cow::Borrowed("sync.batch.acked"));

    /// The eight core types.
    pub const CORE: [EventType; 8] = [
        EventType::TELEMETRY_INGESTED,
        EventType::TELEMETRY_AGGREGATED,
        EventType::SESSION_CREATED,
        EventType::SESSION_FINALIZED,
        EventType::MEDIA_STORED,
        EventType::INFERENCE_COMPLETED,
        EventType::SYNC_BATCH_SENT,
        EventType::SYNC_BATCH_ACKED,
    ];

    pub(crate) const EXPECTED: &'static str =
        "lower-case words with dots between them, such as telemetry.ingested";

    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first word: whose exchange it is.
    pub fn domain(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// The routing key, which is the type itself.
    pub fn routing_key(&self) -> &str {
        &self.0
    }

    /// How dear it is: `telemetry.*` is telemetry, `alarm.*` an alarm, all else an event.
    pub fn class(&self) -> Class {
        match self.domain() {
            "telemetry" => Class::Telemetry,
            "alarm" => Class::Alarm,
            _ => Class::Event,
        }
    }

    fn is_sound(text: &str) -> bool {
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        text.len() <= EventType::MAX_LEN && text.contains('.') && text.split('.').all(word)
    }
}

impl FromStr for EventType {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<EventType, Invalid> {
        if let Some(core) = EventType::CORE.into_iter().find(|core| core.0 == text) {
            return Ok(core);
        }
        if EventType::is_sound(text) {
            Ok(EventType(Cow::Owned(text.to_owned())))
        } else {
            Err(Invalid::value("event_type", text, EventType::EXPECTED))
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventType({})", self.0)
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_types_parse_to_their_constants() {
        for core in EventType::CORE {
            assert_eq!(core.as_str().parse::<EventType>(), Ok(core.clone()));
            assert!(EventType::is_sound(core.as_str()));
        }
    }

    #[test]
    fn keeps_its_grammar() {
        let longest = format!("a.{}", "b".repeat(126));
        for text in ["a.b", "alarm.raised", "a1_.b2_3.c", &longest] {
            assert_eq!(text.parse::<EventType>().unwrap().as_str(), text);
        }
        for text in [
            "",
            "telemetry",
            ".",
            "a.",
            ".a",
            "a..b",
            "A.b",
            "a.B",
            "1a.b",
            "a._b",
            "a-b.c",
            "a.b c",
            "a.#",
            "a.*",
            "a/b.c",
            "é.a",
            "a.b\n",
            &format!("{longest}b"),
        ] {
            assert_eq!(text.parse::<EventType>().unwrap_err().field, "event_type", "{text:?}");
        }
    }

    #[test]
    fn domain_and_class_come_from_the_first_word() {
        let class = |text: &str| text.parse::<EventType>().unwrap().class();
        assert_eq!(class("telemetry.ingested"), Class::Telemetry);
        assert_eq!(class("telemetry.custom"), Class::Telemetry);
        assert_eq!(class("alarm.raised"), Class::Alarm);
        assert_eq!(class("alarms.raised"), Class::Event);
        assert_eq!(class("media.stored"), Class::Event);
        assert_eq!(EventType::SESSION_CREATED.domain(), "weighvision");
    }
}
