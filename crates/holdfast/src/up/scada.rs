//! SCADA in `up`: a few simulated Level 2 nodes with their outbox, and the historian that keeps what they publish.
//!
//! On the inline bus they are one process; with a broker they are two, as in a plant.

use anyhow::Context;
use rig::{Postgres, Process};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::children::Role;
use super::cloud::Broker;
use super::site::{Site, write_private};

const NODE_DATABASE: &str = "scada_node";
const HISTORIAN_DATABASE: &str = "scada_historian";
/// The processes there may be.
const LINE: &str = "line";
const HISTORIAN: &str = "historian";
const PRODUCER: &str = "producer";
/// How many nodes the plant has.
pub(super) const NODES: u16 = 3;

/// What is chosen once for the plant of a data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Minted {
    producer_port: u16,
    historian_port: u16,
    /// What repeats the run: the same plant behaves the same at every start.
    seed: u32,
}

/// The plant's nodes and historian, prepared.
#[derive(Debug)]
pub(super) struct Plant {
    pub(super) producer: ::scada::producer::Config,
    pub(super) historian: ::scada::historian::Config,
    /// Whether nodes and historian are one process.
    together: bool,
}

impl Site {
    /// Makes the databases with their tables, and the configuration for this run.
    pub(super) async fn prepare_scada(
        &self,
        postgres: &Postgres,
        broker: &Broker,
    ) -> anyhow::Result<Plant> {
        for database in [NODE_DATABASE, HISTORIAN_DATABASE] {
            self.make_database(postgres, database).await?;
        }
        // Those of the last time may have been others, on another bus.
        for name in [LINE, HISTORIAN, PRODUCER] {
            let config = self.scada_config();
            Process::end_orphan(&self.scada_pid_file(name), config.as_os_str()).await?;
        }
        let minted = match self.minted_scada()? {
            Some(minted) => minted,
            None => {
                let (producer_port, historian_port) = (rig::free_port()?, rig::free_port()?);
                let minted = Minted { producer_port, historian_port, seed: rand::random() };
                self.remember_scada(&minted)?;
                minted
            }
        };
        #[cfg(feature = "kafka")]
        if let Broker::Kafka(kafka) = broker {
            let cluster = bus::kafka::Cluster::parse(&kafka.servers())?;
            let wanted = ::scada::kafka::topics(event::names::kafka::Profile::Dev);
            bus::kafka::admin::apply(&cluster, &wanted).await?;
        }
        let carried = broker.keys();
        let text = format!(
            "[producer]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\nspool.dir = {:?}\n\
             nodes = {NODES}\nseed = {}\n{carried}\n\
             [historian]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\n{carried}",
            postgres.url(NODE_DATABASE),
            minted.producer_port,
            self.folder().join("scada/spool"),
            minted.seed,
            postgres.url(HISTORIAN_DATABASE),
            minted.historian_port,
        );
        let file = self.scada_config();
        write_private(&file, &text)?;
        let refused = || format!("{} cannot be used", file.display());
        let none = |_: &str| None;
        let producer = ::scada::producer::Config::load(Some(&file), none).with_context(refused)?;
        let historian =
            ::scada::historian::Config::load(Some(&file), none).with_context(refused)?;
        ::scada::migrate_producer(&producer.database).await?;
        ::scada::migrate_historian(&historian.database).await?;
        let together = matches!(broker, Broker::None);
        Ok(Plant { producer, historian, together })
    }

    pub(super) fn scada_config(&self) -> std::path::PathBuf {
        self.folder().join("scada/scada.toml")
    }

    fn scada_pid_file(&self, name: &str) -> std::path::PathBuf {
        self.folder().join(format!("scada/{name}.pid"))
    }

    /// The processes of the plant, the historian before the nodes.
    pub(super) fn scada_roles(&self, plant: &Plant) -> anyhow::Result<Vec<Role>> {
        let role = |name: &str, words: &[&str]| {
            let config = self.scada_config();
            let mut arguments: Vec<std::ffi::OsString> = vec!["scada".into()];
            arguments.extend(words.iter().map(Into::into));
            arguments.extend(["--config".into(), config.clone().into()]);
            anyhow::Ok(Role {
                name: format!("scada {name}"),
                program: std::env::current_exe()?,
                arguments,
                log: self.folder().join(format!("scada/{name}.log")),
                pid_file: self.scada_pid_file(name),
                mark: config,
            })
        };
        Ok(match plant.together {
            true => vec![role(LINE, &["line"])?],
            false => {
                vec![role(HISTORIAN, &["historian", "run"])?, role(PRODUCER, &["producer", "run"])?]
            }
        })
    }
}

/// How the plant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) telemetry: i64,
    pub(super) events: i64,
    pub(super) alarms: i64,
}

/// What the historian has.
pub(super) async fn stored(historian: &Client) -> Result<Stored, tokio_postgres::Error> {
    let query = "SELECT (SELECT count(*) FROM telemetry), (SELECT count(*) FROM events), (SELECT count(*) FROM alarms)";
    let row = historian.query_one(query, &[]).await?;
    Ok(Stored { telemetry: row.get(0), events: row.get(1), alarms: row.get(2) })
}

/// What waits in the nodes' outbox.
pub(super) async fn waiting(node: &Client) -> Result<i64, tokio_postgres::Error> {
    let query = "SELECT count(*) FROM outbox_events WHERE NOT finished";
    Ok(node.query_one(query, &[]).await?.get(0))
}
