//! Where Kafka is, when it carries the events.

use settings::{Key, Kind, Section};

use super::wiring::Bus;

/// The keys.
pub(super) const KEYS: &[Key] = &[
    Key::new("kafka.brokers", Kind::Text, "Kafka: host:port,host:port."),
    Key::new(
        "kafka.tls",
        Kind::Flag,
        "Whether Kafka is reached over TLS. A certificate file says so as well.",
    )
    .default("false"),
    Key::new(
        "kafka.ca_file",
        Kind::Text,
        "PEM certificates of who signed the brokers' certificates, instead of the system's.",
    ),
    Key::new(
        "kafka.certificate_file",
        Kind::Text,
        "PEM certificate that we show to the brokers.",
    ),
    Key::new("kafka.key_file", Kind::Text, "PEM key of kafka.certificate_file."),
    Key::new("kafka.user", Kind::Text, "The user of SASL/SCRAM-SHA-512."),
    Key::new("kafka.password", Kind::Text, "Its password.").secret(),
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
    let text = |key| section.find(key).map(|found| found.map(|value| value.text()));
    let file = |key| section.find(key).map(|found| found.map(|value| value.path()));
    let password = section.find("kafka.password")?.map(|value| value.secret());
    let parts = bus::kafka::ClusterParts {
        brokers: text("kafka.brokers")?,
        tls: section.get("kafka.tls")?.flag()?,
        ca_file: file("kafka.ca_file")?,
        certificate_file: file("kafka.certificate_file")?,
        key_file: file("kafka.key_file")?,
        user: text("kafka.user")?,
        password: password.map(|secret| secret.expose().to_owned()),
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
