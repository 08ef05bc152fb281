//! The `[producer]` section, read and checked; its keys are [`KEYS`].
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell. It must not know the other roles' sections.

mod keys;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bus::rabbitmq::Address;
use event::scada::{AssetName, MAX_NODE_ID};
use settings::{LiveSecret, Section};

use crate::analytics::Rules;
use crate::inputs::Mapping;
use crate::kafka;
use crate::outbox::Settings;
use crate::rabbitmq;

pub use keys::{KEYS, SECTION};

/// A cycle of a thousand nodes that all have everything to say fits.
const MAX_RECORD_BYTES: u32 = 16 << 20;
const CURSOR_EVERY: Duration = Duration::from_secs(1);

/// What takes the messages.
#[derive(Debug, Clone)]
pub enum Bus {
    /// This process's memory: the publisher is given to `Producer::start_with`.
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
    Kafka(bus::kafka::Cluster),
}

/// Which nodes are simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// Their plant.
    pub plant: AssetName,
    /// The number of the first.
    pub first: u16,
    /// How many they are.
    pub count: u16,
    /// The area, where a single node has one of its own.
    pub area: Option<AssetName>,
    /// The unit, likewise.
    pub unit: Option<AssetName>,
    /// What repeats a run.
    pub seed: Option<u64>,
}

/// What a node was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Postgres.
    pub database: pg::Options,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// What HTTP is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// What lets readers on other machines see the metrics.
    pub metrics_token: Option<LiveSecret>,
    /// The nodes.
    pub nodes: Nodes,
    /// The devices that are read, instead of simulated nodes.
    pub inputs: Option<Mapping>,
    /// What is made of readings, and which are left out.
    pub rules: Option<Rules>,
    /// Time between two cycles.
    pub interval: Duration,
    /// How long the write of a cycle may take.
    pub write_within: Duration,
    /// What takes the messages.
    pub bus: Bus,
    /// How many dispatchers.
    pub dispatchers: usize,
    /// How each of them works.
    pub outbox: Settings,
    /// How long what was sent is kept.
    pub keep: Duration,
    /// How often the pruner runs.
    pub prune_every: Duration,
    /// How often the outbox is watched.
    pub report_every: Duration,
    /// The spool.
    pub spool: spool::Config,
    /// How long nothing may move.
    pub stalled_after: Duration,
    /// How long each part may take to finish.
    pub stop_grace: Duration,
}

/// A shorter one could be guessed.
const MIN_METRICS_TOKEN_CHARS: usize = 16;
/// A statement that takes longer has met a server that hangs.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// One for the loop, one for the drain, and for pruner, watch and readiness.
const CONNECTIONS: usize = 5;
/// A connection that takes longer is none: the spool is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

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
        let file = |key| Ok::<_, settings::Error>(section.find(key)?.map(|value| value.path()));
        let ms = |key| Ok::<_, settings::Error>(Duration::from_millis(section.get(key)?.parse()?));
        let lock_seconds = section.get("outbox.lock_timeout_seconds")?.parse()?;
        let days: u64 = section.get("retention_days")?.parse()?;
        let mut spool = spool::Config::new(section.get("spool.dir")?.path());
        spool.max_record_bytes = MAX_RECORD_BYTES;
        spool.max_spool_bytes = section.get("spool.max_spool_bytes")?.size()?;
        spool.free_space_reserve = section.get("spool.free_space_reserve")?.size()?;
        spool.on_full = spool::OnFull::DropOldest;
        spool.cursor_every = CURSOR_EVERY;
        Ok(Config {
            database: pg::Options {
                max_connections: CONNECTIONS,
                connect_timeout: CONNECT_TIMEOUT,
                statement_timeout: Some(STATEMENT_TIMEOUT),
                application_name: "holdfast-scada-producer".to_owned(),
                ca_file: section.find("database.ca_file")?.map(|value| value.path()),
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            metrics_token: metrics_token(section)?,
            nodes: nodes(section)?,
            inputs: file("inputs_file")?.map(|path| Mapping::load(&path)).transpose()?,
            rules: file("analytics_file")?.map(|path| Rules::load(&path)).transpose()?,
            interval: time("interval")?,
            write_within: time("write_within")?,
            bus: bus(section)?,
            dispatchers: section.get("dispatchers")?.parse()?,
            outbox: Settings {
                batch: section.get("outbox.batch_size")?.parse()?,
                poll: ms("outbox.poll_interval_ms")?,
                max_retries: section.get("outbox.max_retries")?.parse()?,
                lock_timeout: Duration::from_secs(lock_seconds),
                recovery: ms("outbox.recovery_interval_ms")?,
                ..Settings::new("dispatcher")
            },
            keep: Duration::from_hours(days * 24),
            prune_every: ms("prune_interval_ms")?,
            report_every: time("report_every")?,
            spool,
            stalled_after: time("stalled_after")?,
            stop_grace: time("stop_grace")?,
        })
    }

    /// The same with other nodes, as a command line asks for them.
    pub fn with_nodes(self, count: Option<u16>, seed: Option<u64>) -> Result<Config, String> {
        let nodes = Nodes {
            count: count.unwrap_or(self.nodes.count),
            seed: seed.or(self.nodes.seed),
            ..self.nodes
        };
        nodes.check()?;
        Ok(Config { nodes, ..self })
    }
}

impl Nodes {
    fn check(&self) -> Result<(), String> {
        let last = self.first.saturating_add(self.count.saturating_sub(1));
        if self.count == 0 || last > MAX_NODE_ID {
            let first = self.first;
            return Err(format!("nodes {first} to {last}: the last number is {MAX_NODE_ID}"));
        }
        if self.count > 1 && (self.area.is_some() || self.unit.is_some()) {
            return Err("several nodes have areas and units by their numbers".to_owned());
        }
        Ok(())
    }
}

fn nodes(section: &Section) -> Result<Nodes, settings::Error> {
    let name = |key| section.find(key)?.map(|value| value.parse()).transpose();
    let nodes = Nodes {
        plant: section.get("plant")?.parse()?,
        first: section.get("node_id")?.parse()?,
        count: section.get("nodes")?.parse()?,
        area: name("area")?,
        unit: name("unit")?,
        seed: section.find("seed")?.map(|value| value.parse()).transpose()?,
    };
    nodes.check().map_err(|why| section.refuse("nodes", why))?;
    Ok(nodes)
}

fn metrics_token(section: &Section) -> Result<Option<LiveSecret>, settings::Error> {
    let Some(value) = section.find("http.metrics_token")? else { return Ok(None) };
    let secret = value.secret();
    let sound = secret.expose().chars().count() >= MIN_METRICS_TOKEN_CHARS
        && !secret.expose().contains(|c: char| c.is_whitespace() || c.is_control());
    if !sound {
        let why = "expected 16 characters or more, none of them white space";
        return Err(section.refuse("http.metrics_token", why));
    }
    Ok(Some(value.live_secret()))
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
    Ok(Bus::Kafka(kafka::cluster(section)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka_bus(section: &Section) -> Result<Bus, settings::Error> {
    Err(section.refuse("bus", "is kafka, which this program was built without"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        let own = [
            ("PRODUCER_DATABASE_URL", "postgres:///p?password=tulip"),
            ("SCADA_RABBITMQ_URL", "amqp://user:tulip@host:5672/scada"),
        ];
        Config::load(None, |name| {
            Some(pairs.iter().chain(&own).find(|(key, _)| *key == name)?.1.to_owned())
        })
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = load(&[]).unwrap();
        let documented = Settings::new("dispatcher");
        assert_eq!(format!("{:?}", config.outbox), format!("{documented:?}"));
        assert_eq!(config.keep, Duration::from_secs(30 * 86_400));
        assert_eq!(config.prune_every, Duration::from_secs(3_600));
        assert_eq!((config.interval, config.nodes.count), (Duration::from_secs(1), 1));
        assert!(!format!("{config:?}").contains("tulip"));
    }

    #[test]
    fn a_token_for_metrics_is_long_enough_and_hidden() {
        let key = "HOLDFAST_PRODUCER_HTTP_METRICS_TOKEN";
        let config = load(&[(key, "tulip-tulip-tulip")]).unwrap();
        assert!(config.metrics_token.is_some() && !format!("{config:?}").contains("tulip"));
        for wrong in ["tulip", "tulip tulip tulip", "tulip-tulip-tulip\u{7}"] {
            let refused = load(&[(key, wrong)]).unwrap_err().to_string();
            assert!(refused.contains("http.metrics_token") && !refused.contains("tulip"));
        }
    }

    #[test]
    fn the_documented_variables_are_read() {
        let config = load(&[
            ("OUTBOX_BATCH_SIZE", "7"),
            ("OUTBOX_POLL_INTERVAL_MS", "250"),
            ("OUTBOX_MAX_RETRIES", "3"),
            ("OUTBOX_LOCK_TIMEOUT_SECONDS", "60"),
            ("OUTBOX_RECOVERY_INTERVAL_MS", "15000"),
            ("STORAGE_RETENTION_DAYS", "5"),
            ("PRUNE_INTERVAL_MS", "60000"),
            ("NODE_ID", "12"),
        ])
        .unwrap();
        let outbox = &config.outbox;
        assert_eq!((outbox.batch, outbox.max_retries, config.nodes.first), (7, 3, 12));
        let times = [outbox.poll, outbox.recovery, outbox.lock_timeout, config.prune_every];
        assert_eq!(times.map(|time| time.as_millis()), [250, 15_000, 60_000, 60_000]);
        assert_eq!(config.keep, Duration::from_secs(5 * 86_400));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        let name = |key: &'static str, value: &'static str| vec![(key, value)];
        let many = ("HOLDFAST_PRODUCER_NODES", "100");
        for (pairs, said) in [
            (name("SCADA_RABBITMQ_URL", "tulip"), "producer.rabbitmq_url"),
            (name("NODE_ID", "1001"), "producer.node_id"),
            (name("HOLDFAST_PRODUCER_PLANT", "plant 1"), "producer.plant"),
            (vec![many, ("NODE_ID", "950")], "producer.nodes"),
            (vec![many, ("HOLDFAST_PRODUCER_UNIT", "UNIT_05")], "producer.nodes"),
            (name("OUTBOX_BATCH_SIZE", "0"), "producer.outbox.batch_size"),
        ] {
            let error = load(&pairs).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("tulip"), "{error}");
        }
        assert!(load(&[many]).unwrap().with_nodes(Some(1000), None).is_ok());
        assert!(load(&[many]).unwrap().with_nodes(Some(1001), None).is_err());
    }
}
