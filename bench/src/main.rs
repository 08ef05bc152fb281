//! Benchmarks, run by `./dev bench [name]`: all of them, or those whose name contains `name`.
//!
//! Every benchmark is a file here and a line in [`BENCHMARKS`]: a function that measures something beside a baseline in the same
//! run, interleaved, and returns [`Row`]s. The table goes to the terminal, the rows to `target/bench.json`. A value below its bar
//! is said in the table and is not a failure: machines vary. The exit code tells whether everything ran.

mod bus_kafka;
mod bus_publish;
mod console;
mod end_to_end;
mod event_parse;
mod historian;
mod http_ingest;
mod ingress;
mod measure;
mod node_publisher;
mod outbox_drain;
mod outbox_peers;
mod outbox_tables;
mod place;
mod readings;
mod report;
mod retention;
mod row;
mod scada_pipeline;
mod schedule;
mod spool_append;
mod spool_recovery;
mod spool_sqlite;
mod telemetry;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use place::Place;
use row::Row;

type Benchmark = fn(&Place) -> Result<Vec<Row>>;

/// In the order of the data's path. The name of each row begins with its benchmark's.
const BENCHMARKS: &[(&str, Benchmark)] = &[
    ("spool_append", spool_append::run),
    ("spool_sqlite", spool_sqlite::run),
    ("spool_recovery", spool_recovery::run),
    ("node_publisher", node_publisher::run),
    ("event_parse", event_parse::run),
    ("ingress", ingress::run),
    ("http_ingest", http_ingest::run),
    ("end_to_end", end_to_end::run),
    ("telemetry", telemetry::run),
    ("outbox_drain", outbox_drain::run),
    ("retention_claim", retention::run),
    ("bus_publish", bus_publish::run),
    ("bus_kafka", bus_kafka::run),
    ("historian_insert", historian::run),
    ("scada_pipeline", scada_pipeline::run),
    ("schedule", schedule::run),
    ("console", console::run),
    ("page", console::page::run),
];

/// Sizes are those that are named, where a run is otherwise cut to a time.
const FULL: &str = "--full";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every benchmark ran.
fn run() -> Result<bool> {
    let full = std::env::args().any(|argument| argument == FULL);
    let filter = std::env::args().skip(1).find(|argument| argument != FULL).unwrap_or_default();
    if filter == node_publisher::bare::ARGUMENT {
        let task = std::env::args().nth(2).context("a bare loop needs its task")?;
        return node_publisher::bare::run(&task).map(|()| true);
    }
    let chosen: Vec<_> = BENCHMARKS.iter().filter(|(name, _)| name.contains(&filter)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = BENCHMARKS.iter().map(|(name, _)| *name).collect();
        bail!("no benchmark has {filter:?} in its name; there are: {}", names.join(", "));
    }
    let place = Place::find(full)?;
    let mut rows = Vec::new();
    let mut ran = Vec::new();
    let mut failed = 0;
    for (name, benchmark) in &chosen {
        place.say(name, "starting");
        match benchmark(&place) {
            Ok(measured) => {
                rows.extend(measured);
                ran.push(*name);
            }
            Err(error) => {
                failed += 1;
                place.complain(&format!("{name} could not run: {error:#}"));
            }
        }
    }
    place.be_quiet();
    let file = place.target.join("bench.json");
    let mut out = std::io::stdout();
    writeln!(out, "{}", report::table(&rows))?;
    writeln!(out, "{}", report::summary(&rows, failed, &file))?;
    let known = BENCHMARKS.iter().map(|(name, _)| *name);
    report::merge(&file, &rows, &ran, known)
        .with_context(|| format!("write {}", file.display()))?;
    Ok(failed == 0)
}
