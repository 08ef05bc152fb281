//! The `[historian]` section: every key once, with its default and what it means.
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell. It must not know the other roles' sections.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bus::rabbitmq::Address;
use event::scada::AssetName;
use settings::{Key, Kind, LiveSecret, Section, joined};

use super::alarms::Position;
use super::alarms::state::Rules;
use super::federation::Plants;
#[cfg(feature = "kafka")]
use super::kafka::KafkaBus;
use super::rollup::SESSION;
use super::topology::GROUP;
use crate::{kafka, rabbitmq};

/// The name of the section.
pub const SECTION: &str = "historian";

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// Every key of the section.
pub const KEYS: &[Key] = &joined::<{ OWN.len() + api::serve::KEYS.len() + kafka::KEYS.len() }>(&[
    OWN,
    &api::serve::KEYS,
    kafka::KEYS,
]);

const OWN: &[Key] = &[
    Key::new("database.url", Kind::Text, "Postgres.")
        .secret()
        .required()
        .alias(&["HISTORIAN_DATABASE_URL"]),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new(
        "database.max_connections",
        Kind::Integer { min: 4, max: 200 },
        "The most connections to Postgres. Federation has some of its own, the making of minutes one, and a replica on Kafka one.",
    )
    .default("12"),
    Key::new("http.listen", Kind::HostPort, "Where the API, health and metrics are served.")
        .default("127.0.0.1:8093"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "bus",
        Kind::Choice(&["inline", "rabbitmq", "kafka"]),
        "What brings the messages: RabbitMQ, Kafka, or the memory of a process that runs nodes too (`holdfast up`).",
    )
    .default("rabbitmq"),
    Key::new("rabbitmq_url", Kind::Text, "RabbitMQ: amqp://user:password@host:port/vhost or amqps://….")
        .secret()
        .alias(&["SCADA_RABBITMQ_URL"]),
    Key::new(
        "rabbitmq_ca_file",
        Kind::Text,
        "PEM certificates to trust as well when RabbitMQ is reached over TLS.",
    ),
    Key::new(
        "bus_declare",
        Kind::Flag,
        "Whether RabbitMQ's exchanges, queues and bindings are declared at start. Kafka's topics are made by `holdfast scada topics apply`.",
    )
    .default("true"),
    Key::new("group", Kind::Text, "The consumer group; offsets are kept under its name.")
        .default(GROUP),
    Key::new(
        "session_timeout",
        Kind::Duration { min_ms: 6 * SECOND, max_ms: 30 * MINUTE },
        "Kafka: without a sign of life for so long, a replica's partitions are given to others.",
    )
    .default("30s"),
    Key::new("batch", Kind::Integer { min: 1, max: 50_000 }, "The most messages of a transaction.")
        .default("2000"),
    Key::new(
        "alarms.quiet",
        Kind::Duration { min_ms: SECOND, max_ms: 7 * DAY },
        "An alarm that is not raised again for so long is cleared.",
    )
    .default("5m"),
    Key::new(
        "alarms.late_after",
        Kind::Duration { min_ms: SECOND, max_ms: 7 * DAY },
        "An alarm that is older than this when it comes is late.",
    )
    .default("2m"),
    Key::new(
        "alarms.chatter_count",
        Kind::Integer { min: 2, max: 100 },
        "So many transitions to active within alarms.chatter_window are chattering.",
    )
    .default("3"),
    Key::new(
        "alarms.chatter_window",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "The time in which transitions are counted.",
    )
    .default("60s"),
    Key::new(
        "alarms.longest_shelf",
        Kind::Duration { min_ms: MINUTE, max_ms: 30 * DAY },
        "The longest that an alarm may be shelved.",
    )
    .default("12h"),
    Key::new(
        "alarms.position",
        Kind::Choice(&["plant", "area"]),
        "What one operator looks after; floods are counted by it.",
    )
    .default("plant"),
    Key::new(
        "alarms.sweep",
        Kind::Duration { min_ms: 10, max_ms: 10 * MINUTE },
        "How often quiet alarms, shelves and floods are looked at.",
    )
    .default("5s"),
    Key::new(
        "federation.url",
        Kind::Text,
        "A second historian that gets what is stored here: http://host:port. Without it nothing is sent on.",
    ),
    Key::new("federation.token", Kind::Text, "A token of role edge of the second historian.").secret(),
    Key::new("federation.ca_file", Kind::Text, "PEM certificates to trust for the second historian."),
    Key::new("federation.client_cert", Kind::Text, "PEM certificate to show it, if it asks."),
    Key::new("federation.client_key", Kind::Text, "PEM key of that certificate."),
    Key::new("federation.plants", Kind::List, "The plants whose events are sent on; * for all.")
        .default("*"),
    Key::new(
        "stalled_after",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How long a batch may wait for the database before this process is not ready.",
    )
    .default("60s"),
    Key::new(
        "silent_after",
        Kind::Duration { min_ms: SECOND, max_ms: 30 * DAY },
        "How long no message may come before this process is not ready.",
    )
    .default("5m"),
    Key::new(
        "stop_grace",
        Kind::Duration { min_ms: 100, max_ms: 10 * MINUTE },
        "How long each part may take to finish what is under way when the historian stops.",
    )
    .default("10s"),
];

/// What brings the messages.
#[derive(Debug, Clone)]
pub enum Bus {
    /// This process's memory: its consumers are given to `Historian::start_with`.
    Inline,
    /// A broker.
    RabbitMq {
        /// Where it is.
        address: Address,
        /// Whether the topology is declared at start.
        declare: bool,
    },
    /// A cluster.
    #[cfg(feature = "kafka")]
    Kafka(KafkaBus),
}

/// A second historian.
#[derive(Debug, Clone)]
pub struct Federation {
    /// Where it is.
    pub url: String,
    /// What lets us in.
    pub token: LiveSecret,
    /// Whom we trust, and who we say we are.
    pub trust: api::client::Tls,
    /// What it gets.
    pub plants: Plants,
}

/// What the historian was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Postgres.
    pub database: pg::Options,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// What HTTP is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// What brings the messages.
    pub bus: Bus,
    /// The consumer group.
    pub group: String,
    /// The most messages of a transaction.
    pub batch: usize,
    /// When alarms are over, late or chattering.
    pub rules: Rules,
    /// The longest shelf.
    pub longest_shelf: Duration,
    /// What one operator looks after.
    pub position: Position,
    /// How often alarms are swept.
    pub sweep: Duration,
    /// The second historian.
    pub federation: Option<Federation>,
    /// How long a batch may wait.
    pub stalled_after: Duration,
    /// How long no message may come.
    pub silent_after: Duration,
    /// How long each part may take to finish.
    pub stop_grace: Duration,
}

/// A statement that takes longer has met a server that hangs; the bus keeps the batch.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

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
        let time = |key| section.get(key)?.duration();
        let position: String = section.get("alarms.position")?.text();
        Ok(Config {
            database: pg::Options {
                max_connections: section.get("database.max_connections")?.parse()?,
                statement_timeout: Some(STATEMENT_TIMEOUT),
                application_name: "holdfast-historian".to_owned(),
                settings: SESSION,
                ca_file: section.find("database.ca_file")?.map(|value| value.path()),
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            bus: bus(section)?,
            group: section.get("group")?.text(),
            batch: section.get("batch")?.parse()?,
            rules: Rules {
                quiet: time("alarms.quiet")?,
                late_after: time("alarms.late_after")?,
                chatter_count: section.get("alarms.chatter_count")?.parse()?,
                chatter_window: time("alarms.chatter_window")?,
            },
            longest_shelf: time("alarms.longest_shelf")?,
            position: position
                .parse()
                .map_err(|why: String| section.refuse("alarms.position", why))?,
            sweep: time("alarms.sweep")?,
            federation: federation(section)?,
            stalled_after: time("stalled_after")?,
            silent_after: time("silent_after")?,
            stop_grace: time("stop_grace")?,
        })
    }
}

fn bus(section: &Section) -> Result<Bus, settings::Error> {
    match section.get("bus")?.text().as_str() {
        "inline" => Ok(Bus::Inline),
        "kafka" => kafka_bus(section),
        _ => Ok(Bus::RabbitMq {
            address: rabbitmq::address(section)?,
            declare: section.get("bus_declare")?.flag()?,
        }),
    }
}

#[cfg(feature = "kafka")]
fn kafka_bus(section: &Section) -> Result<Bus, settings::Error> {
    Ok(Bus::Kafka(KafkaBus {
        cluster: kafka::cluster(section)?,
        operator: None,
        session_timeout: section.get("session_timeout")?.duration()?,
    }))
}

#[cfg(not(feature = "kafka"))]
fn kafka_bus(section: &Section) -> Result<Bus, settings::Error> {
    Err(section.refuse("bus", "is kafka, which this program was built without"))
}

fn federation(section: &Section) -> Result<Option<Federation>, settings::Error> {
    let Some(url) = section.find("federation.url")? else { return Ok(None) };
    let url = url.text();
    let sound = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if !sound {
        return Err(section.refuse("federation.url", "expected http://host:port or https://…"));
    }
    let token = section.find("federation.token")?.ok_or_else(|| {
        section.refuse("federation.token", "is required with historian.federation.url")
    })?;
    let mut plants = Plants::Only(Default::default());
    for name in section.get("federation.plants")?.list() {
        match (&mut plants, name.as_str()) {
            (_, "*") => plants = Plants::All,
            (Plants::Only(names), _) => {
                let plant: AssetName = name.parse().map_err(|_| {
                    section.refuse("federation.plants", "has a name that is no plant's")
                })?;
                names.insert(plant.to_string());
            }
            (Plants::All, _) => {}
        }
    }
    if plants == Plants::Only(Default::default()) {
        return Err(section.refuse("federation.plants", "is empty: name plants, or * for all"));
    }
    let trust = api::client::Tls::from_section(section, "federation.")?;
    Ok(Some(Federation { url, token: token.live_secret(), trust, plants }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        let url = ("HISTORIAN_DATABASE_URL", "postgres:///h?password=tulip");
        Config::load(None, |name| {
            let found = [url].iter().chain(pairs).find(|(key, _)| *key == name)?.1.to_owned();
            Some(found)
        })
    }

    #[test]
    fn defaults_work_with_a_broker_and_what_cannot_work_is_refused_by_name() {
        let broker = ("SCADA_RABBITMQ_URL", "amqp://user:tulip@host:5672/scada");
        let config = load(&[broker]).unwrap();
        assert_eq!(config.rules, Rules::default());
        assert_eq!(config.group, GROUP);
        assert!(config.federation.is_none() && config.listen.ip().is_loopback());
        assert!(!format!("{config:?}").contains("tulip"));
        let inline = ("HOLDFAST_HISTORIAN_BUS", "inline");
        assert!(matches!(load(&[inline]).unwrap().bus, Bus::Inline));
        let second = ("HOLDFAST_HISTORIAN_FEDERATION_URL", "http://second:8093");
        for (pairs, said) in [
            (vec![], "historian.rabbitmq_url"),
            (vec![inline, ("HOLDFAST_HISTORIAN_FEDERATION_URL", "second")], "federation.url"),
            (vec![inline, second], "federation.token"),
            (
                vec![
                    inline,
                    second,
                    ("HOLDFAST_HISTORIAN_FEDERATION_TOKEN", "t"),
                    ("HOLDFAST_HISTORIAN_FEDERATION_PLANTS", "plant one"),
                ],
                "federation.plants",
            ),
        ] {
            let error = load(&pairs).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("tulip"), "{error}");
        }
    }
}
