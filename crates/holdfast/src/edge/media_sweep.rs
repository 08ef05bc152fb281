//! `holdfast edge media-sweep`: rows and objects of images compared once.

use crate::output::say;
use crate::table;

use super::ConfigArg;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tell what would be done.
    #[arg(long)]
    dry_run: bool,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// What each count means, in the order of the report.
const MEANINGS: [(&str, &str); 12] = [
    ("completed", "uploads that were there and nobody had completed"),
    ("expired", "places whose time was over, removed"),
    ("rejected", "uploads that were not as announced, removed when their time was over"),
    ("adopted", "objects without a row that got one"),
    ("removed", "objects without a row, removed"),
    ("foreign", "objects that are none of ours, left alone"),
    ("missing", "stored images whose object is gone"),
    ("resized", "images whose object is another one than their row tells of: for a person"),
    ("restored", "missing images whose object is back"),
    ("leftovers", "objects of deleted images, removed"),
    ("aborted", "uploads in parts that nobody knew, aborted"),
    ("damaged", "rows that could not be mended: see the log"),
];

/// Runs it.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let config = super::load(args.config.config.as_deref())?;
    let Some(report) = edge::media::sweep::once(&config, args.dry_run).await? else {
        anyhow::bail!("another replica is sweeping: try again when it is done");
    };
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    let whole = |count: u64| table::grouped(i64::try_from(count).unwrap_or(i64::MAX));
    let mut shown = table::new(&["found", "count", "meaning"], &[1]);
    for (name, count) in report.counts().into_iter().filter(|(_, count)| *count > 0) {
        let meaning = MEANINGS.iter().find(|(known, _)| *known == name).map_or("", |found| found.1);
        shown.add_row([name.to_owned(), whole(count), meaning.to_owned()]);
    }
    let looked = format!(
        "Looked at {} objects and {} rows; {} uploads are still awaited, {} objects without a row were left.\n",
        whole(report.objects),
        whole(report.rows),
        whole(report.waiting),
        whole(report.orphans),
    );
    if report.counts().iter().all(|(_, count)| *count == 0) {
        return say(&format!("{looked}Rows and objects agree.\n"));
    }
    let mode = if args.dry_run { "Nothing was changed: this was a dry run.\n" } else { "" };
    say(&format!("{looked}{shown}\n{mode}"))
}
