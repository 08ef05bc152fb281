//! `holdfast dlq …`: messages that a consumer gave up, on any bus: look at them, and send them back.

mod place;
mod record;

use std::io::Write as _;

use bus::export_line;
use clap::Subcommand;
use cloud::dead_letters::Wanted;
use cloud::dead_letters::audit::Outcome;
use event::id::TenantId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::bus::BrokerArgs;
use crate::output::say;
use crate::table;
use place::{Pace, Place};

/// `holdfast dlq …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The dead letters, grouped by queue, cause and routing key.
    #[command(after_help = "Examples:
  holdfast dlq list
  holdfast dlq list --since 2h --each
  holdfast dlq list --scada                                     what the historian could not store
  holdfast dlq list --json | jq '.groups[] | select(.count > 100)'")]
    List(ListArgs),
    /// One dead letter with its body.
    #[command(after_help = "Examples:
  holdfast dlq show 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002")]
    Show(ShowArgs),
    /// Send dead letters back to the queue that gave them up, and to no other. Recorded in operator_audit.
    #[command(after_help = "Examples:
  holdfast dlq replay --cause invalid_unit --dry-run            what would go
  holdfast dlq replay --cause invalid_unit --per-second 50
  holdfast dlq replay --scada --cause incompatible
  holdfast dlq replay --id 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002")]
    Replay(ReplayArgs),
    /// Dead letters with their bodies, one JSON object a line. Recorded in operator_audit.
    #[command(after_help = "Examples:
  holdfast dlq export --tenant 018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002 > letters.jsonl")]
    Export(ExportArgs),
}

/// Whose dead letters.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    /// What the plant's historian gave up, instead of the cloud's consumers: its section historian is read, and on Kafka
    /// scada_admin, which may read dead letters.
    #[arg(long, conflicts_with = "url")]
    scada: bool,
    #[command(flatten)]
    broker: BrokerArgs,
}

/// Which dead letters are meant; all that is given must hold.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FilterArgs {
    /// Given up by this queue or group, farmiq.SERVICE.PURPOSE.queue.
    #[arg(long)]
    queue: Option<String>,
    /// For this cause.
    #[arg(long)]
    cause: Option<String>,
    /// Given up since then: a time (2026-01-31T06:00:00Z) or a span (90m, 2h, 3d).
    #[arg(long, value_parser = since)]
    since: Option<Timestamp>,
    /// Of this tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// This message; once for each.
    #[arg(long)]
    id: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Every dead letter by itself instead of groups.
    #[arg(long)]
    each: bool,
    /// The most dead letters that are looked at.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The message's id.
    id: String,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Every dead letter there is; needed when nothing else says which.
    #[arg(long)]
    all: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// The most in a second.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_second: u32,
    /// The most altogether.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// On the inline bus: wait until the cloud has delivered them.
    #[arg(long)]
    wait: bool,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// The most altogether.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    // A day is no unit of a span that has no calendar.
    let span = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => days.checked_mul(24).map(SignedDuration::from_hours),
        _ => text.parse().ok(),
    };
    let at = span.and_then(|span: SignedDuration| Timestamp::now().checked_sub(span.abs()).ok());
    at.ok_or_else(|| "expected a time like 2026-01-31T06:00:00Z or a span like 2h".to_owned())
}

impl FilterArgs {
    fn wanted(&self) -> Wanted {
        Wanted {
            message_ids: (!self.id.is_empty()).then(|| self.id.clone()),
            queue: self.queue.clone(),
            cause_code: self.cause.clone(),
            since: self.since,
            tenant: self.tenant.map(|tenant| tenant.uuid()),
        }
    }

    /// For the audit.
    fn parameters(&self) -> Value {
        json!({
            "queue": self.queue, "cause": self.cause, "since": self.since,
            "tenant": self.tenant, "id": self.id,
        })
    }
}

/// Runs a `dlq` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
        Command::Replay(args) => replay(args).await,
        Command::Export(args) => export(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let place = Place::open(&args.place).await?;
    if args.each {
        return list_each(&place, &args).await;
    }
    let found = place.groups(&args.filter.wanted(), args.limit).await?;
    if args.json {
        let all =
            json!({"groups": found.groups, "looked_at": found.looked_at, "total": found.total});
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    if found.groups.is_empty() {
        return say("There is no such dead letter.\n");
    }
    let headings = ["queue", "cause", "routing key", "count", "first", "last", "for example"];
    let mut rows = table::new(&headings, &[3]);
    for group in &found.groups {
        rows.add_row([
            group.queue.clone().unwrap_or_else(|| "not known".to_owned()),
            group.cause_code.clone(),
            group.routing_key.clone(),
            table::grouped(i64::try_from(group.count).unwrap_or(i64::MAX)),
            ago(group.first_at),
            ago(group.last_at),
            group.sample_id.clone(),
        ]);
    }
    say(&format!("{rows}\n"))?;
    if found.looked_at < found.total {
        say(&format!("Of the first {} of {}; see --limit.\n", found.looked_at, found.total))?;
    }
    Ok(())
}

async fn list_each(place: &Place, args: &ListArgs) -> anyhow::Result<()> {
    let letters = place.letters(&args.filter.wanted(), args.limit).await?;
    if args.json {
        let all: Vec<_> = letters
            .iter()
            .map(|letter| {
                json!({
                    "message_id": letter.message.message_id, "queue": letter.queue,
                    "cause": letter.cause, "routing_key": letter.message.routing_key,
                    "attempts": letter.attempts, "replayed": letter.replayed,
                    "dead_lettered_at": letter.dead_lettered_at,
                })
            })
            .collect();
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let headings = ["id", "queue", "cause", "attempts", "replayed", "when", "why"];
    let mut rows = table::new(&headings, &[3, 4]);
    for letter in letters {
        rows.add_row([
            letter.message.message_id,
            letter.queue.unwrap_or_else(|| "not known".to_owned()),
            letter.cause.code,
            letter.attempts.to_string(),
            letter.replayed.to_string(),
            ago(letter.dead_lettered_at),
            letter.cause.message,
        ]);
    }
    say(&format!("{rows}\n"))
}

fn ago(at: Option<Timestamp>) -> String {
    match at {
        Some(at) => format!("{} ago", table::span(Timestamp::now().duration_since(at).as_secs())),
        None => "not known".to_owned(),
    }
}

async fn show(args: ShowArgs) -> anyhow::Result<()> {
    let place = Place::open(&args.place).await?;
    let wanted = Wanted { message_ids: Some(vec![args.id.clone()]), ..Wanted::default() };
    // One for each queue that gave it up, of which there are few.
    let letters = place.letters(&wanted, 100).await?;
    anyhow::ensure!(
        !letters.is_empty(),
        "there is no dead letter {}; `holdfast dlq list --each` shows their ids",
        args.id
    );
    for letter in letters {
        let line = export_line(&letter)?;
        if args.json {
            say(&format!("{line}\n"))?;
            continue;
        }
        let fields: serde_json::Map<String, Value> = serde_json::from_str(&line)?;
        let width = fields.keys().map(String::len).max().unwrap_or_default();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            say(&format!("{name:width$}  {text}\n"))?;
        }
        say("\n")?;
    }
    Ok(())
}

async fn replay(args: ReplayArgs) -> anyhow::Result<()> {
    let wanted = args.filter.wanted();
    anyhow::ensure!(
        args.all || wanted != Wanted::default(),
        "say which: --queue, --cause, --since, --tenant, --id; or --all for every one"
    );
    let place = Place::open(&args.place).await?;
    let mut parameters = args.filter.parameters();
    parameters["per_second"] = json!(args.per_second);
    parameters["limit"] = json!(args.limit);
    parameters["bus"] = json!(place.name());
    let turn = match place.replays_here() {
        true => Some(place.records().turn().await?),
        false => None,
    };
    let audit_id = place.records().begin("dlq.replay", parameters, args.dry_run).await?;
    // Until the outcome is recorded.
    let _turn = match turn {
        Some(turn) => Some(turn.now_for(audit_id).await?),
        None => None,
    };
    let pace = Pace { limit: args.limit, per_second: args.per_second, wait: args.wait };
    let replayed = if args.dry_run {
        place.would_replay(&wanted, pace).await
    } else {
        place.replay(&wanted, pace, audit_id).await
    };
    let outcome = match &replayed {
        Ok(done) => Outcome::Done { matched: done.matched, changed: done.changed },
        Err(failed) => {
            Outcome::Failed { changed: failed.changed, error: format!("{:#}", failed.error) }
        }
    };
    place.records().finish(audit_id, &outcome).await?;
    let done = replayed.map_err(|failed| failed.error)?;
    if args.json {
        let kept: Vec<_> =
            done.kept.iter().map(|(id, why)| json!({"message_id": id, "why": why})).collect();
        let all = json!({
            "audit_id": audit_id, "dry_run": args.dry_run, "matched": done.matched,
            "changed": done.changed, "kept": kept,
        });
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    for (id, why) in &done.kept {
        say(&format!("{id} stays: {why}\n"))?;
    }
    say(&format!("{}\n", done.sentence(args.dry_run)))
}

async fn export(args: ExportArgs) -> anyhow::Result<()> {
    let place = Place::open(&args.place).await?;
    let mut parameters = args.filter.parameters();
    parameters["limit"] = json!(args.limit);
    parameters["bus"] = json!(place.name());
    let audit_id = place.records().begin("dlq.export", parameters, false).await?;
    let exported = write_letters(&place, &args).await;
    let outcome = match &exported {
        Ok(matched) => Outcome::Done { matched: *matched, changed: 0 },
        Err(error) => Outcome::Failed { changed: 0, error: format!("{error:#}") },
    };
    place.records().finish(audit_id, &outcome).await?;
    exported.map(drop)
}

async fn write_letters(place: &Place, args: &ExportArgs) -> anyhow::Result<u64> {
    let mut written = 0;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let mut after = None;
    while let Some(page) = place.page(&args.filter.wanted(), &mut after, args.limit).await? {
        for letter in page {
            writeln!(out, "{}", export_line(&letter)?)?;
            written += 1;
        }
    }
    out.flush()?;
    Ok(written)
}
