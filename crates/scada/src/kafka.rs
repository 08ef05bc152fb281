//! How a section of the configuration names a Kafka cluster: the same keys for every role of SCADA.
//!
//! The password comes from the environment or from a file, and is shown nowhere.

use settings::{Key, Kind};

/// The keys. A role joins them with its own.
pub const KEYS: &[Key] = &[
    Key::new("kafka.brokers", Kind::Text, "Kafka: host:port,host:port.")
        .alias(&["SCADA_KAFKA_BROKERS"]),
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
    )
    .alias(&["SCADA_KAFKA_CA_FILE"]),
    Key::new("kafka.certificate_file", Kind::Text, "PEM certificate that we show to the brokers.")
        .alias(&["SCADA_KAFKA_CERTIFICATE_FILE"]),
    Key::new("kafka.key_file", Kind::Text, "PEM key of kafka.certificate_file.")
        .alias(&["SCADA_KAFKA_KEY_FILE"]),
    Key::new("kafka.user", Kind::Text, "The user of SASL/SCRAM-SHA-512.")
        .alias(&["SCADA_KAFKA_USER"]),
    Key::new("kafka.password", Kind::Text, "Its password.")
        .secret()
        .alias(&["SCADA_KAFKA_PASSWORD"]),
];

/// The cluster that a section with [`KEYS`] names.
#[cfg(feature = "kafka")]
pub fn cluster(section: &settings::Section) -> Result<bus::kafka::Cluster, settings::Error> {
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
    parts.cluster().map_err(|error| section.refuse(&format!("kafka.{}", error.part), error.reason))
}

/// SCADA's topics, the dead letters among them, as a cluster of this kind should have them.
#[cfg(feature = "kafka")]
pub fn topics(profile: event::names::kafka::Profile) -> Vec<bus::kafka::admin::TopicSpec> {
    let spec = |topic: event::names::kafka::TopicSettings| {
        let partitions = usize::try_from(topic.partitions).unwrap_or(usize::MAX);
        bus::kafka::admin::TopicSpec::new(topic.name, partitions, topic.replication.into())
            .min_in_sync(topic.min_in_sync.into())
            .retention(topic.retention)
            .segment(topic.segment)
    };
    profile.topics().map(spec).into()
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use settings::Section;

    use super::*;

    fn shown(pairs: &[(&str, &str)]) -> Result<String, String> {
        let section = Section::load(None, "test", KEYS, |name| {
            Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_owned())
        })
        .map_err(|error| error.to_string())?;
        let cluster = cluster(&section).map_err(|error| error.to_string())?;
        Ok(format!("{cluster:?}"))
    }

    #[test]
    fn a_cluster_is_whole_or_what_is_missing_is_named() {
        let brokers = ("SCADA_KAFKA_BROKERS", "a:9092,b:9092");
        let (user, password) =
            (("SCADA_KAFKA_USER", "historian"), ("SCADA_KAFKA_PASSWORD", "tulip"));
        let (certificate, key) =
            (("SCADA_KAFKA_CERTIFICATE_FILE", "c.pem"), ("SCADA_KAFKA_KEY_FILE", "c.key"));
        assert!(shown(&[brokers]).unwrap().contains("tls: None"));
        let whole = shown(&[brokers, user, password, certificate, key]).unwrap();
        assert!(whole.contains("c.key") && whole.contains("historian"), "{whole}");
        assert!(!whole.contains("tulip"), "{whole}");
        for (pairs, said) in [
            (vec![], "test.kafka.brokers"),
            (vec![("SCADA_KAFKA_BROKERS", "user:tulip@a")], "test.kafka.brokers"),
            (vec![brokers, user], "test.kafka.password"),
            (vec![brokers, password], "test.kafka.user"),
            (vec![brokers, certificate], "test.kafka.key_file"),
            (vec![brokers, key], "test.kafka.certificate_file"),
        ] {
            let error = shown(&pairs).unwrap_err();
            assert!(error.contains(said) && !error.contains("tulip"), "{error}");
        }
    }
}
