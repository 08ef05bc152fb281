//! The rehearsal: a restore into a scratch database, checked, timed, and reported.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Role;
use super::place::{Fetched, Place};
use super::{restore, tools};
use crate::output::say;

/// The site's recovery time target: 5.4 hours.
const TARGET: Duration = Duration::from_secs(5 * 3_600 + 24 * 60);
/// How the names of scratch databases begin.
const SCRATCH: &str = "holdfast_drill_";
/// A scratch database to which nobody is connected is a leftover when it is so old; a younger one may be about to be used.
const LEFTOVER_AFTER: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which backup; the newest of the role if not said.
    id: Option<String>,
    /// The folder with the backups, or s3.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    from: PathBuf,
    /// Whose backup, where none is named.
    #[arg(long, value_enum, default_value = "edge")]
    role: Role,
    /// A server to rehearse on; the role's own if not said. The user must be allowed to make databases.
    #[arg(long, env = "HOLDFAST_DRILL_URL", hide_env_values = true)]
    server: Option<String>,
    /// Tables restored at once.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// JSON instead of sentences.
    #[arg(long)]
    json: bool,
    /// The configuration; the role's section and backup are read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

/// What the rehearsal showed.
#[derive(Debug, Serialize)]
struct Report {
    backup: String,
    role: Role,
    at: Timestamp,
    database_bytes: i64,
    dump_bytes: u64,
    tables: usize,
    rows: i64,
    streams: usize,
    objects: u64,
    objects_copied: u64,
    steps: Vec<Step>,
    seconds: f64,
    target_seconds: f64,
    within_target: bool,
    differences: Vec<String>,
    passed: bool,
}

#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    seconds: f64,
}

/// Runs it.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let begun = Instant::now();
    let place = Place::existing(&args.from, args.config.as_deref())?;
    let backup = place.find(args.id.as_deref(), Some(args.role)).await?;
    let server = match &args.server {
        Some(url) => pg::Options::new(url),
        None => backup.manifest.role.database(args.config.as_deref())?,
    };
    let admin = pg::connect(&server).await?;
    let leftover = scratch_name(Timestamp::now().checked_sub(LEFTOVER_AFTER)?);
    for name in pg::whole::drop_unused(&admin, SCRATCH, &leftover).await? {
        tracing::warn!(name, "dropped the database that an interrupted drill left");
    }
    let name = format!("{}_{:08x}", scratch_name(Timestamp::now()), rand::random::<u32>());
    pg::whole::create_database(&admin, &name).await.with_context(|| {
        "make a scratch database; the user needs CREATEDB, or give another --server".to_owned()
    })?;
    let scratch = server.on_database(&name)?;
    // While somebody is connected, no other drill takes it for a leftover.
    let held = pg::connect(&scratch).await?;
    let rehearsed = rehearse(&backup, begun, &scratch, args.jobs).await;
    drop(held);
    pg::whole::drop_database(&admin, &name).await?;
    let report = rehearsed?;
    let file = write(&place, &report).await?;
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => say(&format!("{}\nThe report is {file}\n", markdown(&report)))?,
    }
    anyhow::ensure!(
        report.passed,
        "the drill failed: {}",
        match report.differences.is_empty() {
            true => "it took longer than the target".to_owned(),
            false => report.differences.join("; "),
        }
    );
    Ok(())
}

/// The names of scratch databases sort by the time at which they are made.
fn scratch_name(at: Timestamp) -> String {
    format!("{SCRATCH}{}", at.strftime("%Y%m%d%H%M%S"))
}

async fn rehearse(
    backup: &Fetched,
    begun: Instant,
    scratch: &pg::Options,
    jobs: u16,
) -> anyhow::Result<Report> {
    let at = Timestamp::now();
    let manifest = &backup.manifest;
    let mut lap = begun;
    let mut steps = Vec::new();
    let mut done = |step| {
        steps.push(Step { step, seconds: lap.elapsed().as_secs_f64() });
        lap = Instant::now();
    };
    done("find the backup");
    let mut differences = Vec::new();
    if let Err(error) = restore::verify(backup).await {
        differences.push(format!("{error:#}"));
    }
    done("check files and objects");
    if differences.is_empty() {
        match tools::restore(scratch, jobs, &backup.folder.join("database")).await {
            Ok(()) => {
                done("restore the database");
                differences = restore::compare(manifest, scratch).await?;
                done("compare with the manifest");
            }
            Err(error) => differences.push(format!("{error:#}")),
        }
    }
    let taken = begun.elapsed();
    let within_target = taken <= TARGET;
    Ok(Report {
        backup: manifest.id.clone(),
        role: manifest.role,
        at,
        database_bytes: manifest.database_bytes,
        dump_bytes: manifest.bytes(),
        tables: manifest.tables.len(),
        rows: manifest.tables.values().sum(),
        streams: manifest.ledger.streams.len(),
        objects: manifest.objects.count,
        objects_copied: manifest.objects.copied,
        steps,
        seconds: taken.as_secs_f64(),
        target_seconds: TARGET.as_secs_f64(),
        within_target,
        passed: within_target && differences.is_empty(),
        differences,
    })
}

/// Leaves the report, for people and for programs; returns where the one for people is.
async fn write(place: &Place, report: &Report) -> anyhow::Result<String> {
    let stem = format!("drill-{}", report.at.strftime("%Y%m%dT%H%M%SZ"));
    place.leave(&format!("{stem}.json"), serde_json::to_vec_pretty(report)?).await?;
    place.leave(&format!("{stem}.md"), markdown(report).into_bytes()).await
}

fn markdown(report: &Report) -> String {
    let mut text =
        format!("# Restore drill: {}\n\n", if report.passed { "passed" } else { "failed" });
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let _ = writeln!(
        text,
        "Backup {} of {}, rehearsed at {}.",
        report.backup,
        report.role.as_str(),
        report.at
    );
    let _ = writeln!(
        text,
        "The database had {} MiB, the dump has {} MiB: {} tables, {} rows, {} streams; {} images, {} of them copied.\n",
        megabytes(report.database_bytes.unsigned_abs()),
        megabytes(report.dump_bytes),
        report.tables,
        report.rows,
        report.streams,
        report.objects,
        report.objects_copied
    );
    text.push_str("| step | seconds |\n|---|---|\n");
    for step in &report.steps {
        let _ = writeln!(text, "| {} | {:.1} |", step.step, step.seconds);
    }
    let _ = writeln!(
        text,
        "| all | {:.1} |\n\nThe target is 5.4 hours ({:.0} s): {}.",
        report.seconds,
        report.target_seconds,
        if report.within_target { "met" } else { "missed" }
    );
    match report.differences.is_empty() {
        true => {
            text.push_str("Rows of every table and the ledger's hash are as the manifest says.\n")
        }
        false => {
            text.push_str("\nDifferences:\n");
            for one in &report.differences {
                let _ = writeln!(text, "- {one}");
            }
        }
    }
    text
}
