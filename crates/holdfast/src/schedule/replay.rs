//! `holdfast schedule replay`: a day or a session again, without writing.

use ::schedule::replay::{self, SessionAgain};
use anyhow::bail;
use jiff::civil::Date;
use uuid::Uuid;

use super::ConfigArg;
use crate::output::say;
use crate::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A session that has ended: its images are read again.
    #[arg(long, conflicts_with_all = ["user", "date"], required_unless_present = "user")]
    session: Option<Uuid>,
    /// The user of a day, whose versions, events and messages are made again.
    #[arg(long, allow_negative_numbers = true, requires = "date")]
    user: Option<i64>,
    /// The day, like 2026-11-16.
    #[arg(long, requires = "user")]
    date: Option<Date>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.config.connect().await?;
    match (args.session, args.user, args.date) {
        (Some(session), _, _) => {
            let reader = args.config.load()?.extraction.reader().await?;
            let again = replay::session(&client, &reader, session).await?;
            if args.json {
                say(&format!("{}\n", serde_json::to_string_pretty(&again)?))?;
            }
            let words = match &again {
                SessionAgain::Same { schedule_date, version } => {
                    format!("the same: version {version} of {schedule_date}")
                }
                SessionAgain::Known { schedule_date, version } => format!(
                    "the same: it made no version, because version {version} of {schedule_date} shows what it shows"
                ),
                SessionAgain::Superseded { schedule_date } => format!(
                    "the same: it made no version of {schedule_date}, because a later capture had been seen"
                ),
                SessionAgain::Unread { why } => format!("the same: it cannot be read: {why}"),
                SessionAgain::Differs { why } => bail!("session {session} is not the same: {why}"),
            };
            if args.json { Ok(()) } else { say(&format!("session {session} is {words}\n")) }
        }
        (None, Some(user), Some(date)) => day(&client, user, date, args.json).await,
        _ => bail!("name a session with --session, or a day with --user and --date"),
    }
}

async fn day(
    client: &tokio_postgres::Client,
    user: i64,
    date: Date,
    json: bool,
) -> anyhow::Result<()> {
    let again = replay::day(client, user, date).await?;
    let wrong = again.iter().filter(|version| !version.differs.is_empty()).count();
    if json {
        say(&format!("{}\n", serde_json::to_string_pretty(&again)?))?;
    } else if again.is_empty() {
        say(&format!("User {user} has no version of {date}.\n"))?;
    } else {
        let headings = ["version", "events", "messages", "again", "session"];
        let mut rows = table::new(&headings, &[0, 1, 2]);
        for version in &again {
            rows.add_row([
                version.version.to_string(),
                version.events.to_string(),
                version.messages.to_string(),
                match version.differs.is_empty() {
                    true => "the same".to_owned(),
                    false => version.differs.join("; "),
                },
                version.session_id.to_string(),
            ]);
        }
        say(&format!("{rows}\n"))?;
    }
    match wrong {
        0 => Ok(()),
        _ => bail!("{wrong} of {} versions are not the same", again.len()),
    }
}
