//! `holdfast scada …`: the plant's side of things.

#[cfg(feature = "kafka")]
mod access;
mod alarms;
mod certs;
mod historian;
mod inputs;
mod line;
mod producer;
#[cfg(feature = "kafka")]
mod topics;
mod verify;
pub(crate) mod whereabouts;

use clap::Subcommand;

pub(crate) use historian::config as historian_config;
#[cfg(feature = "kafka")]
pub(crate) use topics::{KEYS as ADMIN_KEYS, SECTION as ADMIN_SECTION, admin_cluster};

/// `holdfast scada …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The central store: every event of every node, its alarms, and what can be asked of them.
    #[command(subcommand)]
    Historian(historian::Command),
    /// A Level 2 node: sample, keep, publish.
    #[command(subcommand)]
    Producer(producer::Command),
    /// Nodes and the historian in one process, without a broker.
    #[command(after_help = "Examples:
  holdfast scada line --config scada.toml     with a [producer] and a [historian] section
  holdfast config check --config scada.toml   whether it can work, first")]
    Line(line::Args),
    /// Whether the historian has what a node has sent: count and hash by the hour, and the ids that are missing. Exits with 1 when there are any.
    Verify(verify::Args),
    /// Alarms at the historian: look, acknowledge, shelve.
    #[command(subcommand)]
    Alarms(alarms::Command),
    /// Kafka's topics as SCADA wants them.
    #[cfg(feature = "kafka")]
    #[command(subcommand)]
    Topics(topics::Command),
    /// Who may do what with the topics: Kafka's users and access rules, no more than each role needs.
    #[cfg(feature = "kafka")]
    #[command(subcommand)]
    Access(access::Command),
    /// Make certificates for development: an authority, and one each for the brokers, the producers, the historian and an operator.
    #[command(after_help = "Examples:
  holdfast scada certs --out certs
  holdfast scada certs --out certs --host kafka-1.plant.local --days 30")]
    Certs(certs::Args),
    /// Devices that a node reads: Modbus and OPC UA.
    #[command(subcommand)]
    Inputs(inputs::Command),
}

/// Runs a `scada` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Historian(command) => Box::pin(historian::run(command)).await,
        Command::Producer(command) => Box::pin(producer::run(command)).await,
        Command::Line(args) => Box::pin(line::run(args)).await,
        Command::Verify(args) => Box::pin(verify::run(args)).await,
        Command::Alarms(command) => Box::pin(alarms::run(command)).await,
        #[cfg(feature = "kafka")]
        Command::Topics(command) => Box::pin(topics::run(command)).await,
        #[cfg(feature = "kafka")]
        Command::Access(command) => Box::pin(access::run(command)).await,
        Command::Certs(args) => certs::run(&args),
        Command::Inputs(command) => Box::pin(inputs::run(command)).await,
    }
}
