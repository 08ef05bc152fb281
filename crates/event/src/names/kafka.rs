//! Topics, partition keys and the partitioner of Kafka.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::scada::{AssetName, Category, Tag};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A topic of the SCADA pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Flow, and every measurement that has no topic of its own.
    TelemetryFlow,
    /// Pressure.
    TelemetryPressure,
    /// Temperature.
    TelemetryTemperature,
    /// Operational events.
    Events,
    /// Alarms.
    Alarms,
    /// Messages that a consumer refused.
    Dlq,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Topic; 6] = [
        Topic::TelemetryFlow,
        Topic::TelemetryPressure,
        Topic::TelemetryTemperature,
        Topic::Events,
        Topic::Alarms,
        Topic::Dlq,
    ];

    /// Partitions of every topic. The dead letters have as many, so that a dead letter keeps the number
    /// of the partition it comes from.
    pub const PARTITIONS: NonZeroU32 = NonZeroU32::new(200).unwrap();

    /// Copies of every partition.
    pub const REPLICATION: u16 = 3;

    /// Copies that must be written before a message is confirmed.
    pub const MIN_IN_SYNC: u16 = 2;

    /// The topic of a message.
    ///
    /// Telemetry goes by the words of its tag: one that holds `PRESSURE` goes to pressure, `TEMPERATURE`
    /// or `TEMP` to temperature. Everything else goes to flow, where `FLOW_RATE` is: a topic of its own
    /// would be one that nobody who relies on the documented names reads, and a consumer goes by the
    /// envelope's tag in any case.
    pub fn of(category: Category, tag: &Tag) -> Topic {
        match category {
            Category::Event => Topic::Events,
            Category::Alarm => Topic::Alarms,
            Category::Telemetry => tag
                .as_str()
                .split('_')
                .find_map(|word| match word {
                    "FLOW" => Some(Topic::TelemetryFlow),
                    "PRESSURE" => Some(Topic::TelemetryPressure),
                    "TEMPERATURE" | "TEMP" => Some(Topic::TelemetryTemperature),
                    _ => None,
                })
                .unwrap_or(Topic::TelemetryFlow),
        }
    }

    /// The name of the topic.
    pub fn name(self) -> &'static str {
        match self {
            Topic::TelemetryFlow => "scada.l2.telemetry.flow",
            Topic::TelemetryPressure => "scada.l2.telemetry.pressure",
            Topic::TelemetryTemperature => "scada.l2.telemetry.temperature",
            Topic::Events => "scada.l2.events",
            Topic::Alarms => "scada.l2.alarms",
            Topic::Dlq => "scada.l2.dlq",
        }
    }

    /// The topic with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// How long messages are kept. Dead letters are kept as long as the longest of the rest, so that a
    /// dead letter does not go before the message it is a copy of.
    pub fn retention(self) -> Duration {
        Duration::from_secs(match self {
            Topic::TelemetryFlow | Topic::TelemetryPressure | Topic::TelemetryTemperature => {
                7 * DAY
            }
            Topic::Events => 30 * DAY,
            Topic::Alarms | Topic::Dlq => 90 * DAY,
        })
    }

    /// How long a segment is written before the next one begins.
    pub fn segment(self) -> Duration {
        Duration::from_secs(match self {
            Topic::TelemetryFlow | Topic::TelemetryPressure | Topic::TelemetryTemperature => HOUR,
            Topic::Events => 6 * HOUR,
            Topic::Alarms | Topic::Dlq => 12 * HOUR,
        })
    }
}

/// For which cluster the topics are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Profile {
    /// Three brokers or more.
    #[default]
    Production,
    /// One broker on a laptop: one copy, and few partitions.
    Dev,
}

/// How a topic is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its name.
    pub name: &'static str,
    /// Its partitions.
    pub partitions: u32,
    /// Copies of each.
    pub replication: u16,
    /// Copies that must be written before a message is confirmed.
    pub min_in_sync: u16,
    /// How long messages are kept.
    pub retention: Duration,
    /// How long a segment is written before the next one begins.
    pub segment: Duration,
}

impl Profile {
    /// Partitions of a topic on a laptop.
    const DEV_PARTITIONS: u32 = 8;

    /// How every topic is set up.
    pub fn topics(self) -> [TopicSettings; 6] {
        let (partitions, replication, min_in_sync) = match self {
            Profile::Production => {
                (Topic::PARTITIONS.get(), Topic::REPLICATION, Topic::MIN_IN_SYNC)
            }
            Profile::Dev => (Profile::DEV_PARTITIONS, 1, 1),
        };
        Topic::ALL.map(|topic| TopicSettings {
            name: topic.name(),
            partitions,
            replication,
            min_in_sync,
            retention: topic.retention(),
            segment: topic.segment(),
        })
    }
}

/// The key of a message: `{plant}.{area}.{unit}.{tag}`. Messages with one key stay in order.
pub fn partition_key(plant: &AssetName, area: &AssetName, unit: &AssetName, tag: &Tag) -> String {
    format!("{plant}.{area}.{unit}.{tag}")
}

/// The partition of a key, as Kafka's Java client chooses it: the hash without its sign bit, modulo
/// the number of partitions.
pub fn partition_for(key: &[u8], partitions: NonZeroU32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// MurmurHash2 with the seed of Kafka's Java client, byte for byte.
///
/// Java treats the result as signed; the bits are the same.
pub fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    // The length enters as 32 bits in Java as well, where an array cannot be longer.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the algorithm takes the length modulo 2^32"
    )]
    let mut hash = SEED ^ (key.len() as u32);
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (place, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_as_documented() {
        let day = |days| Duration::from_secs(days * DAY);
        let hour = |hours| Duration::from_secs(hours * HOUR);
        for (name, retention, segment) in [
            ("scada.l2.telemetry.flow", day(7), hour(1)),
            ("scada.l2.telemetry.pressure", day(7), hour(1)),
            ("scada.l2.telemetry.temperature", day(7), hour(1)),
            ("scada.l2.events", day(30), hour(6)),
            ("scada.l2.alarms", day(90), hour(12)),
            ("scada.l2.dlq", day(90), hour(12)),
        ] {
            let topic = Topic::from_name(name).unwrap();
            assert_eq!((topic.retention(), topic.segment()), (retention, segment), "{name}");
        }
        assert_eq!(Topic::from_name("scada.l2.other"), None);
        assert_eq!((Topic::PARTITIONS.get(), Topic::REPLICATION), (200, 3));
    }

    #[test]
    fn a_laptop_has_the_same_topics_and_one_copy() {
        let (production, dev) = (Profile::Production.topics(), Profile::Dev.topics());
        for (production, dev) in production.into_iter().zip(dev) {
            assert_eq!(
                (production.partitions, production.replication, production.min_in_sync),
                (200, 3, 2)
            );
            let same =
                TopicSettings { partitions: 8, replication: 1, min_in_sync: 1, ..production };
            assert_eq!(dev, same);
        }
    }

    #[test]
    fn messages_are_routed_by_category_and_tag() {
        let of = |category, tag: &str| Topic::of(category, &tag.parse().unwrap());
        assert_eq!(of(Category::Telemetry, "FLOW_RATE"), Topic::TelemetryFlow);
        assert_eq!(of(Category::Telemetry, "PRESSURE"), Topic::TelemetryPressure);
        assert_eq!(of(Category::Telemetry, "TEMPERATURE"), Topic::TelemetryTemperature);
        assert_eq!(of(Category::Telemetry, "INLET_PRESSURE_2"), Topic::TelemetryPressure);
        assert_eq!(of(Category::Telemetry, "BEARING_TEMP"), Topic::TelemetryTemperature);
        assert_eq!(of(Category::Telemetry, "ATTEMPTS"), Topic::TelemetryFlow);
        assert_eq!(of(Category::Telemetry, "VIBRATION"), Topic::TelemetryFlow);
        assert_eq!(of(Category::Event, "PRESSURE"), Topic::Events);
        assert_eq!(of(Category::Alarm, "HIGH_TEMP"), Topic::Alarms);
    }
}
