//! `holdfast outbox …`: what waits at a site for the cloud, on the site's own database.
//!
//! The rules are those of the edge's API; this only asks, waits between the parts of a large redrive or
//! give-up, and prints. Whoever can read the configuration may do everything, and the audit names the OS user.

mod show;

use std::path::PathBuf;
use std::time::Duration;

use api::tokens::Tenants;
use clap::Subcommand;
use edge::sync::admin::{self, Actor, Done, Filter, GiveUp, MAX_LIMIT, Redrive, Status, Unclaim};
use event::id::{DeviceId, EventId, NodeId, TenantId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::output::say;

/// More rows than this are not redriven or given up without `--yes`.
const MANY: u64 = 100;

/// `holdfast outbox …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Rows, the newest first.
    #[command(after_help = "Examples:
  holdfast outbox list --status dlq
  holdfast outbox list --status dlq --reason invalid --since 2d
  holdfast outbox list --stream barn-7 --limit 500 --json | jq '.rows[].event_type'")]
    List(ListArgs),
    /// One row with its payload and what operators did with it.
    #[command(after_help = "Examples:
  holdfast outbox show 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast outbox show 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --json | jq .payload_json")]
    Show(ShowArgs),
    /// Send dead letters again.
    #[command(after_help = "Examples:
  holdfast outbox redrive --reason tenant_forbidden --dry-run
  holdfast outbox redrive --reason tenant_forbidden --failed-after 2d --yes
  holdfast outbox redrive --id 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast outbox redrive --all --limit 100000 --rate 500 --yes")]
    Redrive(DeadArgs),
    /// Give dead letters up: nobody sends them again, and retention archives them.
    #[command(after_help = "Examples:
  holdfast outbox give-up --reason invalid --because 'readings of a test rig' --dry-run
  holdfast outbox give-up --reason invalid --failed-before 30d --because 'readings of a test rig' --yes
  holdfast outbox give-up --id 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --because 'entered twice' --json

A row that was given up by mistake goes back with holdfast outbox redrive --id.")]
    GiveUp(GiveUpArgs),
    /// Free rows whose forwarder died: leases that have expired, and no others.
    #[command(after_help = "Examples:
  holdfast outbox unclaim --dry-run
  holdfast outbox unclaim --claimed-by edge-2/bulk")]
    Unclaim(UnclaimArgs),
    /// How the outbox stands: counts, the oldest, how long it will take, pauses.
    #[command(after_help = "Examples:
  holdfast outbox stats
  holdfast outbox stats --json | jq .drain_seconds")]
    Stats(StatsArgs),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The configuration; its [edge] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// States: pending, claimed, sending, acked, dlq, failed; several with commas.
    #[arg(long, value_delimiter = ',')]
    status: Vec<Status>,
    /// One tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Why it is a dead letter.
    #[arg(long)]
    reason: Option<String>,
    /// The event's type, such as alarm.raised.
    #[arg(long = "type")]
    event_type: Option<String>,
    /// One device.
    #[arg(long)]
    device: Option<DeviceId>,
    /// One node.
    #[arg(long)]
    stream: Option<NodeId>,
    /// Written at this time or later: 2026-02-01T10:00:00Z, or 2h for two hours ago.
    #[arg(long, value_parser = moment)]
    since: Option<Timestamp>,
    /// Written before this time.
    #[arg(long, value_parser = moment)]
    until: Option<Timestamp>,
    /// The most rows.
    #[arg(long, default_value_t = admin::PAGE, value_parser = clap::value_parser!(u32).range(1..=i64::from(admin::MAX_PAGE)))]
    limit: u32,
    /// Go on after this row: the last line of the page before says which.
    #[arg(long)]
    after: Option<Uuid>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The event's id.
    id: EventId,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct DeadArgs {
    /// This event; once for each.
    #[arg(long, group = "which")]
    id: Vec<EventId>,
    /// Dead for this reason.
    #[arg(long, group = "which")]
    reason: Option<String>,
    /// Of this tenant.
    #[arg(long, group = "which")]
    tenant: Option<TenantId>,
    /// Dead at this time or later: 2026-02-01T10:00:00Z, or 2h for two hours ago.
    #[arg(long, value_parser = moment, group = "which")]
    failed_after: Option<Timestamp>,
    /// Dead before this time.
    #[arg(long, value_parser = moment, group = "which")]
    failed_before: Option<Timestamp>,
    /// Every dead letter.
    #[arg(long, group = "which", conflicts_with_all = ["id", "reason", "tenant", "failed_after", "failed_before"])]
    all: bool,
    /// The most rows; the oldest dead letters go first.
    #[arg(long, default_value_t = admin::DEFAULT_LIMIT, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    limit: u32,
    /// Rows a second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LIMIT)))]
    rate: u32,
    /// Change nothing, and say which would be taken.
    #[arg(long)]
    dry_run: bool,
    /// Do it even for many rows.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GiveUpArgs {
    /// Why, in your words; the audit keeps it.
    #[arg(long, value_parser = because)]
    because: String,
    #[command(flatten)]
    which: DeadArgs,
}

/// What happens to dead letters.
enum Deed {
    Redrive,
    GiveUp(String),
}

impl Deed {
    async fn act(&self, pool: &pg::Pool, which: &Redrive) -> anyhow::Result<Done> {
        Ok(match self {
            Deed::Redrive => admin::redrive(pool, &Tenants::All, &actor(), which).await?,
            Deed::GiveUp(because) => {
                let what = GiveUp { which: which.clone(), because: because.clone() };
                admin::give_up(pool, &Tenants::All, &actor(), &what).await?
            }
        })
    }

    fn done(&self) -> &'static str {
        match self {
            Deed::Redrive => "redriven",
            Deed::GiveUp(_) => "given up",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnclaimArgs {
    /// Of this tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Held by this forwarder, as `outbox list` shows it.
    #[arg(long)]
    claimed_by: Option<String>,
    /// The most rows.
    #[arg(long, default_value_t = admin::DEFAULT_LIMIT, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LIMIT)))]
    limit: u32,
    /// Change nothing, and say what would be freed.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatsArgs {
    /// Count the acked rows too, which reads the whole table.
    #[arg(long)]
    acked: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs an `outbox` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args).await,
        Command::Show(args) => {
            let pool = connect(&args.common)?;
            let found = admin::show(&pool, &Tenants::All, args.id, true).await?;
            let found = found.ok_or_else(|| {
                anyhow::anyhow!(
                    "the outbox has no row {}: see holdfast outbox list. Acked rows are removed \
                     after their retention",
                    args.id
                )
            })?;
            print(args.common.json, &found, show::detail)
        }
        Command::Redrive(args) => in_parts(args, &Deed::Redrive).await,
        Command::GiveUp(args) => in_parts(args.which, &Deed::GiveUp(args.because)).await,
        Command::Unclaim(args) => {
            let pool = connect(&args.common)?;
            let what = Unclaim {
                tenant_id: args.tenant,
                claimed_by: args.claimed_by,
                limit: args.limit,
                dry_run: args.dry_run,
            };
            let done = admin::unclaim_stuck(&pool, &Tenants::All, &actor(), &what).await?;
            print(args.common.json, &done, |done| show::done(done, "freed", "held by"))
        }
        Command::Stats(args) => {
            let pool = connect(&args.common)?;
            let stats = admin::stats(&pool, &Tenants::All, args.acked).await?;
            print(args.common.json, &stats, show::stats)
        }
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let pool = connect(&args.common)?;
    let filter = Filter {
        status: args.status,
        tenant_id: args.tenant,
        reason: args.reason,
        event_type: args.event_type,
        device_id: args.device,
        stream: args.stream.map(|stream| stream.to_string()),
        since: args.since,
        until: args.until,
        after: args.after,
        limit: Some(args.limit),
    };
    let page = admin::list(&pool, &Tenants::All, &filter).await?;
    print(args.common.json, &page, |page| show::page(page, Timestamp::now()))
}

async fn in_parts(args: DeadArgs, deed: &Deed) -> anyhow::Result<()> {
    let pool = connect(&args.common)?;
    let mut what = Redrive {
        ids: args.id,
        reason: args.reason,
        tenant_id: args.tenant,
        failed_after: args.failed_after,
        failed_before: args.failed_before,
        limit: args.limit.min(MAX_LIMIT),
        dry_run: true,
    };
    let mut found = deed.act(&pool, &what).await?;
    let rows = (found.rows + found.left).min(u64::from(args.limit));
    if args.dry_run {
        (found.rows, found.left) = (rows, found.rows + found.left - rows);
        return print(args.common.json, &found, |done| show::done(done, deed.done(), "dead for"));
    }
    anyhow::ensure!(
        rows <= MANY || args.yes,
        "{rows} dead letters would be {}; look at them with --dry-run, then give --yes",
        deed.done()
    );
    what.dry_run = false;
    let mut done = Done::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    while done.rows < rows {
        tick.tick().await;
        let next = rows - done.rows;
        what.limit = args.rate.min(MAX_LIMIT).min(u32::try_from(next).unwrap_or(MAX_LIMIT));
        let part = deed.act(&pool, &what).await?;
        if part.rows == 0 {
            break;
        }
        done.rows += part.rows;
        (done.left, done.audit_id) = (part.left, part.audit_id);
        for (reason, count) in part.by_reason {
            *done.by_reason.entry(reason).or_default() += count;
        }
    }
    print(args.common.json, &done, |done| show::done(done, deed.done(), "dead for"))
}

fn print<T: serde::Serialize>(
    json: bool,
    what: &T,
    table: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    match json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(what)?)),
        false => say(&table(what)),
    }
}

fn connect(common: &Common) -> anyhow::Result<pg::Pool> {
    let config = edge::Config::load(common.config.as_deref(), crate::config::environment)?;
    Ok(pg::Pool::new(&pg::Options { max_connections: 1, ..config.database })?)
}

fn actor() -> Actor {
    Actor::user(&crate::user::this_user())
}

/// A reason that the audit can keep.
fn because(text: &str) -> Result<String, String> {
    let (text, most) = (text.trim(), admin::MAX_BECAUSE_CHARS);
    if (1..=most).contains(&text.chars().count()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!("expected 1 to {most} characters of text"))
}

/// A time, or how long ago.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let expected = || "expected a time such as 2026-02-01T10:00:00Z, or 2h for two hours ago";
    let text = text.replace('d', "d ");
    let span: jiff::Span = text.trim().parse().map_err(|_| expected().to_owned())?;
    let ago = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .ok()
        .filter(|ago| *ago > SignedDuration::ZERO)
        .ok_or_else(|| expected().to_owned())?;
    Timestamp::now().checked_sub(ago).map_err(|_| expected().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago() {
        let at: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
        assert_eq!(moment("2026-02-01T10:00:00Z"), Ok(at));
        let hours = |text| {
            let then = moment(text).unwrap();
            Timestamp::now().duration_since(then).as_hours()
        };
        assert_eq!((hours("2h"), hours("2d"), hours("90m")), (2, 48, 1));
        for text in ["", "soon", "-2h", "0s", "1 month"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
