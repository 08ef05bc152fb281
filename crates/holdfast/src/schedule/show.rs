//! `holdfast schedule show`: a user's days, and the versions of one.

use ::schedule::canonical::Shift;
use ::schedule::diff::diff;
use ::schedule::history::{self, Version};
use jiff::civil::Date;

use super::ConfigArg;
use crate::output::say;
use crate::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user.
    #[arg(long, allow_negative_numbers = true)]
    user: i64,
    /// One day, like 2026-11-16, with its versions.
    #[arg(long)]
    date: Option<Date>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.config.connect().await?;
    let Some(date) = args.date else {
        let days = history::days(&client, args.user).await?;
        if args.json {
            return say(&format!("{}\n", serde_json::to_string_pretty(&days)?));
        }
        if days.is_empty() {
            return say(&format!("User {} has no day yet.\n", args.user));
        }
        let mut rows =
            table::new(&["day", "weekday", "version", "shifts", "events", "changed"], &[2, 3, 4]);
        for day in days {
            rows.add_row([
                day.schedule_date.to_string(),
                day.schedule_date.strftime("%A").to_string(),
                day.version.to_string(),
                day.shifts.map_or_else(|| "?".to_owned(), |shifts| shifts.to_string()),
                day.events.to_string(),
                day.changed_at.strftime("%F %T").to_string(),
            ]);
        }
        return say(&format!("{rows}\n"));
    };
    let versions = history::versions(&client, args.user, date).await?;
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&versions)?));
    }
    let Some(current) = versions.last() else {
        return say(&format!("User {} has no version of {date}.\n", args.user));
    };
    let mut rows =
        table::new(&["version", "made", "shifts", "changes", "hash", "session"], &[0, 2, 3]);
    let mut before: &[Shift] = &[];
    for version in &versions {
        rows.add_row([
            version.version.to_string(),
            version.created_at.strftime("%F %T").to_string(),
            version.day.shifts.len().to_string(),
            diff(before, &version.day.shifts).len().to_string(),
            version.payload_hash.chars().take(12).collect(),
            version.session_id.to_string(),
        ]);
        before = &version.day.shifts;
    }
    say(&format!("{rows}\n\n{}", day(current)))
}

/// The shifts of a version.
fn day(version: &Version) -> String {
    let (date, zone) = (version.day.schedule_date, &version.day.timezone);
    let heading = format!("{} {date} in version {}, {zone}", date.strftime("%A"), version.version);
    if version.day.shifts.is_empty() {
        return format!("{heading}: no shift\n");
    }
    let mut rows = table::new(&["from", "to", "what", "where", "for whom", "kind"], &[]);
    for shift in &version.day.shifts {
        let next = if shift.ends_next_day { " (next day)" } else { "" };
        rows.add_row([
            shift.start.clone(),
            format!("{}{next}", shift.end),
            shift.title.clone(),
            shift.location.clone(),
            shift.customer.clone(),
            shift.kind.clone(),
        ]);
    }
    format!("{heading}:\n{rows}\n")
}
