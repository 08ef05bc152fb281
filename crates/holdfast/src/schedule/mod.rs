//! `holdfast schedule …`: captured schedules: the worker, intake, and what became of captures.

mod alive;
mod compare;
mod replay;
mod run;
mod show;
pub(crate) mod submit;

use std::path::PathBuf;

use ::schedule::Config;
use clap::Subcommand;
use jiff::civil::Date;
use tokio_postgres::Client;

/// `holdfast schedule …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The worker: complete sessions become versions, events and messages, and messages are delivered. No port is opened; the log goes to standard output.
    #[command(after_help = "Examples:
  holdfast schedule run --config schedule.toml
  WORKER_POLL_SECONDS=1 holdfast schedule run --config schedule.toml
  holdfast schedule run --no-delivery              leave messages to a bot of yours")]
    Run(run::RunArgs),
    /// Whether the worker on this machine goes on: exits with 0 if it does, for those who watch processes.
    #[command(after_help = "Examples:
  holdfast schedule alive --config schedule.toml
  HOLDFAST_SCHEDULE_WORKER_HEARTBEAT_FILE=/tmp/alive holdfast schedule alive
It looks at worker.heartbeat_file, which the worker touches after each look for work, and asks nobody else.")]
    Alive(alive::Args),
    /// Intake: sessions and presigned uploads over HTTP.
    #[command(after_help = "Examples:
  holdfast schedule serve --config schedule.toml
  holdfast token create bot --schedule --role edge --all-tenants --config schedule.toml")]
    Serve(run::ServeArgs),
    /// Send images, or an observation as JSON, for a user.
    #[command(after_help = "Examples:
  holdfast schedule submit --user 4711 monday-1.jpg monday-2.jpg --wait
  holdfast schedule submit --user 4711 day.json --wait")]
    Submit(submit::Args),
    /// A user's days, or the versions of one day.
    #[command(after_help = "Examples:
  holdfast schedule show --user 4711
  holdfast schedule show --user 4711 --date 2026-11-16
  holdfast schedule show --user 4711 --date 2026-11-16 --json")]
    Show(show::Args),
    /// What two versions of a day differ in, in words.
    #[command(after_help = "Examples:
  holdfast schedule diff --user 4711 --date 2026-11-16             the last change
  holdfast schedule diff --user 4711 --date 2026-11-16 --from 1 --to 4
  holdfast schedule diff --user 4711 --date 2026-11-16 --language de")]
    Diff(compare::Args),
    /// Make a day or a session again, and say whether it comes to what is stored; with --apply, write what it shows now.
    #[command(after_help = "Examples:
  holdfast schedule replay --user 4711 --date 2026-11-16
  holdfast schedule replay --session 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast schedule replay --session 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --apply
Without --apply nothing is written, and it exits with 1 when something is not the same.")]
    Replay(replay::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration; its [schedule] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(self.config.as_deref(), crate::config::environment)?)
    }

    /// A connection to a database whose tables are up to date.
    async fn connect(&self) -> anyhow::Result<Client> {
        let config = self.load()?;
        ::schedule::migration::migrate(&config.database).await?;
        Ok(pg::connect(&config.database).await?)
    }
}

/// A user's day.
#[derive(Debug, clap::Args)]
pub(crate) struct DayArg {
    /// The user.
    #[arg(long, allow_negative_numbers = true)]
    user: i64,
    /// The day, like 2026-11-16.
    #[arg(long)]
    date: Date,
}

/// Runs a `schedule` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => Box::pin(run::run(args)).await,
        Command::Alive(args) => alive::run(&args),
        Command::Serve(args) => Box::pin(run::serve(args)).await,
        Command::Submit(args) => Box::pin(submit::run(args)).await,
        Command::Show(args) => show::run(args).await,
        Command::Diff(args) => compare::run(args).await,
        Command::Replay(args) => Box::pin(replay::run(args)).await,
    }
}
