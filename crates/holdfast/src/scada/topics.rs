//! `holdfast scada topics …`: the topics on a Kafka cluster, and the access rules.
//!
//! Whoever makes topics is an administrator, so the cluster and the login are those of a section of its own. The client library can set
//! neither users nor access rules: `acls` writes the commands of Kafka's own tools.

use std::path::PathBuf;

use ::scada::kafka::{KEYS, cluster};
use anyhow::ensure;
use bus::kafka::Cluster;
use bus::kafka::admin::{self, Difference, Drift};
use clap::{Subcommand, ValueEnum};
use event::names::kafka::{Profile, Topic};
use serde_json::{Value, json};
use settings::Section;

use crate::output::say;
use crate::table;

/// The section with the administrator's way to the cluster.
pub(crate) const SECTION: &str = "scada_admin";
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
    /// Write the commands of Kafka's own tools that make users and access rules: producers may write, historians may read.
    #[command(after_help = "Examples:
  holdfast scada topics acls --brokers kafka-1:9093 --command-config admin.properties
  holdfast scada topics acls --producer node --historian central --json")]
    Acls(AclArgs),
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
    /// host:port,host:port, instead of kafka.brokers of the configuration.
    #[arg(long)]
    brokers: Option<String>,
    /// The configuration; its scada_admin section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AclArgs {
    /// host:port,host:port of the cluster.
    #[arg(long, default_value = "127.0.0.1:9092")]
    brokers: String,
    /// The user of the nodes.
    #[arg(long, default_value = "producer", value_parser = user)]
    producer: String,
    /// The user of the historians.
    #[arg(long, default_value = "historian", value_parser = user)]
    historian: String,
    /// The historians' consumer group.
    #[arg(long, default_value = ::scada::historian::GROUP, value_parser = user)]
    group: String,
    /// The file with the administrator's login, for Kafka's tools.
    #[arg(long)]
    command_config: Option<String>,
    /// JSON: the arguments one by one.
    #[arg(long)]
    json: bool,
}

/// Names that need no quoting in a shell, nor in a rule.
fn user(text: &str) -> Result<String, String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(sound) {
        return Ok(text.to_owned());
    }
    Err("expected 1 to 64 letters, digits, dots, dashes or underscores".to_owned())
}

/// Runs a `topics` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Diff(args) => diff(&args).await,
        Command::Apply(args) => apply(&args).await,
        Command::Acls(args) => acls(&args),
    }
}

impl Args {
    fn cluster(&self) -> anyhow::Result<Cluster> {
        let env = |name: &str| match (&self.brokers, name) {
            (Some(brokers), BROKERS) => Some(brokers.clone()),
            _ => crate::config::environment(name),
        };
        Ok(cluster(&Section::load(self.config.as_deref(), SECTION, KEYS, env)?)?)
    }

    fn wanted(&self) -> Vec<admin::TopicSpec> {
        ::scada::kafka::topics(match self.profile {
            Kind::Dev => Profile::Dev,
            Kind::Production => Profile::Production,
        })
    }
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

/// A command of Kafka's own tools.
struct Tool {
    name: &'static str,
    arguments: Vec<String>,
    why: String,
}

fn tools(args: &AclArgs) -> Vec<Tool> {
    let tool = |name, why: String, arguments: &[&str]| {
        let mut all = vec!["--bootstrap-server", args.brokers.as_str()];
        if let Some(file) = &args.command_config {
            all.extend(["--command-config", file]);
        }
        all.extend(arguments);
        Tool { name, arguments: all.into_iter().map(str::to_owned).collect(), why }
    };
    let (producer, historian) = (&args.producer, &args.historian);
    let mut tools = Vec::new();
    for name in [producer, historian] {
        let file = format!("{name}.properties");
        let why = format!("{name} may log in; {file} has the line SCRAM-SHA-512=password=…");
        let who = ["--alter", "--entity-type", "users", "--entity-name", name];
        tools.push(tool("kafka-configs", why, &[&who[..], &["--add-config-file", &file]].concat()));
    }
    let topics: Vec<&str> = Topic::ALL
        .into_iter()
        .filter(|topic| *topic != Topic::Dlq)
        .flat_map(|topic| ["--topic", topic.name()])
        .collect();
    let mut rule = |why: &str, name: &str, operation, resource: &[&str]| {
        let principal = format!("User:{name}");
        let add = ["--add", "--allow-principal", &principal, "--operation", operation];
        let why = format!("{name} {why}");
        tools.push(tool("kafka-acls", why, &[&add[..], resource].concat()));
    };
    rule("writes the five topics", producer, "Write", &topics);
    rule("reads the five topics", historian, "Read", &topics);
    rule("is in its group", historian, "Read", &["--group", &args.group]);
    rule("writes dead letters", historian, "Write", &["--topic", Topic::Dlq.name()]);
    tools
}

fn acls(args: &AclArgs) -> anyhow::Result<()> {
    let tools = tools(args);
    if args.json {
        let all: Vec<_> = tools
            .iter()
            .map(|one| json!({"tool": one.name, "arguments": one.arguments, "why": one.why}))
            .collect();
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text = String::from(
        "# Run these with Kafka's own tools. They need an authorizer on the brokers (authorizer.class.name).\n\
         # A password goes by a file that only you can read, not by the command line.\n",
    );
    for one in tools {
        text.push_str(&format!("\n# {}\n{}.sh {}\n", one.why, one.name, one.arguments.join(" ")));
    }
    say(&text)
}
