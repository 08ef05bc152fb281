//! The `[edge]` section: every key once, with its default and what it means.
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell; what only the
//! servers can tell shows at start. It must not know the other roles' sections. It fails with
//! [`settings::Error`], which names the key, the value and the reason.

mod inference;
mod keys;
mod media;
mod retention;
mod role;
mod sync;
mod telemetry;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use event::id::NodeId;
use settings::{Secret, Section};

pub use inference::Inference;
pub use keys::{KEYS, SECTION};
pub use media::{Media, Orphans};
pub use retention::{MinFree, Retention, UntilCopied};
pub use role::Role;
pub use sync::Sync;
pub use telemetry::{Telemetry, TelemetrySync};

/// What the edge was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// This replica's name.
    pub replica: NodeId,
    /// What this process does.
    pub roles: BTreeSet<Role>,
    /// Postgres.
    pub database: pg::Options,
    /// The broker, with the edge's credentials.
    pub broker: mqtt::Broker,
    /// The edge's user at the broker, and its password; for the broker's files.
    pub broker_user: (String, Option<Secret>),
    /// Silence after which the link to the broker is tested.
    pub keepalive: Duration,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// What HTTP is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// Backfill requests worked on at once.
    pub max_uploads: usize,
    /// How messages are gathered.
    pub ingress: Ingress,
    /// When a silent node is late, and when offline.
    pub liveness: Liveness,
    /// How long an event id stays in the dedupe cache.
    pub dedupe_ttl: Duration,
    /// How often expired ones are removed.
    pub dedupe_sweep_every: Duration,
    /// Mosquitto's files, if the edge writes them.
    pub broker_files: Option<BrokerFiles>,
    /// The broker as the nodes reach it.
    pub public_mqtt_address: mqtt::Address,
    /// Backfill over HTTP as the nodes reach it.
    pub public_http_address: Option<String>,
    /// The forwarder to the cloud, if there is one.
    pub sync: Option<Sync>,
    /// The inference worker, if there is one.
    pub inference: Option<Inference>,
    /// What may go, and when.
    pub retention: Retention,
    /// The object store of images, if there is one.
    pub media: Option<Media>,
    /// How aggregates are made, and what of readings goes to the cloud.
    pub telemetry: Telemetry,
}

/// How messages are gathered into transactions.
#[derive(Debug, Clone, Copy)]
pub struct Ingress {
    /// How long messages gather.
    pub gather: Duration,
    /// About how many records one transaction takes.
    pub max_records: usize,
    /// Bytes of messages held before reading from the broker stops.
    pub max_held: u64,
    /// Waiting longer than this makes the edge not ready.
    pub stall_after: Duration,
}

/// When a silent node is late, and when offline.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    /// Late after this long.
    pub late_after: Duration,
    /// Offline after this long.
    pub offline_after: Duration,
}

/// Where Mosquitto's files are.
#[derive(Debug, Clone)]
pub struct BrokerFiles {
    /// `password_file`.
    pub passwords: PathBuf,
    /// `acl_file`.
    pub acl: PathBuf,
}

impl Config {
    /// Reads the section from a file and the environment.
    pub fn load(
        file: Option<&Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, settings::Error> {
        Config::from_section(&Section::load(file, SECTION, KEYS, env)?)
    }

    /// The site's object store, if it has one.
    pub fn object_store(&self) -> Result<Option<objects::Bucket>, objects::Error> {
        self.media.as_ref().map(|media| objects::Bucket::new(&media.store)).transpose()
    }

    /// Takes the values of a section that was read with [`KEYS`].
    pub fn from_section(section: &Section) -> Result<Config, settings::Error> {
        let path = |key| Ok::<_, settings::Error>(section.find(key)?.map(|value| value.path()));
        let username = section.get("mqtt.username")?.text();
        let password = section.find("mqtt.password")?.map(|value| value.secret());
        let address: mqtt::Address = section.get("mqtt.address")?.parse()?;
        let broker = mqtt::Broker {
            address: address.clone(),
            tls: mqtt::Tls {
                ca_file: path("mqtt.ca_file")?,
                client_cert: path("mqtt.client_cert")?,
                client_key: path("mqtt.client_key")?,
            },
            credentials: password
                .as_ref()
                .map(|secret| mqtt::Credentials::new(username.clone(), secret.expose())),
        };
        let liveness = Liveness {
            late_after: section.get("liveness.late_after")?.duration()?,
            offline_after: section.get("liveness.offline_after")?.duration()?,
        };
        if liveness.offline_after < liveness.late_after {
            return Err(section.refuse(
                "liveness.offline_after",
                "is shorter than liveness.late_after: a node is late before it is offline",
            ));
        }
        let broker_files = match (path("broker.password_file")?, path("broker.acl_file")?) {
            (Some(passwords), Some(acl)) => Some(BrokerFiles { passwords, acl }),
            (None, None) => None,
            _ => {
                return Err(section.refuse(
                    "broker.acl_file",
                    "goes together with broker.password_file: give both or none",
                ));
            }
        };
        let hours: u64 = section.get("dedupe.ttl_hours")?.parse()?;
        Ok(Config {
            replica: section.get("replica")?.parse()?,
            roles: role::roles(section)?,
            database: pg::Options {
                max_connections: section.get("database.max_connections")?.parse()?,
                statement_timeout: Some(STATEMENT_TIMEOUT),
                application_name: "holdfast-edge".to_owned(),
                ca_file: path("database.ca_file")?,
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            broker,
            broker_user: (username, password),
            keepalive: section.get("mqtt.keepalive")?.duration()?,
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            max_uploads: section.get("http.max_uploads")?.parse()?,
            ingress: Ingress {
                gather: section.get("ingress.gather")?.duration()?,
                max_records: section.get("ingress.max_records")?.parse()?,
                max_held: section.get("ingress.max_held")?.size()?,
                stall_after: section.get("ingress.stall_after")?.duration()?,
            },
            liveness,
            dedupe_ttl: Duration::from_secs(hours * 3600),
            dedupe_sweep_every: section.get("dedupe.sweep_every")?.duration()?,
            broker_files,
            public_mqtt_address: match section.find("public.mqtt_address")? {
                Some(value) => value.parse()?,
                None => address,
            },
            public_http_address: section.find("public.http_address")?.map(|value| value.text()),
            sync: Sync::from_section(section)?,
            inference: Inference::from_section(section)?,
            retention: Retention::from_section(section)?,
            media: Media::from_section(section)?,
            telemetry: Telemetry::from_section(section)?,
        })
    }
}

/// A statement that takes longer has met a server that hangs; the work is kept and tried again.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        Config::load(None, |name| {
            let found = pairs.iter().find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    const URL: (&str, &str) = ("DATABASE_URL", "postgres:///farm?host=/run&password=tulip");

    #[test]
    fn the_defaults_work_and_the_documented_names_are_heard() {
        let config = load(&[URL, ("INGRESS_DEDUPE_TTL_HOURS", "24")]).unwrap();
        assert_eq!(config.dedupe_ttl, Duration::from_secs(24 * 3600));
        assert!(config.listen.ip().is_loopback());
        assert!(!format!("{config:?}").contains("tulip"));
    }

    #[test]
    fn a_listener_for_other_machines_must_be_meant() {
        let open = ("HOLDFAST_EDGE_HTTP_LISTEN", "0.0.0.0:8090");
        let error = load(&[URL, open]).unwrap_err().to_string();
        assert!(error.contains("http.allow_remote"), "{error}");
        assert!(load(&[URL, open, ("HOLDFAST_EDGE_HTTP_ALLOW_REMOTE", "true")]).is_ok());
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let late = ("HOLDFAST_EDGE_LIVENESS_LATE_AFTER", "30m");
        assert!(load(&[URL, late]).unwrap_err().to_string().contains("offline_after"));
        let one = ("HOLDFAST_EDGE_BROKER_ACL_FILE", "acl");
        assert!(load(&[URL, one]).unwrap_err().to_string().contains("password_file"));
    }
}
