//! Where the cluster is, and how we show who we are.

use std::path::PathBuf;
use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

/// The longest pause between two tries to connect to a broker, in ms.
const RECONNECT_MAX_MS: &str = "2000";
const RECONNECT_MS: &str = "100";

/// The brokers of a cluster and our credentials; a password is never shown.
#[derive(Clone)]
pub struct Cluster {
    servers: String,
    tls: Option<Tls>,
    login: Option<Login>,
}

/// TLS towards the brokers. The name of the host is always checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: who signed the brokers' certificates; without it the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate, and its key, where the brokers want one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone)]
struct Login {
    user: String,
    password: String,
}

/// A list of brokers that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("brokers: {0:?} is no host:port; expected host:port,host:port")]
pub struct InvalidCluster(String);

impl Cluster {
    /// Reads `host:port,host:port`.
    pub fn parse(servers: &str) -> Result<Cluster, InvalidCluster> {
        for one in servers.split(',') {
            let sound = one.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && !host.contains(['@', '/', ' '])
                    && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !sound {
                // Somebody may have put a password before the host.
                let shown = one.rsplit_once('@').map_or(one, |(_, host)| host);
                return Err(InvalidCluster(shown.to_owned()));
            }
        }
        Ok(Cluster { servers: servers.to_owned(), tls: None, login: None })
    }

    /// By TLS.
    pub fn with_tls(mut self, tls: Tls) -> Cluster {
        self.tls = Some(tls);
        self
    }

    /// Logs in by SCRAM-SHA-512.
    pub fn with_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Cluster {
        self.login = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// The brokers, one by one.
    pub(super) fn brokers(&self) -> impl Iterator<Item = &str> {
        self.servers.split(',')
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The user and its password.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.login.as_ref().map(|login| (login.user.as_str(), login.password.as_str()))
    }

    /// What every client of the cluster is configured with.
    pub(crate) fn config(&self, name: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", name)
            .set("reconnect.backoff.ms", RECONNECT_MS)
            .set("reconnect.backoff.max.ms", RECONNECT_MAX_MS)
            .set("allow.auto.create.topics", "false");
        config.set(
            "security.protocol",
            match (&self.tls, &self.login) {
                (None, None) => "plaintext",
                (None, Some(_)) => "sasl_plaintext",
                (Some(_), None) => "ssl",
                (Some(_), Some(_)) => "sasl_ssl",
            },
        );
        if let Some(tls) = &self.tls {
            if let Some(file) = &tls.ca_file {
                config.set("ssl.ca.location", file.to_string_lossy());
            }
            if let Some((certificate, key)) = &tls.identity {
                config.set("ssl.certificate.location", certificate.to_string_lossy());
                config.set("ssl.key.location", key.to_string_lossy());
            }
        }
        if let Some(login) = &self.login {
            config.set("sasl.mechanisms", "SCRAM-SHA-512");
            config.set("sasl.username", &login.user).set("sasl.password", &login.password);
        }
        config
    }
}

/// A cluster and our credentials as the settings of a role name them, none of them checked yet.
#[derive(Default)]
pub struct ClusterParts {
    /// `host:port,host:port`.
    pub brokers: Option<String>,
    /// Whether TLS is wanted; a file says so as well.
    pub tls: bool,
    /// See [`Tls::ca_file`].
    pub ca_file: Option<PathBuf>,
    /// See [`Tls::identity`].
    pub certificate_file: Option<PathBuf>,
    /// See [`Tls::identity`].
    pub key_file: Option<PathBuf>,
    /// Who logs in.
    pub user: Option<String>,
    /// By what.
    pub password: Option<String>,
}

/// Parts that make no cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} {reason}")]
pub struct InvalidParts {
    /// The part that is wrong or not there.
    pub part: &'static str,
    /// Why.
    pub reason: String,
}

impl ClusterParts {
    /// Puts them together.
    pub fn cluster(self) -> Result<Cluster, InvalidParts> {
        let refuse = |part, reason: &str| InvalidParts { part, reason: reason.to_owned() };
        let brokers = self
            .brokers
            .ok_or_else(|| refuse("brokers", "is required for Kafka: host:port,host:port"))?;
        let mut cluster =
            Cluster::parse(&brokers).map_err(|error| refuse("brokers", &error.to_string()))?;
        let identity = match (self.certificate_file, self.key_file) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(refuse("key_file", "is required with a certificate")),
            (None, Some(_)) => return Err(refuse("certificate_file", "is required with a key")),
        };
        if self.tls || self.ca_file.is_some() || identity.is_some() {
            cluster = cluster.with_tls(Tls { ca_file: self.ca_file, identity });
        }
        match (self.user, self.password) {
            (Some(user), Some(password)) => Ok(cluster.with_login(user, password)),
            (None, None) => Ok(cluster),
            (Some(_), None) => Err(refuse("password", "is required with a user")),
            (None, Some(_)) => Err(refuse("user", "is required with a password")),
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.login.as_ref().map(|login| login.user.as_str());
        f.debug_struct("Cluster")
            .field("servers", &self.servers)
            .field("tls", &self.tls)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

/// The client library's error in words. The value of a setting is left out: it may be the password.
pub(crate) fn words(error: &KafkaError) -> Arc<str> {
    match error {
        KafkaError::ClientConfig(_, _, key, _) => {
            format!("the setting {key} is not accepted by the client").into()
        }
        other => other.to_string().into(),
    }
}

/// True when Kafka could have a topic of this name.
pub(crate) fn is_topic(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && name.bytes().all(sound) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let cluster = Cluster::parse("a:9092,b:9093").unwrap().with_login("user", "canary");
        let shown = format!("{cluster:?}");
        assert!(shown.contains("user") && shown.contains("b:9093"), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
        let error = Cluster::parse("user:canary@host").unwrap_err().to_string();
        assert!(!error.contains("canary"), "{error}");
        let mut config = cluster.config("x");
        config.set("sasl.password", "canary").set("linger.ms", "canary");
        let refused = config.create::<rdkafka::consumer::BaseConsumer>().err().unwrap();
        assert!(refused.to_string().contains("canary"), "the library shows values: {refused}");
        assert!(!words(&refused).contains("canary") && words(&refused).contains("linger.ms"));
    }

    #[test]
    fn what_is_no_list_of_brokers_is_refused() {
        for text in ["", "host", "host:", ":9092", "host:0", "host:70000", "a:1,,b:2", "a b:1"] {
            assert!(Cluster::parse(text).is_err(), "{text:?}");
        }
        assert!(Cluster::parse("127.0.0.1:9092,kafka-2:9093").is_ok());
    }

    #[test]
    fn topics_have_a_grammar() {
        assert!(is_topic("scada.l2.telemetry.flow") && is_topic("farmiq.sync.exchange"));
        for name in ["", ".", "..", "a b", "ä", "a/b", &"a".repeat(250)] {
            assert!(!is_topic(name), "{name:?}");
        }
    }
}
