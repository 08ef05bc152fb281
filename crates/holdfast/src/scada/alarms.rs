//! `holdfast scada alarms …`: on the historian's own database. The audit names the OS user.

use std::time::Duration;

use ::scada::historian::alarms::{AlarmView, Deed, Key, Shown, act, list};
use ::scada::historian::audit::Actor;
use anyhow::Context;
use clap::Subcommand;
use jiff::Timestamp;

use super::historian::{ConfigArg, load};
use crate::output::{say, say_json};
use crate::table;

/// `holdfast scada alarms …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Alarms that want attention: active, or not acknowledged. The latest first.
    #[command(after_help = "Examples:
  holdfast scada alarms list
  holdfast scada alarms list --plant PLANT01 --all --json")]
    List(ListArgs),
    /// Say that somebody has seen it.
    #[command(after_help = "Examples:
  holdfast scada alarms ack PLANT01.AREA02.UNIT_05.HIGH_TEMP
  holdfast scada alarms ack PLANT01.AREA02.UNIT_05.HIGH_TEMP --json | jq .state")]
    Ack(ActArgs),
    /// Not to hear of it for a time.
    #[command(after_help = "Examples:
  holdfast scada alarms shelve PLANT01.AREA02.UNIT_05.HIGH_TEMP --minutes 60 --reason 'sensor is being replaced'")]
    Shelve(ShelveArgs),
    /// To hear of it again.
    #[command(after_help = "Examples:
  holdfast scada alarms unshelve PLANT01.AREA02.UNIT_05.HIGH_TEMP
  holdfast scada alarms list --all --json | jq '.[] | select(.shelved_until != null)'     what is shelved")]
    Unshelve(ActArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// One plant.
    #[arg(long)]
    plant: Option<String>,
    /// Those that are normal too.
    #[arg(long)]
    all: bool,
    /// The most rows.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ActArgs {
    /// The alarm: PLANT.AREA.UNIT.TAG.
    alarm: Key,
    /// The alarm as JSON, as `alarms list` has it, instead of a sentence.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShelveArgs {
    /// For how long.
    #[arg(long)]
    minutes: u64,
    /// Why.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    act: ActArgs,
}

/// Runs an `alarms` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => show(args).await,
        Command::Ack(args) => deed(args, Deed::Acknowledge).await,
        Command::Unshelve(args) => deed(args, Deed::Unshelve).await,
        Command::Shelve(args) => {
            let longest = load(&args.act.config)?.longest_shelf;
            let during = Duration::from_secs(args.minutes.saturating_mul(60));
            anyhow::ensure!(
                args.minutes > 0 && during <= longest,
                "--minutes must be 1 to {}: see historian.alarms.longest_shelf",
                longest.as_secs() / 60
            );
            deed(args.act, Deed::Shelve { during, reason: args.reason }).await
        }
    }
}

async fn client(from: &ConfigArg) -> anyhow::Result<(pg::Client, ::scada::historian::Config)> {
    let config = load(from)?;
    ::scada::migrate_historian(&config.database).await?;
    let pool = pg::Pool::new(&config.database)?;
    Ok((pool.get().await?, config))
}

async fn deed(args: ActArgs, deed: Deed) -> anyhow::Result<()> {
    let (mut client, config) = client(&args.config).await?;
    let actor = Actor::User(crate::user::this_user());
    act(&mut client, &actor, &args.alarm, &deed, Timestamp::now(), &config.rules).await?;
    let shown = Shown { key: Some(args.alarm.clone()), all: true, limit: 1, ..Shown::default() };
    let all = list(&client, &shown).await?;
    let alarm = all.first().context("the alarm is gone")?;
    if args.json {
        return say_json(alarm);
    }
    say(&format!("{} is {}\n", args.alarm, state(alarm)))
}

async fn show(args: ListArgs) -> anyhow::Result<()> {
    let (client, _) = client(&args.config).await?;
    let shown = Shown { plant: args.plant, all: args.all, limit: i64::from(args.limit), key: None };
    let alarms = list(&client, &shown).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&alarms)?));
    }
    if alarms.is_empty() {
        return say("No alarm wants attention.\n");
    }
    let now = Timestamp::now();
    let mut rows = table::new(&["alarm", "severity", "state", "value", "raised"], &[3]);
    for alarm in &alarms {
        let raised = alarm.last_raised_at.map_or_else(String::new, |at| {
            format!("{} ago", table::span(now.duration_since(at).as_secs()))
        });
        rows.add_row([
            alarm.key().to_string(),
            alarm.severity.clone(),
            state(alarm),
            format!("{} {}", alarm.value, alarm.unit),
            raised,
        ]);
    }
    say(&format!("{rows}\n"))
}

fn state(alarm: &AlarmView) -> String {
    let words = alarm.state.replace('_', ", ");
    let shelf = alarm.shelved_until.map(|until| format!(", shelved until {until:.0}"));
    let chatter = if alarm.chattering { ", chattering" } else { "" };
    format!("{words}{}{chatter}", shelf.unwrap_or_default())
}
