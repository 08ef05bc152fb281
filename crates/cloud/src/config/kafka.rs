//! Where Kafka is, when it carries the events.

use settings::{Key, Kind, Section, joined, kafka};

use super::wiring::Bus;

/// The keys of the cluster, and of the topics that are made.
pub(super) const KEYS: &[Key] =
    &joined::<{ kafka::KEYS.len() + TOPICS.len() }>(&[kafka::KEYS, TOPICS]);

const TOPICS: &[Key] = &[
    Key::new(
        "kafka.partitions",
        Kind::Integer { min: 1, max: 1_000 },
        "Partitions of a topic that is made. Devices are spread over them; no more consumers of a group work than there are.",
    )
    .default("12"),
    Key::new(
        "kafka.replication",
        Kind::Integer { min: 1, max: 7 },
        "Copies of each partition of a topic that is made.",
    )
    .default("3"),
];

/// What the cloud was told about Kafka.
#[cfg(feature = "kafka")]
#[derive(Debug, Clone)]
pub struct KafkaBus {
    /// The cluster.
    pub cluster: bus::kafka::Cluster,
    /// Whether topics are made at start.
    pub declare: bool,
    /// Their partitions.
    pub partitions: usize,
    /// Copies of each.
    pub replication: usize,
}

#[cfg(feature = "kafka")]
pub(super) fn bus(section: &Section) -> Result<Bus, settings::Error> {
    let named = kafka::Kafka::from_section(section)?;
    let parts = bus::kafka::ClusterParts {
        brokers: named.brokers,
        tls: named.tls,
        ca_file: named.ca_file,
        certificate_file: named.certificate_file,
        key_file: named.key_file,
        user: named.user,
        password: named.password.map(|secret| secret.expose().to_owned()),
    };
    let refuse = |error: bus::kafka::InvalidParts| {
        section.refuse(&format!("kafka.{}", error.part), error.reason)
    };
    Ok(Bus::Kafka(KafkaBus {
        cluster: parts.cluster().map_err(refuse)?,
        declare: section.get("bus_declare")?.flag()?,
        partitions: section.get("kafka.partitions")?.parse()?,
        replication: section.get("kafka.replication")?.parse()?,
    }))
}

#[cfg(not(feature = "kafka"))]
pub(super) fn bus(section: &Section) -> Result<Bus, settings::Error> {
    Err(section.refuse("bus", "is kafka, which this program was built without"))
}
