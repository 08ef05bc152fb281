//! How a section names a Kafka cluster: the same keys wherever Kafka may carry events.
//!
//! A role joins [`KEYS`] with its own, or the single ones where it has further names for them. What the values come to is the business of
//! whoever speaks with Kafka; here they are only read. The password comes from the environment or from a file, and is shown nowhere.

use std::path::PathBuf;

use crate::{Error, Key, Kind, Secret, Section};

/// Where the cluster is.
pub const BROKERS: Key = Key::new("kafka.brokers", Kind::Text, "Kafka: host:port,host:port.");
/// Whether it is reached over TLS.
pub const TLS: Key = Key::new(
    "kafka.tls",
    Kind::Flag,
    "Whether Kafka is reached over TLS. A certificate file says so as well.",
)
.default("false");
/// Whom to trust.
pub const CA_FILE: Key = Key::new(
    "kafka.ca_file",
    Kind::Text,
    "PEM certificates of who signed the brokers' certificates, instead of the system's.",
);
/// Who we are, by certificate.
pub const CERTIFICATE_FILE: Key =
    Key::new("kafka.certificate_file", Kind::Text, "PEM certificate that we show to the brokers.");
/// The key of it.
pub const KEY_FILE: Key =
    Key::new("kafka.key_file", Kind::Text, "PEM key of kafka.certificate_file.");
/// Who we are, by password.
pub const USER: Key = Key::new("kafka.user", Kind::Text, "The user of SASL/SCRAM-SHA-512.");
/// The password.
pub const PASSWORD: Key = Key::new("kafka.password", Kind::Text, "Its password.").secret();

/// All of them.
pub const KEYS: &[Key] = &[BROKERS, TLS, CA_FILE, CERTIFICATE_FILE, KEY_FILE, USER, PASSWORD];

/// What a section says of a cluster; whether it is enough is not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kafka {
    /// `host:port,host:port`.
    pub brokers: Option<String>,
    /// Whether TLS is asked for.
    pub tls: bool,
    /// Whom to trust.
    pub ca_file: Option<PathBuf>,
    /// Our certificate.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Our name.
    pub user: Option<String>,
    /// Our password.
    pub password: Option<Secret>,
}

impl Kafka {
    /// Takes the values of a section that has [`KEYS`].
    pub fn from_section(section: &Section) -> Result<Kafka, Error> {
        let text = |key: Key| section.find(key.path).map(|found| found.map(|value| value.text()));
        let file = |key: Key| section.find(key.path).map(|found| found.map(|value| value.path()));
        Ok(Kafka {
            brokers: text(BROKERS)?,
            tls: section.get(TLS.path)?.flag()?,
            ca_file: file(CA_FILE)?,
            certificate_file: file(CERTIFICATE_FILE)?,
            key_file: file(KEY_FILE)?,
            user: text(USER)?,
            password: section.find(PASSWORD.path)?.map(|value| value.secret()),
        })
    }
}
