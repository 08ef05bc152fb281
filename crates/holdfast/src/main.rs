//! `holdfast`: every role and every operator's command in one binary.
//!
//! This crate only puts the others together: it parses the command line, starts roles, and shows what they know. It holds no
//! domain rule and no SQL. A command that fails prints one error with its causes and what to do, and exits with 1; a
//! command line that cannot be parsed exits with 2.

mod cloud;
mod config;
mod edge;
mod link;
mod outbox;
mod output;
mod shutdown;
mod sim;
mod table;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Carries every reading from a field node to a central store, and can account for each one.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  holdfast up                                   run everything here, with simulated barns
  holdfast link cut barn-1                      pull the plug of one of them
  holdfast edge run --config edge.toml          the site's ingress, against your own Postgres and broker
  holdfast edge nodes                           which nodes are there, and how they are doing")]
struct Cli {
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text", env = "HOLDFAST_LOG_FORMAT")]
    log: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole product on this machine: Postgres, broker, edge, simulated nodes.
    Up(up::Args),
    /// Cut or restore the link of a node that `up` runs.
    Link(link::Args),
    /// The site: take in what nodes send, know the nodes.
    #[command(subcommand)]
    Edge(edge::Command),
    /// The cloud: take in what edges send.
    #[command(subcommand)]
    Cloud(cloud::Command),
    /// What waits at a site for the cloud: look, redrive dead letters, free stuck rows.
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// Who may use the API of the cloud, or of a site.
    #[command(subcommand)]
    Token(cloud::TokenCommand),
    /// Check a configuration file, or list every key.
    #[command(subcommand)]
    Config(config::Command),
    /// Simulated devices, for trying things out.
    #[command(subcommand)]
    Sim(sim::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.log);
    // Several TLS users are linked in; the first choice of a provider holds for all of them.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // With the log on standard error already there is nowhere else to say it.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => Box::pin(up::run(args)).await,
        Command::Link(args) => link::run(args).await,
        Command::Edge(command) => Box::pin(edge::run(command)).await,
        Command::Cloud(command) => Box::pin(cloud::run(command)).await,
        Command::Token(command) => Box::pin(cloud::run_token(command)).await,
        Command::Outbox(command) => Box::pin(outbox::run(command)).await,
        Command::Config(command) => config::run(command),
        Command::Sim(command) => sim::run(command).await,
    }
}

/// Logs go to standard error, so that what a command prints can be piped.
fn start_log(format: LogFormat) {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new("info,refinery_core=warn,tokio_postgres=warn")
    });
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
