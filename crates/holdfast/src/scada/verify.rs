//! `holdfast scada verify`: whether the historian has what a node has sent, and sending again what is missing.

use std::path::PathBuf;
use std::time::Duration;

use ::scada::audit::Actor;
use ::scada::verify::{Compared, Span, compare, send_again};
use jiff::Timestamp;
use serde::Serialize;

use crate::output::{say, say_json};
use crate::table;

/// Ids that a person is shown; JSON has all of them.
const SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast scada verify --config scada.toml                      with a [producer] and a [historian] section
  holdfast scada verify --config node.toml --historian-config historian.toml --since 7d
  holdfast scada verify --config scada.toml --json | jq -r '.wrong[].missing[]'
  holdfast scada verify --config scada.toml --repair             what is missing is sent again")]
pub(crate) struct Args {
    /// What was sent since then; a time, or 24h for a day ago. What the outbox has pruned is not compared.
    #[arg(long, default_value = "24h", value_parser = crate::outbox::moment)]
    since: Timestamp,
    /// What was sent within this time may be on its way, such as 10m.
    #[arg(long, default_value = "10m", value_parser = crate::verify::span)]
    grace: Duration,
    /// Send again what is missing: the rows are PENDING again, on record in the node's operator_audit.
    #[arg(long)]
    repair: bool,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The configuration; its producer section says where the node's database is, its historian section where the historian's is. The
    /// environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// Another file with the historian section.
    #[arg(long, value_name = "FILE")]
    historian_config: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    compared: Compared,
    missing: usize,
    dead_letters: usize,
    /// Rows that go again; absent without --repair.
    sent_again: Option<u64>,
}

/// Runs it.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let node = ::scada::producer::Config::load(args.config.as_deref(), crate::config::environment)?;
    let file = args.historian_config.as_deref().or(args.config.as_deref());
    let historian = ::scada::historian::Config::load(file, crate::config::environment)?;
    let mut outbox = pg::connect(&node.database).await?;
    let store = pg::connect(&historian.database).await?;
    let span = Span { since: args.since, grace: args.grace };
    let compared = compare(&outbox, &store, span).await?;
    let missing = compared.missing();
    let sent_again = match args.repair {
        true => {
            let actor = Actor::User(crate::user::this_user());
            Some(send_again(&mut outbox, &actor, &missing).await?)
        }
        false => None,
    };
    let dead_letters = compared.wrong.iter().map(|hour| hour.dead_letters.len()).sum();
    let report = Report { compared, missing: missing.len(), dead_letters, sent_again };
    match args.json {
        true => say_json(&report)?,
        false => say(&shown(&report))?,
    }
    let wrong = format!("{} events were sent and are not in the historian", report.missing);
    match (report.missing, report.dead_letters, report.sent_again) {
        (0, 0, _) => Ok(()),
        (0, dead, _) => anyhow::bail!(
            "{dead} events were given up by the historian: holdfast dlq list --scada says why"
        ),
        (_, _, Some(_)) => anyhow::bail!("{wrong} yet: they go again; look again later"),
        (_, _, None) => anyhow::bail!(
            "{wrong}: look at the dead letters of the broker (holdfast dlq list --scada); --repair sends them again"
        ),
    }
}

fn shown(report: &Report) -> String {
    let compared = &report.compared;
    let mut text = String::new();
    if !compared.wrong.is_empty() {
        let headings = ["hour", "plant", "node", "sent", "stored", "missing", "given up"];
        let mut rows = table::new(&headings, &[2, 3, 4, 5, 6]);
        let count = |number: usize| table::grouped(i64::try_from(number).unwrap_or(i64::MAX));
        for hour in &compared.wrong {
            rows.add_row([
                hour.hour.to_string(),
                hour.plant.clone(),
                hour.node_id.to_string(),
                table::grouped(hour.sent),
                table::grouped(hour.stored),
                count(hour.missing.len()),
                count(hour.dead_letters.len()),
            ]);
        }
        text.push_str(&format!("{rows}\n"));
    }
    let missing = compared.missing();
    for id in missing.iter().take(SHOWN) {
        text.push_str(&format!("missing: {id}\n"));
    }
    if missing.len() > SHOWN {
        text.push_str(&format!("… and {} more; --json has all\n", missing.len() - SHOWN));
    }
    if let Some(again) = report.sent_again {
        text.push_str(&format!("{again} events go again.\n"));
    }
    let events = table::grouped(compared.events);
    text.push_str(&format!("{events} events of {} hours were compared.\n", compared.hours));
    text
}
