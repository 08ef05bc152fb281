//! `holdfast media copies …`: images whose copy the cloud gave up, on the cloud's own database.
//!
//! A copy fails when the object itself is at fault: not there, of another size, outside its tenant's prefix. A store that is away fails nothing.
//! The audit names the OS user.

use clap::Subcommand;
use cloud::copies::{self, MAX_RETRIED, Selection};
use cloud::dead_letters::audit::Actor;
use event::id::MediaId;

use crate::given_up::Scope;
use crate::output::say;
use crate::table;

/// `holdfast media …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copies of images that the cloud gave up: look at them, try them again.
    #[command(subcommand)]
    Copies(Copies),
}

/// `holdfast media copies …`
#[derive(Debug, Subcommand)]
pub(crate) enum Copies {
    /// Images whose copy failed, the newest failure first.
    #[command(after_help = "Examples:
  holdfast media copies list --config cloud.toml
  holdfast media copies list --code not_found --since 2d --json")]
    List(ListArgs),
    /// Try them again.
    #[command(after_help = "Examples:
  holdfast media copies retry --code not_found --dry-run
  holdfast media copies retry --id 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast media copies retry --all --limit 10000")]
    Retry(RetryArgs),
}

#[derive(Debug, clap::Args)]
struct Meant {
    /// One image; once for each.
    #[arg(long = "id")]
    ids: Vec<MediaId>,
    /// Why it failed: not_found, size_differs, hash_differs, too_large, foreign_path or refused.
    #[arg(long)]
    code: Option<String>,
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
pub(crate) struct RetryArgs {
    #[command(flatten)]
    meant: Meant,
    /// Everything that failed; needed when nothing else is named.
    #[arg(long)]
    all: bool,
    /// The most images, those that failed first before the others.
    #[arg(long, default_value_t = MAX_RETRIED, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RETRIED)))]
    limit: u32,
    /// Only say how many it would be.
    #[arg(long)]
    dry_run: bool,
}

impl Meant {
    fn selection(&self) -> Selection {
        let ids = || self.ids.iter().map(|id| id.uuid()).collect();
        Selection {
            media_ids: (!self.ids.is_empty()).then(ids),
            code: self.code.clone(),
            tenants: self.scope.tenant.map(|tenant| vec![tenant.uuid()]),
            since: self.scope.since,
            until: self.scope.until,
        }
    }

    fn names_nothing(&self) -> bool {
        self.ids.is_empty() && self.code.is_none() && self.scope.is_all()
    }
}

/// Runs a `media` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Copies(Copies::List(args)) => list(args).await,
        Command::Copies(Copies::Retry(args)) => retry(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let client = args.meant.scope.connect().await?;
    let failed = copies::failed(&client, &args.meant.selection(), args.limit).await?;
    if args.meant.scope.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&failed)?));
    }
    if failed.is_empty() {
        return say("No copy has failed that fits.\n");
    }
    let mut rows =
        table::new(&["image", "tenant", "given up", "tried", "code", "what was said"], &[3]);
    for copy in failed {
        rows.add_row([
            copy.media_id.to_string(),
            copy.tenant_id.to_string(),
            copy.failed_at.strftime("%F %T").to_string(),
            copy.attempts.to_string(),
            copy.code.unwrap_or_default(),
            copy.error.unwrap_or_default(),
        ]);
    }
    say(&format!("{rows}\n"))
}

async fn retry(args: RetryArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.all || !args.meant.names_nothing(),
        "name what is meant (--id, --code, --tenant, --since, --until), or say --all"
    );
    let client = args.meant.scope.connect().await?;
    let actor = Actor::User(crate::user::this_user());
    let selection = args.meant.selection();
    let done = copies::retry(&client, &actor, &selection, args.limit, args.dry_run).await?;
    args.meant.scope.tell(&done, args.dry_run, "images", "copied again")
}
