//! `holdfast bus …`: the exchanges and queues that the cloud needs on RabbitMQ.

use std::path::PathBuf;

use anyhow::Context as _;
use bus::rabbitmq::{Address, Drift, Topology, Trouble};
use clap::Subcommand;
use serde_json::json;

use crate::output::say;
use crate::table;

/// `holdfast bus …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make every exchange, queue and binding. Doing it again changes nothing.
    #[command(after_help = "Examples:
  holdfast bus declare --config cloud.toml
  HOLDFAST_CLOUD_RABBITMQ_URL=amqp://user:password@broker/farm holdfast bus declare")]
    Declare(Args),
    /// Compare exchanges and queues with what the broker has, and change nothing. Exits with 1 when something differs.
    #[command(after_help = "Examples:
  holdfast bus check --config cloud.toml
  holdfast bus check --json | jq '.[] | select(.state != \"ok\")'")]
    Check(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    broker: BrokerArgs,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Which broker is meant.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BrokerArgs {
    /// The configuration; its [cloud] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// RabbitMQ, amqp://user:password@host:port/vhost or amqps://…, instead of cloud.rabbitmq_url. Others on this machine can
    /// read a command line: with a password, prefer the configuration.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// With --url: trust the certificates of this PEM file.
    #[arg(long, requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl BrokerArgs {
    /// The broker named on the command line.
    pub(crate) fn given(&self) -> anyhow::Result<Option<Address>> {
        let Some(url) = &self.url else { return Ok(None) };
        let address = Address::parse(url).context("--url")?;
        Ok(Some(match &self.ca_file {
            Some(file) => address.with_ca_file(file.clone()),
            None => address,
        }))
    }

    /// The broker that is meant, or what to do when none is.
    fn address(&self) -> anyhow::Result<Address> {
        if let Some(address) = self.given()? {
            return Ok(address);
        }
        let config = cloud::Config::load(self.config.as_deref(), crate::config::environment)?;
        match config.bus {
            cloud::config::Bus::RabbitMq { address, .. } => Ok(address),
            #[cfg(feature = "kafka")]
            cloud::config::Bus::Kafka(_) => anyhow::bail!(
                "cloud.bus is kafka; its topics are made when the cloud starts (cloud.bus_declare). Name RabbitMQ with --url"
            ),
            cloud::config::Bus::Inline => anyhow::bail!(
                "cloud.bus is inline, which needs no exchanges and queues; set cloud.bus = \"rabbitmq\" and \
                 cloud.rabbitmq_url, or name a broker with --url"
            ),
        }
    }
}

/// Everything the cloud's consumers need.
pub(crate) fn topology() -> anyhow::Result<Topology> {
    Ok(cloud::topology(&cloud::consume::groups())?)
}

/// Runs a `bus` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Declare(args) => declare(args).await,
        Command::Check(args) => check(args).await,
    }
}

async fn declare(args: Args) -> anyhow::Result<()> {
    let (address, topology) = (args.broker.address()?, topology()?);
    bus::rabbitmq::declare(&address, &topology).await.with_context(|| {
        format!("{address:?}; what is there with other arguments must be deleted first: holdfast bus check")
    })?;
    let rows = topology.names().into_iter().map(|(kind, name)| (kind, name, "declared".to_owned()));
    show(args.json, rows.collect())
}

async fn check(args: Args) -> anyhow::Result<()> {
    let (address, topology) = (args.broker.address()?, topology()?);
    let drifts = bus::rabbitmq::check(&address, &topology).await?;
    let rows = topology.names().into_iter().map(|(kind, name)| {
        let state = state(drifts.iter().find(|drift| drift.name == name));
        (kind, name, state)
    });
    show(args.json, rows.collect())?;
    let names: Vec<&str> = drifts.iter().map(|drift| drift.name.as_str()).collect();
    anyhow::ensure!(
        names.is_empty(),
        "{} of {} differ: {}; `holdfast bus declare` makes what is missing, what is different must be deleted first",
        names.len(),
        topology.names().len(),
        names.join(", ")
    );
    Ok(())
}

fn state(drift: Option<&Drift>) -> String {
    match drift.map(|drift| &drift.trouble) {
        None => "ok".to_owned(),
        Some(Trouble::Missing) => "missing".to_owned(),
        Some(Trouble::Different(why)) => format!("different: {why}"),
    }
}

fn show(as_json: bool, rows: Vec<(&'static str, String, String)>) -> anyhow::Result<()> {
    if as_json {
        let all: Vec<_> = rows
            .iter()
            .map(|(kind, name, state)| json!({"kind": kind, "name": name, "state": state}))
            .collect();
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut table = table::new(&["kind", "name", "state"], &[]);
    for (kind, name, state) in rows {
        table.add_row([kind.to_owned(), name, state]);
    }
    say(&format!("{table}\n"))
}
