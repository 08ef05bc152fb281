//! How a section of the configuration names a Kafka cluster: the same keys for every role of SCADA.
//!
//! The password comes from the environment or from a file, and is shown nowhere.

use settings::{Key, kafka};

/// The keys, with their names in the environment of SCADA. A role joins them with its own.
pub const KEYS: &[Key] = &[
    kafka::BROKERS.alias(&["SCADA_KAFKA_BROKERS"]),
    kafka::TLS,
    kafka::CA_FILE.alias(&["SCADA_KAFKA_CA_FILE"]),
    kafka::CERTIFICATE_FILE.alias(&["SCADA_KAFKA_CERTIFICATE_FILE"]),
    kafka::KEY_FILE.alias(&["SCADA_KAFKA_KEY_FILE"]),
    kafka::USER.alias(&["SCADA_KAFKA_USER"]),
    kafka::PASSWORD.alias(&["SCADA_KAFKA_PASSWORD"]),
];

/// The cluster that a section with [`KEYS`] names.
#[cfg(feature = "kafka")]
pub fn cluster(section: &settings::Section) -> Result<bus::kafka::Cluster, settings::Error> {
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
