//! The page in Chromium, on a console with a thousand nodes that are heard every second, beside a bare page in the same browser. What is measured is in `web/tests/measure.mjs`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::ground::{self, Ground};
use crate::place::Place;
use crate::row::Row;

const NAME: &str = "page";
/// How often the nodes report.
const HEARD_EVERY: Duration = Duration::from_secs(1);
const TOO_LONG: Duration = Duration::from_secs(600);

/// A line of the browser's answer.
#[derive(Deserialize)]
struct Seen {
    name: String,
    unit: String,
    value: f64,
    baseline: f64,
    /// Whether a larger value is better.
    more: bool,
    bar: Option<f64>,
}

impl From<Seen> for Row {
    fn from(seen: Seen) -> Row {
        let make = if seen.more { Row::more } else { Row::less };
        let row = make(format!("{NAME}/{}", seen.name), &seen.unit, seen.value, seen.baseline);
        Row { bar: seen.bar, ..row }
    }
}

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    ground::on(place, NAME, |runtime, ground| {
        place.say(NAME, "looking at it in Chromium");
        runtime.block_on(look(ground))
    })
}

async fn look(ground: &Ground) -> Result<Vec<Row>> {
    let (address, token) = ground.door().await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let browser = tokio::process::Command::new("node")
        .args(["tests/measure.mjs", "--json"])
        .current_dir(folder)
        .env("HOLDFAST_CONSOLE", address)
        .env("HOLDFAST_OPERATOR_TOKEN", token)
        .kill_on_drop(true)
        .output();
    let mut browser = std::pin::pin!(tokio::time::timeout(TOO_LONG, browser));
    let mut tick = tokio::time::interval(HEARD_EVERY);
    let output = loop {
        tokio::select! {
            output = &mut browser => break output.context("the browser does not end")?.context("run node; ./dev bench installs it")?,
            _ = tick.tick() => ground.hear().await?,
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "node tests/measure.mjs: {}", said.trim());
    let seen: Vec<Seen> = serde_json::from_slice(&output.stdout).context("what the browser saw")?;
    Ok(seen.into_iter().map(Row::from).collect())
}
