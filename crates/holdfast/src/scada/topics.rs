//! `holdfast scada topics …`: the topics on a Kafka cluster.
//!
//! Whoever makes topics is an administrator, so the cluster and the login are those of a section of its own.

use std::path::{Path, PathBuf};

use ::scada::kafka::cluster;
use anyhow::ensure;
use bus::kafka::Cluster;
use bus::kafka::admin::{self, Difference, Drift};
use clap::{Subcommand, ValueEnum};
use event::names::kafka::Profile;
use serde_json::{Value, json};
use settings::{Key, Section, joined};

use super::access;
use crate::output::say;
use crate::table;

/// The section with the administrator's way to the cluster.
pub(crate) const SECTION: &str = "scada_admin";
/// Its keys: the cluster and our login, and the passwords that we set.
pub(crate) const KEYS: &[Key] =
    &joined::<{ ::scada::kafka::KEYS.len() + access::PASSWORDS.len() }>(&[
        ::scada::kafka::KEYS,
        access::PASSWORDS,
    ]);
const BROKERS: &str = "HOLDFAST_SCADA_ADMIN_KAFKA_BROKERS";

/// `holdfast scada topics …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare topics with what SCADA wants, and change nothing. Exits with 1 when something differs.
    #[command(after_help = "Examples:
  holdfast scada topics diff --brokers kafka-1:9092
  holdfast scada topics diff --config admin.toml --json")]
    Diff(Args),
    /// Make topics as SCADA wants them. Doing it again changes nothing. Nothing is ever deleted: what would need that is left, and named.
    #[command(after_help = "Examples:
  holdfast scada topics apply --brokers 127.0.0.1:9092 --profile dev
  holdfast scada topics apply --config admin.toml")]
    Apply(Args),
}

/// For which cluster the topics are.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// One broker on a laptop: 8 partitions, one copy.
    Dev,
    /// Three brokers or more: 200 partitions, three copies.
    Production,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For which cluster.
    #[arg(long, value_enum, default_value_t = Kind::Production)]
    profile: Kind,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    administrator: Administrator,
}

/// Where the cluster is and who we are there.
#[derive(Debug, clap::Args)]
pub(super) struct Administrator {
    /// host:port,host:port, instead of kafka.brokers of the configuration.
    #[arg(long)]
    brokers: Option<String>,
    /// The configuration; its scada_admin section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

impl Administrator {
    pub(super) fn section(&self) -> anyhow::Result<Section> {
        let env = |name: &str| match (&self.brokers, name) {
            (Some(brokers), BROKERS) => Some(brokers.clone()),
            _ => crate::config::environment(name),
        };
        Ok(Section::load(self.config.as_deref(), SECTION, KEYS, env)?)
    }
}

/// Runs a `topics` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Diff(args) => diff(&args).await,
        Command::Apply(args) => apply(&args).await,
    }
}

impl Args {
    fn cluster(&self) -> anyhow::Result<Cluster> {
        Ok(cluster(&self.administrator.section()?)?)
    }

    fn wanted(&self) -> Vec<admin::TopicSpec> {
        ::scada::kafka::topics(match self.profile {
            Kind::Dev => Profile::Dev,
            Kind::Production => Profile::Production,
        })
    }
}

/// The cluster that `[scada_admin]` names, where it names brokers.
pub(crate) fn admin_cluster(config: Option<&Path>) -> anyhow::Result<Option<Cluster>> {
    let section = Section::load(config, SECTION, KEYS, crate::config::environment)?;
    Ok(match section.find("kafka.brokers")? {
        Some(_) => Some(cluster(&section)?),
        None => None,
    })
}

/// What differs, what there is, what is wanted.
fn words(difference: &Difference) -> (&str, String, String) {
    match difference {
        Difference::Missing => ("topic", "missing".to_owned(), "there".to_owned()),
        Difference::Partitions { is, wanted } => ("partitions", is.to_string(), wanted.to_string()),
        Difference::Replication { is, wanted } => ("replicas", is.to_string(), wanted.to_string()),
        Difference::Setting { name, is, wanted } => (name, is.clone(), wanted.clone()),
    }
}

fn as_json(drifts: &[Drift]) -> Vec<Value> {
    let one = |drift: &Drift| {
        let (what, is, wanted) = words(&drift.difference);
        json!({"topic": drift.topic, "what": what, "is": is, "wanted": wanted})
    };
    drifts.iter().map(one).collect()
}

async fn diff(args: &Args) -> anyhow::Result<()> {
    let wanted = args.wanted();
    let drifts = admin::diff(&args.cluster()?, &wanted).await?;
    if args.json {
        say(&format!("{}\n", serde_json::to_string_pretty(&as_json(&drifts))?))?;
    } else if drifts.is_empty() {
        say(&format!("All {} topics are as they should be.\n", wanted.len()))?;
    } else {
        let mut table = table::new(&["topic", "what", "is", "wanted"], &[]);
        for drift in &drifts {
            let (what, is, wanted) = words(&drift.difference);
            table.add_row([drift.topic.as_str(), what, &is, &wanted]);
        }
        say(&format!("{table}\n"))?;
    }
    let count = drifts.len();
    ensure!(drifts.is_empty(), "{count} differences; `holdfast scada topics apply` makes them so");
    Ok(())
}

async fn apply(args: &Args) -> anyhow::Result<()> {
    let wanted = args.wanted();
    let applied = admin::apply(&args.cluster()?, &wanted).await?;
    if args.json {
        let done = json!({"changed": as_json(&applied.changed), "left": as_json(&applied.left)});
        say(&format!("{}\n", serde_json::to_string_pretty(&done)?))?;
    } else if applied.changed.is_empty() && applied.left.is_empty() {
        say(&format!("All {} topics were as they should be.\n", wanted.len()))?;
    } else {
        let mut table = table::new(&["topic", "what", "was", "wanted", "state"], &[]);
        let changed = applied.changed.iter().map(|drift| (drift, "done"));
        for (drift, state) in changed.chain(applied.left.iter().map(|drift| (drift, "left"))) {
            let (what, was, wanted) = words(&drift.difference);
            table.add_row([drift.topic.as_str(), what, &was, &wanted, state]);
        }
        say(&format!("{table}\n"))?;
    }
    ensure!(
        applied.left.is_empty(),
        "{} differences are left: fewer partitions, other replicas or a shorter retention cost data or move it; \
         use Kafka's own kafka-topics, kafka-reassign-partitions or kafka-configs for them",
        applied.left.len()
    );
    Ok(())
}
