//! The cloud of `up`: its database, its configuration, and the token by which the site's forwarder gets in.

use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use cloud::tokens::{NewToken, Role as TokenRole, Tenants};
use rig::{Postgres, RabbitMq};
use serde::{Deserialize, Serialize};

use super::children::Role;
use super::site::{Site, write_private};

pub(super) const DATABASE: &str = "cloud";
/// The virtual host that a new RabbitMQ has.
const VHOST: &str = "/";

/// What carries events: from the cloud's ingestion to its stores, and from the plant's nodes to the historian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bus {
    /// The memory of one process.
    Inline,
    /// A private RabbitMQ.
    Rabbitmq,
    /// A private Apache Kafka.
    #[cfg(feature = "kafka")]
    Kafka,
}

/// The private broker of a run, if there is one.
#[derive(Debug)]
pub(super) enum Broker {
    None,
    Rabbitmq(Box<RabbitMq>),
    #[cfg(feature = "kafka")]
    Kafka(Box<rig::Kafka>),
}

impl Broker {
    /// Starts the broker of this bus on its own data.
    async fn start(bus: Bus, folder: &Path) -> anyhow::Result<Broker> {
        Ok(match bus {
            Bus::Inline => Broker::None,
            Bus::Rabbitmq => {
                super::say("starting RabbitMQ");
                let started = RabbitMq::start(&folder.join("rabbitmq")).await?;
                Broker::Rabbitmq(Box::new(started))
            }
            #[cfg(feature = "kafka")]
            Bus::Kafka => {
                super::say("starting Kafka");
                let options = rig::KafkaOptions::default();
                let started = rig::Kafka::start(&folder.join("kafka"), options).await?;
                Broker::Kafka(Box::new(started))
            }
        })
    }

    /// What a role's section says about it.
    pub(super) fn keys(&self) -> String {
        match self {
            Broker::None => "bus = \"inline\"\n".to_owned(),
            Broker::Rabbitmq(broker) => {
                format!("bus = \"rabbitmq\"\nrabbitmq_url = {:?}\n", broker.url(VHOST))
            }
            #[cfg(feature = "kafka")]
            Broker::Kafka(kafka) => {
                format!("bus = \"kafka\"\nkafka.brokers = {:?}\n", kafka.servers())
            }
        }
    }

    /// Ends it; what it holds is there at the next start.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        match self {
            Broker::None => {}
            Broker::Rabbitmq(broker) => broker.stop().await?,
            #[cfg(feature = "kafka")]
            Broker::Kafka(kafka) => kafka.stop().await?,
        }
        Ok(())
    }
}

impl Bus {
    fn name(self) -> &'static str {
        match self {
            Bus::Inline => "inline",
            Bus::Rabbitmq => "rabbitmq",
            #[cfg(feature = "kafka")]
            Bus::Kafka => "kafka",
        }
    }
}

/// What is chosen once for the cloud of a data folder, and the bus that was used last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Minted {
    http_port: u16,
    /// Where the site's cable to the cloud begins.
    pub(super) link_port: u16,
    pub(super) token: String,
    bus: Bus,
}

impl Site {
    /// Makes the database, its tables and the site's token; chooses the bus. Without `asked` it is the bus of the last time.
    pub(super) async fn prepare_cloud(
        &self,
        postgres: &Postgres,
        asked: Option<Bus>,
    ) -> anyhow::Result<(cloud::Config, Broker)> {
        self.make_database(postgres, DATABASE).await?;
        let url = postgres.url(DATABASE);
        let database = pg::Options::new(url.clone());
        cloud::migrate(&database).await?;
        let mut minted = match self.minted_cloud()? {
            Some(minted) => minted,
            None => Minted {
                http_port: rig::free_port()?,
                link_port: rig::free_port()?,
                token: self.make_token(&database).await?,
                bus: asked.unwrap_or(Bus::Inline),
            },
        };
        let bus = asked.unwrap_or(minted.bus);
        if bus != minted.bus && minted.bus != Bus::Inline {
            let last = minted.bus.name();
            super::say(&format!(
                "what still waits in {last} stays there until the next --bus {last}"
            ));
        }
        minted.bus = bus;
        self.remember_cloud(&minted)?;
        let broker = Broker::start(bus, self.folder()).await?;
        let mut text = format!(
            "[cloud]\ndatabase.url = {url:?}\nhttp.listen = \"127.0.0.1:{}\"\n{}",
            minted.http_port,
            broker.keys(),
        );
        #[cfg(feature = "kafka")]
        if matches!(broker, Broker::Kafka(_)) {
            text += "kafka.replication = 1\n";
        }
        let file = self.cloud_config();
        write_private(&file, &text)?;
        let config = cloud::Config::load(Some(&file), |_| None)
            .with_context(|| format!("{} cannot be used", file.display()))?;
        Ok((config, broker))
    }

    async fn make_token(&self, database: &pg::Options) -> anyhow::Result<String> {
        let new = NewToken {
            name: "the site of up".to_owned(),
            role: TokenRole::Edge,
            tenants: Tenants::Only(vec![self.tenant()?]),
            expires_at: None,
        };
        let client = pg::connect(database).await?;
        let (_, secret) = cloud::tokens::create(&client, &new).await?;
        Ok(secret.expose().to_owned())
    }

    /// Where the site's cable to the cloud begins.
    pub(super) fn uplink_port(&self) -> anyhow::Result<u16> {
        Ok(self.minted_cloud()?.context("the cloud is not prepared")?.link_port)
    }

    pub(super) fn cloud_config(&self) -> std::path::PathBuf {
        self.folder().join("cloud/cloud.toml")
    }

    pub(super) fn cloud_role(&self) -> anyhow::Result<Role> {
        let config = self.cloud_config();
        Ok(Role {
            name: "cloud".to_owned(),
            program: std::env::current_exe()?,
            arguments: vec!["cloud".into(), "run".into(), "--config".into(), config.clone().into()],
            log: self.folder().join("cloud/log"),
            pid_file: self.folder().join("cloud/pid"),
            mark: config,
        })
    }
}
