//! `holdfast`: every role and every operator's command in one binary.
//!
//! This crate only puts the others together: it parses the command line, starts roles, and shows what they know. It holds no
//! domain rule and no SQL. A command that fails prints one error with its causes and what to do, and exits with 1; a
//! command line that cannot be parsed exits with 2.

mod backup;
mod bus;
mod cloud;
mod config;
mod console;
mod dlq;
mod doctor;
mod edge;
mod given_up;
mod link;
mod log;
mod manual;
mod media;
mod otlp;
mod outbox;
mod output;
mod relay;
mod scada;
mod schedule;
mod shutdown;
mod sim;
mod size;
mod status;
mod table;
mod up;
mod user;
mod verify;
mod where_is;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Carries every reading from a field node to a central store, and can account for each one.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  holdfast up                                   run everything here, with simulated barns
  holdfast status                               the whole of it on one screen
  holdfast link cut barn-1                      pull the plug of one of them
  holdfast edge run --config edge.toml          the site's ingress, against your own Postgres and broker
  holdfast edge nodes                           which nodes are there, and how they are doing")]
struct Cli {
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text", env = "HOLDFAST_LOG_FORMAT")]
    log: log::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole product on this machine: Postgres, broker, edge, simulated nodes.
    Up(up::Args),
    /// The whole system on one screen, and what of it needs a person. Exits with 1 when something does.
    Status(status::Args),
    /// Check an installation: what is wrong, and what to do. Exits with 1 when something cannot work.
    Doctor(doctor::Args),
    /// Cut or restore the link of a node that `up` runs.
    Link(link::Args),
    /// The site: take in what nodes send, know the nodes.
    #[command(subcommand)]
    Edge(edge::Command),
    /// The cloud: take in what edges send, relay and store it.
    #[command(subcommand)]
    Cloud(cloud::Command),
    /// What waits at a site for the cloud: look, redrive dead letters or give them up, free stuck rows.
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// Who may use the API of the cloud, or of a site.
    #[command(subcommand)]
    Token(cloud::TokenCommand),
    /// The exchanges and queues on RabbitMQ.
    #[command(subcommand)]
    Bus(bus::Command),
    /// Events that the cloud's relay gave up: look at them, publish them again.
    #[command(subcommand)]
    Relay(relay::Command),
    /// Messages that a consumer gave up: look at them, send them back.
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Images in the cloud: copies that failed.
    #[command(subcommand)]
    Media(media::Command),
    /// Back up a database, check, restore and rehearse.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Compare what node, edge and cloud have, and bring back what is missing.
    Verify(verify::Args),
    /// Where an event has been.
    Where(where_is::Args),
    /// The plant: the central store of its events, and its alarms.
    #[command(subcommand)]
    Scada(scada::Command),
    /// Captured schedules: the worker, intake, and what became of captures.
    #[command(subcommand)]
    Schedule(schedule::Command),
    /// The operator's page: one picture of sites, cloud and plant.
    #[command(subcommand)]
    Console(console::Command),
    /// Check a configuration file, or list every key.
    #[command(subcommand)]
    Config(config::Command),
    /// What disks and memory a site needs, with the arithmetic.
    Size(size::Args),
    /// Simulated devices, for trying things out.
    #[command(subcommand)]
    Sim(sim::Command),
    /// What a shell needs to complete commands.
    Completions(manual::CompletionsArgs),
    /// The manual: man pages, or Markdown pages of the commands and of the HTTP APIs.
    Manual(manual::ManualArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Several TLS users are linked in; the first choice of a provider holds for all of them.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let to = match &cli.command {
        // Its contract, docs/spec/schedule.md, wants it there.
        Command::Schedule(schedule::Command::Run(_)) => log::To::Output,
        _ => log::To::Errors,
    };
    let spans = log::start(cli.log, to);
    let done = run(cli.command);
    spans.flush();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // With the log on standard error already there is nowhere else to say it.
            let _ = writeln!(std::io::stderr(), "error: {}", output::told(&error));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => Box::pin(up::run(args)).await,
        Command::Status(args) => Box::pin(status::run(args)).await,
        Command::Doctor(args) => Box::pin(doctor::run(args)).await,
        Command::Link(args) => link::run(args).await,
        Command::Edge(command) => Box::pin(edge::run(command)).await,
        Command::Cloud(command) => Box::pin(cloud::run(command)).await,
        Command::Token(command) => Box::pin(cloud::run_token(command)).await,
        Command::Outbox(command) => Box::pin(outbox::run(command)).await,
        Command::Bus(command) => Box::pin(bus::run(command)).await,
        Command::Relay(command) => Box::pin(relay::run(command)).await,
        Command::Dlq(command) => Box::pin(dlq::run(command)).await,
        Command::Media(command) => media::run(command).await,
        Command::Backup(command) => Box::pin(backup::run(command)).await,
        Command::Verify(args) => Box::pin(verify::run(args)).await,
        Command::Where(args) => Box::pin(where_is::run(args)).await,
        Command::Scada(command) => Box::pin(scada::run(command)).await,
        Command::Schedule(command) => Box::pin(schedule::run(command)).await,
        Command::Console(command) => Box::pin(console::run(command)).await,
        Command::Config(command) => config::run(command),
        Command::Size(args) => size::run(args),
        Command::Sim(command) => sim::run(command).await,
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Manual(args) => manual::run(&args, Cli::command()),
    }
}
