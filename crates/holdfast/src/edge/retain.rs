//! `holdfast edge retain` and `holdfast edge lifecycle`: what retention does, once and for a person to read.

use clap::ValueEnum;
use edge::retention::{Fate, Report, Retention, lifecycle};

use super::{ConfigArg, load};
use crate::output::say;
use crate::table;

#[derive(Debug, clap::Args)]
pub(crate) struct RetainArgs {
    /// Change nothing, and say what would go and what is held.
    #[arg(long)]
    dry_run: bool,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LifecycleArgs {
    /// As the AWS command line takes it, or as S3's own API does.
    #[arg(long, value_enum, default_value = "json")]
    format: Format,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Json,
    Xml,
}

/// Runs one turn, or looks at what one would do.
pub(crate) async fn retain(args: RetainArgs) -> anyhow::Result<()> {
    let config = load(args.config.config.as_deref())?;
    let retention = Retention::new(&config, config.object_store()?);
    let report = match args.dry_run {
        true => retention.look().await?,
        false => retention.turn().await?.ok_or_else(|| {
            anyhow::anyhow!("another process is at it: a replica of the edge, or another retain. Try again later")
        })?,
    };
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => say(&shown(&report))?,
    }
    // Everything else was done; a cron has to hear of the rest all the same.
    match report.failures.first() {
        Some(failure) => {
            anyhow::bail!("the job {} ended early: {}", failure.job.as_str(), failure.why)
        }
        None => Ok(()),
    }
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    if report.lines.is_empty() {
        text.push_str("Nothing has expired.\n");
    } else {
        let mut lines = table::new(&["job", "what", "", "rows", "size", "why"], &[3, 4]);
        for line in &report.lines {
            lines.add_row([
                line.job.as_str().to_owned(),
                line.what.clone(),
                line.fate.as_str().to_owned(),
                table::grouped(line.rows.cast_signed()),
                line.bytes.map_or_else(|| "-".to_owned(), crate::size::amount),
                line.why.clone(),
            ]);
        }
        text.push_str(&format!("{lines}\n"));
    }
    if let Some(disk) = &report.disk {
        let amount = crate::size::amount;
        let mut words = format!("The database takes {}", amount(disk.database));
        if let Some(most) = disk.max_database {
            words.push_str(&format!(" of {}", amount(most)));
        }
        if disk.reusable > 0 {
            words.push_str(&format!(", of which {} are free for new rows", amount(disk.reusable)));
        }
        if let (Some(free), Some(least)) = (disk.free, disk.min_free) {
            words.push_str(&format!(
                "; {} free on its disk, wanted {}",
                amount(free),
                amount(least)
            ));
        }
        if disk.over > 0 {
            words.push_str(&format!("; that is {} too much", amount(disk.over)));
        }
        text.push_str(&format!("{words}.\n"));
        if let (Some(held), Some(most)) = (disk.media, disk.max_media) {
            text.push_str(&format!("Images take {} of {}", amount(held), amount(most)));
            let over = amount(disk.media_over);
            let too_much = format!("; that is {over} too much");
            text.push_str(if disk.media_over > 0 { &too_much } else { "" });
            text.push_str(".\n");
        }
    }
    let held = report.lines.iter().any(|line| line.fate == Fate::Held);
    if held {
        text.push_str("What is held goes when its reason does: see holdfast outbox stats, and for images holdfast verify.\n");
    }
    text
}

/// Prints rules for the object store, and what they cannot know.
pub(crate) fn rules(args: &LifecycleArgs) -> anyhow::Result<()> {
    let config = load(args.config.config.as_deref())?;
    tracing::warn!("{}", lifecycle::WARNING);
    match args.format {
        Format::Json => {
            let rules = lifecycle::json(&config.retention);
            say(&format!("{}\n", serde_json::to_string_pretty(&rules)?))
        }
        Format::Xml => say(&lifecycle::xml(&config.retention)),
    }
}
