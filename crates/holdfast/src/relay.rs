//! `holdfast relay …`: what the relay gave up publishing, on the cloud's own database.
//!
//! A row is here when the bus cannot take the event itself: no exchange for its type, too large. What a consumer gave up after it
//! was published is `holdfast dlq`'s. The audit names the OS user.

use clap::Subcommand;
use cloud::dead_letters::audit::Actor;
use cloud::relay::{self, MAX_REDRIVE, Selection};
use event::id::EventId;

use crate::given_up::Scope;
use crate::output::say;
use crate::table;

/// `holdfast relay …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Events that were given up, the newest first.
    #[command(after_help = "Examples:
  holdfast relay list --config cloud.toml
  holdfast relay list --reason unroutable --since 2d --json")]
    List(ListArgs),
    /// Publish them again.
    #[command(after_help = "Examples:
  holdfast relay redrive --reason unroutable --dry-run
  holdfast relay redrive --id 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast relay redrive --all --limit 10000")]
    Redrive(RedriveArgs),
}

#[derive(Debug, clap::Args)]
struct Meant {
    /// One event; once for each.
    #[arg(long = "id")]
    ids: Vec<EventId>,
    /// Why it was given up.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    meant: Meant,
    /// The most rows.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    meant: Meant,
    /// Everything that was given up; needed when nothing else is named.
    #[arg(long)]
    all: bool,
    /// The most rows, the oldest first.
    #[arg(long, default_value_t = MAX_REDRIVE, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REDRIVE)))]
    limit: u32,
    /// Only say how many it would be.
    #[arg(long)]
    dry_run: bool,
}

impl Meant {
    fn selection(&self) -> Selection {
        Selection {
            event_ids: (!self.ids.is_empty())
                .then(|| self.ids.iter().map(|id| id.uuid()).collect()),
            reason: self.reason.clone(),
            tenant: self.scope.tenant.map(|tenant| tenant.uuid()),
            since: self.scope.since,
            until: self.scope.until,
        }
    }

    fn names_nothing(&self) -> bool {
        self.ids.is_empty() && self.reason.is_none() && self.scope.is_all()
    }
}

/// Runs a `relay` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args).await,
        Command::Redrive(args) => redrive(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let client = args.meant.scope.connect().await?;
    let dead = relay::dead_letters(&client, &args.meant.selection(), args.limit).await?;
    if args.meant.scope.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&dead)?));
    }
    if dead.is_empty() {
        return say("The relay has given up nothing that fits.\n");
    }
    let mut rows =
        table::new(&["event", "type", "tenant", "given up", "reason", "what was said"], &[]);
    for letter in dead {
        rows.add_row([
            letter.event_id.to_string(),
            letter.event_type,
            letter.tenant_id.to_string(),
            letter.failed_at.strftime("%F %T").to_string(),
            letter.reason,
            letter.error.unwrap_or_default(),
        ]);
    }
    say(&format!("{rows}\n"))
}

async fn redrive(args: RedriveArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.all || !args.meant.names_nothing(),
        "name what is meant (--id, --reason, --tenant, --since, --until), or say --all"
    );
    let client = args.meant.scope.connect().await?;
    let actor = Actor::User(crate::user::this_user());
    let selection = args.meant.selection();
    let done = relay::redrive(&client, &actor, &selection, args.limit, args.dry_run).await?;
    args.meant.scope.tell(&done, args.dry_run, "events", "published again")
}
