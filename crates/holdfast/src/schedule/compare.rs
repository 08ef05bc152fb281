//! `holdfast schedule diff`: what two versions of a day differ in.

use ::schedule::canonical::Shift;
use ::schedule::diff::{Change, diff};
use ::schedule::history::{self, Version};
use ::schedule::notify::{Language, line, sentence};
use anyhow::Context;
use serde_json::json;

use super::{ConfigArg, DayArg};
use crate::output::say;
use crate::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    day: DayArg,
    /// The older version; the one before the other when absent. 0 is the empty day.
    #[arg(long)]
    from: Option<i32>,
    /// The newer version; the current one when absent.
    #[arg(long)]
    to: Option<i32>,
    /// The language of the sentences: en, de, es, fr.
    #[arg(long, default_value = "en")]
    language: String,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.config.connect().await?;
    let (user, date) = (args.day.user, args.day.date);
    let versions = history::versions(&client, user, date).await?;
    let current =
        versions.last().with_context(|| format!("user {user} has no version of {date}"))?;
    let find = |number: i32| {
        let found = versions.iter().find(|version| version.version == number);
        found.with_context(|| {
            format!("there is no version {number} of this day: they are 1 to {}", current.version)
        })
    };
    let to = args.to.map_or(Ok(current), find)?;
    let from = match args.from.unwrap_or(to.version - 1) {
        0 => None,
        number => Some(find(number)?),
    };
    let old = from.map_or(&[][..], |version| &version.day.shifts);
    let changes = diff(old, &to.day.shifts);
    let language = Language::of_tag(&args.language);
    let told = |change: &Change| sentence(change, date, language);
    let types =
        |change: &Change| change.types.iter().map(|aspect| aspect.as_str()).collect::<Vec<_>>();
    let number = |version: Option<&Version>| version.map_or(0, |version| version.version);
    if args.json {
        let list: Vec<_> = changes
            .iter()
            .map(|change| {
                json!({"types": types(change), "old": change.old, "new": change.new, "words": told(change)})
            })
            .collect();
        let all = json!({"user_id": user, "schedule_date": date, "from": number(from),
            "to": to.version, "changes": list});
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let heading = format!("{date}, version {} to {}", number(from), to.version);
    if changes.is_empty() {
        let zones = from.is_some_and(|from| from.day.timezone != to.day.timezone);
        let only = if zones { "only the time zone differs" } else { "no shift differs" };
        return say(&format!("{heading}: {only}\n"));
    }
    let mut rows = table::new(&["change", "before", "after", "in words"], &[]);
    let shown = |shift: &Option<Shift>| {
        shift.as_ref().map_or_else(|| "-".to_owned(), |shift| line(shift, language))
    };
    for change in &changes {
        rows.add_row([
            types(change).join(", "),
            shown(&change.old),
            shown(&change.new),
            told(change),
        ]);
    }
    say(&format!("{heading}:\n{rows}\n"))
}
