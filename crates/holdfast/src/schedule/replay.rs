//! `holdfast schedule replay`: a day or a session again, and, where that is wanted, what it shows now as a new version.

use ::schedule::replay::{self, Applied, SessionAgain};
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
    /// Write what the session shows now as a new version, if that is not stored and nothing later was seen. With --user and --date: of the
    /// session by which the day was last seen.
    #[arg(long)]
    apply: bool,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.config.connect().await?;
    if args.apply {
        return apply(&mut client, &args).await;
    }
    match (args.session, args.user, args.date) {
        (Some(session), _, _) => {
            let config = args.config.load()?;
            let reader = config.extraction.reader().await?;
            let sure = config.worker.min_confidence;
            let again = replay::session(&client, &reader, sure, session).await?;
            if args.json {
                say(&format!("{}\n", serde_json::to_string_pretty(&again)?))?;
            }
            if let SessionAgain::Differs { why } = &again {
                bail!(
                    "session {session} is not the same: {why}\nWith --apply what it shows now becomes a new version."
                );
            }
            match args.json {
                true => Ok(()),
                false => say(&format!("session {session} is {}\n", words(&again))),
            }
        }
        (None, Some(user), Some(date)) => day(&client, user, date, args.json).await,
        _ => bail!("name a session with --session, or a day with --user and --date"),
    }
}

fn words(again: &SessionAgain) -> String {
    match again {
        SessionAgain::Same { schedule_date, version } => {
            format!("the same: version {version} of {schedule_date}")
        }
        SessionAgain::Known { schedule_date, version } => {
            format!("the same: version {version} of {schedule_date} shows what it shows")
        }
        SessionAgain::Superseded { schedule_date } => format!(
            "the same: it made no version of {schedule_date}, because a later capture had been seen"
        ),
        SessionAgain::Unread { why } => format!("the same: it cannot be read: {why}"),
        SessionAgain::Differs { why } => format!("not the same: {why}"),
    }
}

async fn apply(client: &mut tokio_postgres::Client, args: &Args) -> anyhow::Result<()> {
    let session = match (args.session, args.user, args.date) {
        (Some(session), _, _) => session,
        (None, Some(user), Some(date)) => match replay::last_seen(client, user, date).await? {
            Some(session) => session,
            None => bail!("user {user} has no version of {date}"),
        },
        _ => bail!("name a session with --session, or a day with --user and --date"),
    };
    let config = args.config.load()?;
    let reader = config.extraction.reader().await?;
    let sure = config.worker.min_confidence;
    let applied = replay::apply(client, &reader, sure, session).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&applied)?));
    }
    let text = match applied {
        Applied::Nothing { again } => {
            format!("nothing was written: session {session} is {}", words(&again))
        }
        Applied::Written { session_id, schedule_date, version, events, messages } => format!(
            "session {session} shows something else now: that is version {version} of {schedule_date}, with {events} events \
             and {messages} messages, by session {session_id}"
        ),
        Applied::Superseded { schedule_date } => format!(
            "nothing was written: session {session} shows something else now, and {schedule_date} was seen later"
        ),
    };
    say(&format!("{text}\n"))
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
