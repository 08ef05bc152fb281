//! `holdfast console …`: the operator's page.

use std::path::PathBuf;

use ::console::Config;
use clap::Subcommand;

/// `holdfast console …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the operator's page and its API. It asks sites, cloud and historian over HTTP, and changes no database.
    #[command(after_help = "Examples:
  holdfast console run --config console.toml
  holdfast token create shift-operator --role operator --all-tenants     a token to sign in with
  holdfast token create screen --role viewer --tenant 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002")]
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The configuration; its [console] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

/// Runs a `console` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    let Command::Run(args) = command;
    let config = Config::load(args.config.as_deref(), crate::config::environment)?;
    let stop = crate::shutdown::requested()?;
    Ok(::console::run(config, stop).await?)
}
