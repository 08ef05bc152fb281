//! `holdfast scada historian …`: run it, and have it read again.

use std::path::{Path, PathBuf};

use ::scada::historian::audit::Actor;
use ::scada::historian::offsets::{Back, set_back};
use ::scada::historian::{Config, Historian};
use anyhow::ensure;
use clap::Subcommand;
use event::names::kafka::Topic;
use jiff::Timestamp;

use crate::output::say;
use crate::table;

/// `holdfast scada historian …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a historian: store what comes by the bus, follow alarms, answer. Migrates the database at start.
    #[command(after_help = "Examples:
  holdfast scada historian run --config historian.toml
  HISTORIAN_DATABASE_URL=postgres:///historian SCADA_RABBITMQ_URL=amqp://… holdfast scada historian run")]
    Run(ConfigArg),
    /// Set stored offsets back, so that what follows is read again. What is stored already stays as it is.
    ///
    /// It is refused while a historian of the group runs: its next batch would undo it. Stop all of them before, and start them again
    /// afterwards. RabbitMQ keeps no history; there is nothing to read again there.
    #[command(after_help = "Examples:
  holdfast scada historian replay --topic scada.l2.alarms --from 2026-02-01T00:00:00Z
  holdfast scada historian replay --topic scada.l2.events --offset 0")]
    Replay(ReplayArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration; its historian section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("back").required(true))]
pub(crate) struct ReplayArgs {
    /// The topic, such as scada.l2.alarms.
    #[arg(long)]
    topic: String,
    /// From the day of this time; a time, or 2h for two hours ago.
    #[arg(long, group = "back", value_parser = crate::outbox::moment)]
    from: Option<Timestamp>,
    /// From this offset, in every partition that is beyond it.
    #[arg(long, group = "back", value_parser = clap::value_parser!(i64).range(0..))]
    offset: Option<i64>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// Runs a `historian` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => {
            let config = load(&args)?;
            let mut stop = std::pin::pin!(crate::shutdown::requested()?);
            let historian = tokio::select! {
                historian = Historian::start(config) => historian?,
                () = &mut stop => return Ok(()),
            };
            stop.await;
            historian.stop().await;
            Ok(())
        }
        Command::Replay(args) => replay(args).await,
    }
}

pub(super) fn load(args: &ConfigArg) -> anyhow::Result<Config> {
    config(args.config.as_deref())
}

/// The historian's configuration. On Kafka the section scada_admin, where it names brokers, says who reads dead letters and sends them back.
pub(crate) fn config(file: Option<&Path>) -> anyhow::Result<Config> {
    #[cfg_attr(not(feature = "kafka"), expect(unused_mut, reason = "only Kafka has an operator"))]
    let mut config = Config::load(file, crate::config::environment)?;
    #[cfg(feature = "kafka")]
    if let ::scada::historian::config::Bus::Kafka(kafka) = &mut config.bus {
        kafka.operator = super::admin_cluster(file)?;
    }
    Ok(config)
}

async fn replay(args: ReplayArgs) -> anyhow::Result<()> {
    let names = Topic::ALL.map(Topic::name).join(", ");
    ensure!(Topic::from_name(&args.topic).is_some(), "there is no topic {}: {names}", args.topic);
    let back = match (args.offset, args.from) {
        (Some(offset), _) => Back::Offset(offset),
        (None, Some(from)) => Back::Time(from),
        (None, None) => anyhow::bail!("say --from or --offset"),
    };
    let config = load(&args.config)?;
    ::scada::migrate_historian(&config.database).await?;
    let mut client = pg::connect(&config.database).await?;
    let actor = Actor::User(crate::user::this_user());
    let done = set_back(&mut client, &actor, &config.group, &args.topic, back).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&done)?));
    }
    if done.is_empty() {
        return say("No partition is beyond that; nothing was changed.\n");
    }
    let mut rows = table::new(&["topic", "partition", "was at", "goes on at"], &[1, 2, 3]);
    for one in &done {
        rows.add_row([
            one.topic.clone(),
            one.partition.to_string(),
            table::grouped(one.from_offset),
            table::grouped(one.to_offset),
        ]);
    }
    say(&format!("{rows}\nStart the historian again for it to read them.\n"))
}
