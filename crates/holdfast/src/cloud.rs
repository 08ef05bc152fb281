//! `holdfast cloud …` and `holdfast token …`: run the cloud, and say who may use it.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use cloud::tokens::{self, NewToken, Role, Tenants, Token};
use event::id::TenantId;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::output::{say, say_json};
use crate::table;

/// The variable of `cloud.roles`.
const ROLES: &str = "HOLDFAST_CLOUD_ROLES";

/// `holdfast cloud …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the cloud: take in what edges send, relay it to the bus, store it. Migrates the database at start.
    #[command(after_help = "Examples:
  holdfast cloud run --config cloud.toml
  CLOUD_DATABASE_URL=postgres:///cloud holdfast cloud run     everything in one process, on the inline bus
  holdfast cloud run --config cloud.toml --role ingestion     one part of it; with cloud.bus = \"rabbitmq\" each may be apart
  holdfast cloud run --config cloud.toml --role relay,telemetry")]
    Run(RunArgs),
}

/// `holdfast token …`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token. It is printed once; the database has only its hash.
    #[command(after_help = "Examples:
  holdfast token create site-north --role edge --tenant 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002
  holdfast token create ops --role admin --all-tenants --days 90
  holdfast token create shift-operator --edge --role operator --all-tenants     for the outbox at a site
  holdfast token create ci --role viewer --all-tenants --json | jq -r .secret")]
    Create(CreateArgs),
    /// Every token: what it is for, and when it was last used.
    #[command(after_help = "Examples:
  holdfast token list --config cloud.toml
  holdfast token list --edge --json | jq '.[] | select(.last_used_at == null) | .name'     made and never used")]
    List(ListArgs),
    /// Stop a token. It takes a few seconds to reach every replica.
    #[command(after_help = "Examples:
  holdfast token list                                                which there are, with their ids
  holdfast token revoke 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast token revoke 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --edge --json")]
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration; its [cloud] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArg {
    /// The tokens of a site's API instead of the cloud's; the [edge] section is read.
    #[arg(long, conflicts_with_all = ["historian", "schedule"])]
    edge: bool,
    /// The tokens of a historian's API; the historian section is read.
    #[arg(long, conflicts_with = "schedule")]
    historian: bool,
    /// The tokens of the intake of schedules; the [schedule] section is read.
    #[arg(long)]
    schedule: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What this process does: ingestion, relay, telemetry, analytics, media. Wins over cloud.roles.
    #[arg(long, value_delimiter = ',')]
    role: Vec<String>,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// A name for people.
    name: String,
    /// What it is for: admin, edge (a site's forwarder), operator (acts), viewer (looks).
    #[arg(long)]
    role: Role,
    /// A tenant whose data it may touch; once for each.
    #[arg(long, required_unless_present = "all_tenants", conflicts_with = "all_tenants")]
    tenant: Vec<TenantId>,
    /// Every tenant's data, those that come later too.
    #[arg(long)]
    all_tenants: bool,
    /// Stops by itself after so many days; never when absent.
    #[arg(long)]
    days: Option<u32>,
    /// JSON with the token's id and its `secret`, instead of the secret alone.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// The token's id, as `holdfast token list` shows it.
    id: Uuid,
    /// The token as JSON, as `token list` has it, instead of a sentence.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArg,
}

/// Runs a `cloud` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    let Command::Run(args) = command;
    let roles = args.role.join(",");
    // As if the variable had been set: the flag is the nearer of the two.
    let config = cloud::Config::load(args.config.config.as_deref(), |name| match name {
        ROLES if !roles.is_empty() => Some(roles.clone()),
        other => crate::config::environment(other),
    })?;
    let stop = crate::shutdown::requested()?;
    Ok(cloud::run(config, stop).await?)
}

/// Runs a `token` command.
pub(crate) async fn run_token(command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create(args) => create(args).await,
        TokenCommand::List(args) => list(args).await,
        TokenCommand::Revoke(args) => {
            let client = connect(&args.database).await?;
            let token = tokens::revoke(&client, args.id).await?;
            match args.json {
                true => say_json(&token),
                false => say(&format!("{} ({}) is revoked\n", token.name, token.id)),
            }
        }
    }
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let client = connect(&args.database).await?;
    let new = NewToken {
        name: args.name,
        role: args.role,
        tenants: if args.all_tenants { Tenants::All } else { Tenants::Only(args.tenant) },
        expires_at: args
            .days
            .map(|days| Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days))),
    };
    let (token, secret) = tokens::create(&client, &new).await?;
    tracing::info!(id = %token.id, role = token.role.as_str(), "token made; it is shown only now");
    if args.json {
        let mut shown = serde_json::to_value(&token)?;
        shown["secret"] = secret.expose().into();
        return say_json(&shown);
    }
    say(&format!("{}\n", secret.expose()))
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let client = connect(&args.database).await?;
    let tokens = tokens::list(&client).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&tokens)?));
    }
    if tokens.is_empty() {
        return say("There is no token yet. Make one: see holdfast token create --help\n");
    }
    let now = Timestamp::now();
    let mut rows = table::new(&["id", "name", "role", "tenants", "state", "last used"], &[]);
    for token in &tokens {
        let used = token.last_used_at.map_or_else(
            || "never".to_owned(),
            |at| format!("{} ago", table::span(now.duration_since(at).as_secs())),
        );
        rows.add_row([
            token.id.to_string(),
            token.name.clone(),
            token.role.as_str().to_owned(),
            tenants(&token.tenants),
            state(token, now),
            used,
        ]);
    }
    say(&format!("{rows}\n"))
}

fn tenants(tenants: &Tenants) -> String {
    match tenants {
        Tenants::All => "all".to_owned(),
        Tenants::Only(list) if list.len() == 1 => list.iter().map(ToString::to_string).collect(),
        Tenants::Only(list) => format!("{} tenants", list.len()),
    }
}

fn state(token: &Token, now: Timestamp) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(at)) if at <= now => "expired".to_owned(),
        (None, Some(at)) => format!("stops in {}", table::span(at.duration_since(now).as_secs())),
        (None, None) => "good".to_owned(),
    }
}

fn load(file: Option<&Path>) -> anyhow::Result<cloud::Config> {
    Ok(cloud::Config::load(file, crate::config::environment)?)
}

async fn connect(from: &DatabaseArg) -> anyhow::Result<tokio_postgres::Client> {
    let file = from.config.config.as_deref();
    if from.edge {
        let config = edge::Config::load(file, crate::config::environment)?;
        edge::migrate(&config.database).await?;
        return Ok(pg::connect(&config.database).await?);
    }
    if from.historian {
        let config = ::scada::historian::Config::load(file, crate::config::environment)?;
        ::scada::migrate_historian(&config.database).await?;
        return Ok(pg::connect(&config.database).await?);
    }
    if from.schedule {
        let config = ::schedule::Config::load(file, crate::config::environment)?;
        ::schedule::migration::migrate(&config.database).await?;
        return Ok(pg::connect(&config.database).await?);
    }
    let config = load(file)?;
    cloud::migrate(&config.database).await?;
    Ok(pg::connect(&config.database).await?)
}
