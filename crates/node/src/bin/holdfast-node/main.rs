//! `holdfast-node`: the field node and the commands around it.

mod carry;
mod config;
mod files;
mod manual;
mod screen;
mod show;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use node::Config;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Keeps every sample on disk and forwards it to the edge until the edge has it.
#[derive(Parser)]
#[command(
    name = "holdfast-node",
    version,
    after_help = "Examples:\n  \
        holdfast-node config check --config /etc/holdfast/holdfast.toml\n  \
        holdfast-node run --config /etc/holdfast/holdfast.toml\n  \
        holdfast-node status\n  \
        echo '{\"metric_type\":\"temperature\",\"metric_value\":21.5,\"unit\":\"C\"}' | socat - UNIX:/run/holdfast/sampler.sock"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone)]
struct ConfigArg {
    /// The configuration file; its section [node] is read. Every key can also be set by environment.
    #[arg(long, env = "HOLDFAST_CONFIG", global = true)]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the node until SIGTERM or Ctrl-C.
    #[command(
        after_help = "Example:\n  holdfast-node run --config /etc/holdfast/holdfast.toml --log json"
    )]
    Run {
        #[command(flatten)]
        config: ConfigArg,
        /// How the log looks. What is in it: HOLDFAST_LOG, like "info" or "node=debug".
        #[arg(long, value_enum, default_value = "human")]
        log: LogForm,
    },
    /// Show how the node is, on one screen. Looks at the spool itself if no node answers (exit code 2).
    #[command(
        after_help = "Examples:\n  holdfast-node status\n  holdfast-node status --json | jq .backlog"
    )]
    Status {
        #[command(flatten)]
        config: ConfigArg,
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Look at, check and carry the spool. Nothing here writes to a spool.
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Check and explain the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// What a shell needs to complete commands.
    #[command(after_help = "Examples:\n  \
        holdfast-node completions bash > /etc/bash_completion.d/holdfast-node\n  \
        holdfast-node completions zsh > ~/.zfunc/_holdfast-node")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write a man page for every command.
    #[command(after_help = "Example:\n  holdfast-node manual --out /usr/local/share/man/man1")]
    Manual {
        /// The folder; it is made if it is not there.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Subcommand)]
enum SpoolCommand {
    /// Show segments, watermarks and gaps. Read-only; the node may be running.
    #[command(after_help = "Example:\n  holdfast-node spool inspect --dir /media/card/spool")]
    Inspect {
        #[command(flatten)]
        place: show::Place,
    },
    /// Read every frame of every segment and report damage (exit code 1 if there is any). Read-only.
    #[command(after_help = "Example:\n  holdfast-node spool verify --dir /media/card/spool")]
    Verify {
        #[command(flatten)]
        place: show::Place,
    },
    /// Write records to a file that a person can carry. Reads the spool only.
    #[command(after_help = "Examples:\n  \
        holdfast-node spool export --out barn-7.jsonl.zst\n  \
        holdfast-node spool export --dir /media/card/spool --node-id barn-7 --from 1000 --out part.jsonl")]
    Export(carry::ExportArgs),
    /// Feed an exported file to the edge over HTTP. Writes to the edge; safe to repeat.
    #[command(after_help = "Example:\n  \
        holdfast-node spool import barn-7.jsonl.zst --edge https://edge.example:8443 --secret-file barn-7.secret")]
    Import(carry::ImportArgs),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print every effective value and where it came from; refuse what cannot work.
    #[command(
        after_help = "Example:\n  HOLDFAST_NODE_MQTT_KEEPALIVE=20s holdfast-node config check"
    )]
    Check {
        #[command(flatten)]
        config: ConfigArg,
        /// As JSON, for programs: a list of keys with value and origin.
        #[arg(long)]
        json: bool,
    },
    /// Print every key with its default, environment name and meaning, as Markdown.
    #[command(after_help = "Example:\n  holdfast-node config reference | grep spool")]
    Reference,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogForm {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            screen::complain(&screen::causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Run { config, log } => {
            start_log(log);
            let (config, _) = config::load(config.config.as_deref())?;
            serve(config)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status { config, json } => show::status(config.config.as_deref(), json),
        Command::Spool(SpoolCommand::Inspect { place }) => show::inspect(&place, false),
        Command::Spool(SpoolCommand::Verify { place }) => show::inspect(&place, true),
        Command::Spool(SpoolCommand::Export(args)) => carry::export(&args),
        Command::Spool(SpoolCommand::Import(args)) => carry::import(&args),
        Command::Config(ConfigCommand::Check { config, json }) => {
            config::check(config.config.as_deref(), json)
        }
        Command::Config(ConfigCommand::Reference) => {
            screen::say(&settings::reference(node::SECTION, node::KEYS))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => manual::completions(shell, Cli::command()),
        Command::Manual { out } => manual::pages(&out, Cli::command()),
    }
}

fn serve(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        node::serve(config, stop).await.context("the node cannot run")
    })
}

fn start_log(form: LogForm) {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match form {
        LogForm::Human => log.with_target(false).with_ansi(terminal).init(),
        LogForm::Json => log.json().flatten_event(true).init(),
    }
}
