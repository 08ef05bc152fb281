//! `holdfast size`: what disks and memory a site needs, with the arithmetic.
//!
//! Nothing is asked and nothing is changed. The bytes of a row are those of `edge::retention::bytes`, which a test holds
//! against real tables; answers are good to about a quarter. Compression on the way, and what a disk needs beside the data, are
//! not in it.

mod estimate;

use std::time::Duration;

use crate::output::say;
use crate::table;
use estimate::{Estimate, Site};

/// `holdfast size`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast size --nodes 20 --rate 1 --outage 7d
  holdfast size --nodes 100 --rate 0.2 --images-per-day 5000 --image-size 800KiB --outage 14d
  holdfast size --nodes 20 --rate 1 --json | jq '.totals'")]
pub(crate) struct Args {
    /// Field nodes at the site.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    nodes: u64,
    /// Readings a second, of each node.
    #[arg(long, value_parser = rate)]
    rate: f64,
    /// Bytes of a reading as it is spooled.
    #[arg(long, default_value = "350", value_parser = settings::parse_size)]
    record_bytes: u64,
    /// Metrics that each node measures.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    metrics: u64,
    /// Images a day, of the whole site.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    images_per_day: u64,
    /// Bytes of an image.
    #[arg(long, default_value = "500KiB", value_parser = settings::parse_size)]
    image_size: u64,
    /// The longest outage of a link that must be survived without loss.
    #[arg(long, default_value = "7d", value_parser = settings::parse_duration)]
    outage: Duration,
    /// TELEMETRY_RAW_RETENTION_DAYS.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    raw_days: u64,
    /// TELEMETRY_AGG_RETENTION_DAYS.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    agg_days: u64,
    /// OUTBOX_RETENTION_DAYS.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    outbox_days: u64,
    /// MEDIA_RETENTION_DAYS.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    media_days: u64,
    /// JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// Prints the estimate.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let estimate = Estimate::of(&Site {
        nodes: args.nodes,
        rate: args.rate,
        record_bytes: args.record_bytes,
        metrics: args.metrics,
        images_per_day: args.images_per_day,
        image_size: args.image_size,
        outage: args.outage,
        raw_days: args.raw_days,
        agg_days: args.agg_days,
        outbox_days: args.outbox_days,
        media_days: args.media_days,
    });
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&estimate)?)),
        false => say(&shown(&estimate)),
    }
}

fn shown(estimate: &Estimate) -> String {
    let mut lines = table::new(&["where", "what", "size", "arithmetic"], &[2]);
    let mut before = "";
    for part in &estimate.parts {
        let place = if part.place == before { "" } else { part.place };
        lines.add_row([place, part.what, &amount(part.bytes), &part.arithmetic]);
        before = part.place;
    }
    let mut totals = table::new(&["", "needed"], &[1]);
    for (place, bytes) in &estimate.totals {
        totals.add_row([(*place).to_owned(), amount(*bytes)]);
    }
    format!(
        "{lines}\n\n{totals}\n\nGood to about a quarter. Plan for twice that: a vacuum, an index that is built anew and a backup need room too.\n"
    )
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 100_000.0 => Ok(rate),
        _ => Err("expected readings a second, above 0 and up to 100000, such as 0.2".to_owned()),
    }
}

/// Bytes as a person reads them: 1.5 GiB.
pub(crate) fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value < 100.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (1_048_064, "1.0 MiB"),
            (160 << 30, "160 GiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(amount(bytes), text);
        }
    }
}
