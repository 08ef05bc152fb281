//! `holdfast scada …`: the plant's side of things.

mod alarms;
mod historian;

use clap::Subcommand;

/// `holdfast scada …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The central store: every event of every node, its alarms, and what can be asked of them.
    #[command(subcommand)]
    Historian(historian::Command),
    /// Alarms at the historian: look, acknowledge, shelve.
    #[command(subcommand)]
    Alarms(alarms::Command),
}

/// Runs a `scada` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Historian(command) => Box::pin(historian::run(command)).await,
        Command::Alarms(command) => Box::pin(alarms::run(command)).await,
    }
}
