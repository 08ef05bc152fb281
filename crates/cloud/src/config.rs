//! The `[cloud]` section: every key once, with its default and what it means.
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell; what only the
//! servers can tell shows at start. It must not know the other roles' sections. It fails with
//! [`settings::Error`], which names the key, the value and the reason.

mod kafka;
mod keys;
mod wiring;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use event::wire;
use settings::Section;

#[cfg(feature = "kafka")]
pub use kafka::KafkaBus;
pub use keys::{KEYS, SECTION};
pub use wiring::{Bus, Relay, Role};

use crate::consume;

/// What the cloud was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Postgres.
    pub database: pg::Options,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// What HTTP is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// What a request may be.
    pub limits: Limits,
    /// How long an event id stays in the dedupe cache.
    pub dedupe_ttl: Duration,
    /// How often expired ones are removed.
    pub dedupe_sweep_every: Duration,
    /// What this process does.
    pub roles: BTreeSet<Role>,
    /// What carries events to the consumers.
    pub bus: Bus,
    /// How the relay works.
    pub relay: Relay,
    /// How long each part may take to finish when the cloud stops.
    pub stop_grace: Duration,
    /// What the consumers do.
    pub consume: consume::Options,
}

/// What a request may be, and how many there may be. All of it per replica.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What a body may hold; records are events, gaps are tombstones.
    pub body: wire::Limits,
    /// How long a body may take to arrive.
    pub body_within: Duration,
    /// Requests worked on at once.
    pub requests: usize,
    /// Of these, from one token.
    pub requests_per_token: usize,
    /// Requests a second from one token.
    pub request_rate: u32,
    /// Events and tombstones a second from one token.
    pub event_rate: u32,
}

impl Config {
    /// Reads the section from a file and the environment.
    pub fn load(
        file: Option<&Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, settings::Error> {
        Config::from_section(&Section::load(file, SECTION, KEYS, env)?)
    }

    /// Takes the values of a section that was read with [`KEYS`].
    pub fn from_section(section: &Section) -> Result<Config, settings::Error> {
        let size = |key| {
            let bytes = section.get(key)?.size()?;
            Ok::<_, settings::Error>(usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        let body = wire::Limits {
            wire_bytes: size("limits.body")?,
            decompressed_bytes: size("limits.decompressed")?,
            records: section.get("limits.events")?.parse()?,
            gaps: section.get("limits.tombstones")?.parse()?,
        };
        if body.decompressed_bytes < body.wire_bytes {
            return Err(section.refuse(
                "limits.decompressed",
                "is smaller than limits.body: a body that is not compressed could not be taken",
            ));
        }
        let roles = wiring::roles(section)?;
        let bus = wiring::bus(section, &roles)?;
        let hours: u64 = section.get("dedupe.ttl_hours")?.parse()?;
        Ok(Config {
            database: pg::Options {
                max_connections: section.get("database.max_connections")?.parse()?,
                statement_timeout: Some(STATEMENT_TIMEOUT),
                application_name: "holdfast-cloud".to_owned(),
                ca_file: section.find("database.ca_file")?.map(|value| value.path()),
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            limits: Limits {
                body,
                body_within: section.get("limits.body_within")?.duration()?,
                requests: section.get("limits.requests")?.parse()?,
                requests_per_token: section.get("limits.requests_per_token")?.parse()?,
                request_rate: section.get("rate.requests_per_second")?.parse()?,
                event_rate: section.get("rate.events_per_second")?.parse()?,
            },
            dedupe_ttl: Duration::from_secs(hours * 3600),
            dedupe_sweep_every: section.get("dedupe.sweep_every")?.duration()?,
            roles,
            bus,
            relay: wiring::relay(section)?,
            stop_grace: section.get("stop_grace")?.duration()?,
            consume: consume::Options::from_section(section)?,
        })
    }
}

/// A statement that takes longer has met a server that hangs; the sender keeps its batch.
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

    const URL: (&str, &str) = ("HOLDFAST_CLOUD_DATABASE_URL", "postgres:///c?password=tulip");

    #[test]
    fn the_defaults_are_those_of_the_protocol() {
        let config = load(&[URL]).unwrap();
        assert!(config.listen.ip().is_loopback());
        assert_eq!(config.limits.body.wire_bytes, 8 << 20);
        assert_eq!(config.limits.body.decompressed_bytes, 32 << 20);
        assert_eq!((config.limits.body.records, config.limits.body.gaps), (5_000, 1_000));
        assert_eq!(config.dedupe_ttl, Duration::from_secs(72 * 3600));
        assert_eq!(config.consume, consume::Options::default());
        assert!(!format!("{config:?}").contains("tulip"));
    }

    #[test]
    fn a_listener_for_other_machines_must_be_meant() {
        let open = ("HOLDFAST_CLOUD_HTTP_LISTEN", "0.0.0.0:8091");
        let error = load(&[URL, open]).unwrap_err().to_string();
        assert!(error.contains("http.allow_remote"), "{error}");
        assert!(load(&[URL, open, ("HOLDFAST_CLOUD_HTTP_ALLOW_REMOTE", "true")]).is_ok());
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let small = ("HOLDFAST_CLOUD_LIMITS_DECOMPRESSED", "1MiB");
        assert!(load(&[URL, small]).unwrap_err().to_string().contains("limits.body"));
        let refused = |pairs: &[(&'static str, &'static str)]| {
            let pairs: Vec<_> = [URL].iter().chain(pairs).copied().collect();
            load(&pairs).unwrap_err().to_string()
        };
        let roles = |list| ("HOLDFAST_CLOUD_ROLES", list);
        assert!(refused(&[roles("ingestion,telemetery")]).contains("cloud.roles"));
        assert!(refused(&[roles(",")]).contains("cloud.roles"));
        let apart = refused(&[roles("ingestion,relay")]);
        assert!(apart.contains("inline") && apart.contains("analytics"), "{apart}");
        assert!(refused(&[roles("telemetry,analytics,media")]).contains("relay"));
        assert!(load(&[URL, roles("ingestion")]).is_ok());
        let rabbitmq = ("HOLDFAST_CLOUD_BUS", "rabbitmq");
        assert!(refused(&[rabbitmq]).contains("cloud.rabbitmq_url"));
        let wrong = refused(&[rabbitmq, ("RABBITMQ_URL", "http://user:tulip@host")]);
        assert!(wrong.contains("amqp://") && !wrong.contains("tulip"), "{wrong}");
        let broker = ("RABBITMQ_URL", "amqp://user:tulip@host:5672/farm");
        let config = load(&[URL, rabbitmq, broker, roles("relay")]).unwrap();
        assert_eq!(config.roles, [Role::Relay].into());
        assert!(!format!("{config:?}").contains("tulip"));
        for (name, value, said) in [
            ("HOLDFAST_CLOUD_TELEMETRY_WINDOWS", "1h,2h", "1m, 1h or 1d"),
            ("HOLDFAST_CLOUD_TELEMETRY_LONGEST_WAIT", "5s", "telemetry.quiet"),
            ("HOLDFAST_CLOUD_ANALYTICS_RANGES", "temperature C 27..18", "ends before"),
        ] {
            let error = load(&[URL, (name, value)]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
