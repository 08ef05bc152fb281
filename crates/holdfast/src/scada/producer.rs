//! `holdfast scada producer …`: run a node, and see how it stands.

use std::fmt::Write as _;
use std::path::PathBuf;

use ::scada::audit::Actor;
use ::scada::inputs::Mapping;
use ::scada::outbox::{MAX_REDRIVEN, redrive};
use ::scada::producer::{Config, Producer, Status, status};
use clap::Subcommand;
use event::id::EventId;

use crate::output::say;
use crate::table;

/// `holdfast scada producer …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node: sample, write to its Postgres, publish from there. Migrates the database when it is there.
    ///
    /// While Postgres is away, cycles go to a spool on disk and from there to the outbox. While the bus is away, the outbox fills.
    #[command(after_help = "Examples:
  holdfast scada producer run --config node.toml
  NODE_ID=12 PRODUCER_DATABASE_URL=postgres:///node SCADA_RABBITMQ_URL=amqp://… holdfast scada producer run
  HOLDFAST_PRODUCER_BUS=kafka SCADA_KAFKA_BROKERS=kafka-1:9092 holdfast scada producer run --config node.toml
  holdfast scada producer run --config node.toml --nodes 100 --seed 7    a hundred simulated nodes, the same every time
  holdfast scada producer run --config node.toml --inputs inputs.toml    devices; `holdfast scada inputs check` shows them")]
    Run(RunArgs),
    /// How a node stands: its outbox, its spool, and what is worth a warning. Exits with 1 when something is critical.
    #[command(after_help = "Examples:
  holdfast scada producer status --config node.toml
  holdfast scada producer status --json | jq .outbox.pendingCount")]
    Status(StatusArgs),
    /// Send events again that were given up (FAILED), when what was wrong with them is mended. The oldest first, 10,000 at a time. Recorded in
    /// operator_audit.
    #[command(after_help = "Examples:
  holdfast scada producer redrive --all --config node.toml
  holdfast scada producer redrive --id 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01")]
    Redrive(RedriveArgs),
}

#[derive(Debug, clap::Args)]
struct ConfigArg {
    /// The configuration; its producer section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(self.config.as_deref(), crate::config::environment)?)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// How many nodes to simulate, instead of producer.nodes.
    #[arg(long)]
    nodes: Option<u16>,
    /// What repeats a run, instead of producer.seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Read the devices of this mapping instead of simulating, instead of producer.inputs_file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "seed"])]
    inputs: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct RedriveArgs {
    /// This event; once for each.
    #[arg(long, group = "which")]
    id: Vec<EventId>,
    /// Every event that was given up.
    #[arg(long, group = "which")]
    all: bool,
    /// JSON: the events' ids.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// Runs a `producer` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => {
            let config = args.config.load()?.with_nodes(args.nodes, args.seed);
            let mut config = config.map_err(|why| anyhow::anyhow!("--nodes: {why}"))?;
            if let Some(file) = &args.inputs {
                config.inputs = Some(Mapping::load(file)?);
            }
            let mut stop = std::pin::pin!(crate::shutdown::requested()?);
            let producer = tokio::select! {
                producer = Producer::start(config) => producer?,
                () = &mut stop => return Ok(()),
            };
            stop.await;
            producer.stop().await;
            Ok(())
        }
        Command::Redrive(args) => send_again(args).await,
        Command::Status(args) => {
            let told = status(&args.config.load()?).await?;
            match args.json {
                true => say(&format!("{}\n", serde_json::to_string_pretty(&told)?))?,
                false => say(&shown(&told))?,
            }
            anyhow::ensure!(!told.is_critical(), "the node needs somebody now: see the warnings");
            Ok(())
        }
    }
}

async fn send_again(args: RedriveArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    ::scada::migrate_producer(&config.database).await?;
    let mut client = pg::connect(&config.database).await?;
    let actor = Actor::User(crate::user::this_user());
    // The command line has one or the other; none named means all.
    let ids: Vec<_> = args.id.iter().map(|id| id.uuid()).collect();
    let redriven = redrive(&mut client, &actor, &ids).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&redriven)?));
    }
    let many = i64::try_from(redriven.len()).unwrap_or(i64::MAX);
    say(&format!("{} events go again.\n", table::grouped(many)))?;
    if many >= MAX_REDRIVEN {
        say("There may be more: run it again.\n")?;
    }
    Ok(())
}

fn shown(told: &Status) -> String {
    let mut text = String::new();
    let count = |number: u64| table::grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let age = |ms: u64| table::span(i64::try_from(ms / 1_000).unwrap_or(i64::MAX));
    if let Some(outbox) = &told.outbox {
        let headings = ["pending", "in progress", "failed", "sent", "oldest pending"];
        let mut rows = table::new(&headings, &[0, 1, 2, 3]);
        rows.add_row([
            count(outbox.pending_count),
            count(outbox.in_progress_count),
            count(outbox.failed_count),
            count(outbox.sent_count),
            if outbox.pending_count == 0 {
                "-".to_owned()
            } else {
                age(outbox.oldest_pending_age_ms)
            },
        ]);
        let _ = writeln!(text, "{rows}\n");
    }
    if let Some(problem) = &told.database_problem {
        let _ = writeln!(text, "The outbox cannot be asked: {problem}");
    }
    match &told.spool {
        Some(spool) if spool.cycles > 0 => {
            let _ = writeln!(
                text,
                "{} cycles wait in the spool ({} bytes); they go to the outbox when Postgres takes them.",
                count(spool.cycles),
                count(spool.bytes)
            );
        }
        Some(_) => text.push_str("The spool is empty.\n"),
        None => text.push_str("There is no spool yet.\n"),
    }
    if let Some(cycles) = told.given_up_cycles.filter(|cycles| *cycles > 0) {
        let _ =
            writeln!(text, "{} cycles were given up by the spool: see spool_gaps.", count(cycles));
    }
    for warning in &told.warnings {
        let _ = writeln!(text, "{}: {}: {}", warning.level.as_str(), warning.metric, warning.words);
    }
    text
}
