//! `holdfast edge …`: run the site's ingress, let nodes in, look at them.

mod media_sweep;
mod retain;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use event::id::{BarnId, DeviceId, FarmId, NodeId, TenantId};
use jiff::Timestamp;

use crate::output::{say, say_json};
use crate::table;

/// `holdfast edge …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take in what nodes send: MQTT and HTTP into Postgres. Migrates the database at start.
    #[command(after_help = "Examples:
  holdfast edge run --config edge.toml
  DATABASE_URL=postgres:///farm HOLDFAST_EDGE_MQTT_ADDRESS=mqtt://broker:1883 holdfast edge run")]
    Run(ConfigArg),
    /// Let a node in: mint its secret, write the broker's files, print the node's configuration.
    #[command(after_help = "Examples:
  holdfast edge enroll barn-7 --tenant 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002 > node.toml
  holdfast edge enroll barn-7 --tenant 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002 --rotate   give it a new secret")]
    Enroll(EnrollArgs),
    /// The nodes: alive or not, how fresh, what is stored, what was lost.
    #[command(after_help = "Examples:
  holdfast edge nodes
  holdfast edge nodes --json | jq '.[] | select(.state != \"online\")'")]
    Nodes(NodesArgs),
    /// Remove what has expired, once; for a cron. The edge's role retention does the same by itself.
    #[command(after_help = "Examples:
  holdfast edge retain --dry-run               what would go, what is held, and why
  holdfast edge retain --json | jq '.lines[] | select(.fate == \"held\")'")]
    Retain(retain::RetainArgs),
    /// Print lifecycle rules for the object store, for those who prefer them to retain.
    #[command(after_help = "Examples:
  holdfast edge lifecycle > rules.json && aws s3api put-bucket-lifecycle-configuration --bucket media --lifecycle-configuration file://rules.json
  holdfast edge lifecycle --format xml")]
    Lifecycle(retain::LifecycleArgs),
    /// Compare images and their objects once, both ways, and mend what differs.
    #[command(after_help = "Examples:
  holdfast edge media-sweep --dry-run     what would be done
  holdfast edge media-sweep --json")]
    MediaSweep(media_sweep::Args),
    /// Shut a node out: what it sends is quarantined, and the broker refuses it.
    #[command(after_help = "Examples:
  holdfast edge disable barn-7
  holdfast edge disable barn-7 --json | jq .disabled_at")]
    Disable(NodeArg),
    /// Let a node in again that was shut out.
    #[command(after_help = "Examples:
  holdfast edge enable barn-7
  holdfast edge enable barn-7 --config edge.toml --json")]
    Enable(NodeArg),
    /// Take the flag off a node after its cloned card was seen to.
    #[command(after_help = "Examples:
  holdfast edge nodes --json | jq '.[] | select(.flagged_at != null) | .node_id'     which have one
  holdfast edge clear-flag barn-7")]
    ClearFlag(NodeArg),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration; its [edge] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnrollArgs {
    /// The node's id: lower-case letters, digits and dashes.
    node: NodeId,
    /// Whose data it sends.
    #[arg(long)]
    tenant: TenantId,
    /// The farm it stands on.
    #[arg(long)]
    farm: Option<FarmId>,
    /// The barn it stands in.
    #[arg(long)]
    barn: Option<BarnId>,
    /// The device of readings that name none; minted when absent.
    #[arg(long)]
    device: Option<DeviceId>,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
    /// Give a node that is enrolled already a new secret.
    #[arg(long)]
    rotate: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArg {
    /// The node's id.
    node: NodeId,
    /// The node as JSON, as `edge nodes` has it, instead of a sentence.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// Runs an `edge` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => {
            let config = load(args.config.as_deref())?;
            run_role(config).await
        }
        Command::Enroll(args) => enroll(args).await,
        Command::Nodes(args) => nodes(args).await,
        Command::Retain(args) => retain::retain(args).await,
        Command::Lifecycle(args) => retain::rules(&args),
        Command::MediaSweep(args) => media_sweep::run(args).await,
        Command::Disable(args) => set_disabled(args, true).await,
        Command::Enable(args) => set_disabled(args, false).await,
        Command::ClearFlag(args) => {
            let config = load(args.config.config.as_deref())?;
            edge::registry::clear_flag(&config, &args.node).await?;
            tell(&config, &args, "has no flag any more").await
        }
    }
}

async fn run_role(config: edge::Config) -> anyhow::Result<()> {
    let stop = crate::shutdown::requested()?;
    Ok(edge::run(config, stop).await?)
}

fn load(file: Option<&Path>) -> anyhow::Result<edge::Config> {
    Ok(edge::Config::load(file, crate::config::environment)?)
}

async fn enroll(args: EnrollArgs) -> anyhow::Result<()> {
    let config = load(args.config.config.as_deref())?;
    edge::migrate(&config.database).await?;
    let request = edge::registry::Enrolment {
        node_id: args.node,
        tenant_id: args.tenant,
        farm_id: args.farm,
        barn_id: args.barn,
        device_id: args.device,
        label: args.label,
        rotate: args.rotate,
    };
    let enrolled = edge::registry::enroll(&config, &request).await?;
    say_of_broker(&config);
    say(&enrolled.node_config)
}

/// What is left to be done at the broker after a node was let in or shut out.
fn say_of_broker(config: &edge::Config) {
    match &config.broker_files {
        Some(files) => tracing::info!(
            passwords = %files.passwords.display(),
            "broker files written; make the broker read them again: kill -HUP of mosquitto"
        ),
        None => tracing::warn!(
            "edge.broker.password_file is not set: the broker does not know of this yet; change it there by hand"
        ),
    }
}

async fn set_disabled(args: NodeArg, disabled: bool) -> anyhow::Result<()> {
    let config = load(args.config.config.as_deref())?;
    edge::registry::set_disabled(&config, &args.node, disabled).await?;
    say_of_broker(&config);
    let done = if disabled { "is shut out" } else { "is let in again" };
    tell(&config, &args, done).await
}

/// Says what was done to a node, or shows it as it now is.
async fn tell(config: &edge::Config, args: &NodeArg, done: &str) -> anyhow::Result<()> {
    if !args.json {
        return say(&format!("{} {done}\n", args.node));
    }
    let client = pg::connect(&config.database).await?;
    let nodes = edge::registry::list(&client, Timestamp::now(), &config.liveness).await?;
    let node = nodes.iter().find(|node| node.node_id == args.node.as_str());
    say_json(node.context("the node is gone")?)
}

async fn nodes(args: NodesArgs) -> anyhow::Result<()> {
    let config = load(args.config.config.as_deref())?;
    let client = pg::connect(&config.database).await?;
    let now = Timestamp::now();
    let nodes = edge::registry::list(&client, now, &config.liveness).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&nodes)?));
    }
    if nodes.is_empty() {
        return say(
            "No node is enrolled yet. Let one in: holdfast edge enroll NODE --tenant TENANT\n",
        );
    }
    let headings = [
        "node",
        "state",
        "heard",
        "newest sample",
        "held there",
        "stored",
        "lost",
        "quarantined",
        "note",
    ];
    let mut table = table::new(&headings, &[4, 5, 6, 7]);
    for node in &nodes {
        let ago = |at: Option<Timestamp>| match at {
            Some(at) => format!("{} ago", table::span(now.duration_since(at).as_secs())),
            None => "never".to_owned(),
        };
        let held = node.status.as_ref().and_then(|status| status["backlog"].as_i64());
        table.add_row([
            node.node_id.clone(),
            node.state.as_str().to_owned(),
            ago(node.last_rx_at),
            ago(node.last_sample_ts),
            held.map_or_else(|| "?".to_owned(), table::grouped),
            table::grouped(node.stored),
            table::grouped(node.lost),
            table::grouped(node.quarantined),
            note(node),
        ]);
    }
    say(&format!("{table}\n"))
}

fn note(node: &edge::registry::Node) -> String {
    match (&node.disabled_at, &node.flag_reason) {
        (Some(_), _) => "shut out".to_owned(),
        (None, Some(reason)) => reason.clone(),
        (None, None) => node.label.clone(),
    }
}
