//! The arithmetic.

use std::time::Duration;

use edge::retention::bytes;
use serde::Serialize;

use super::amount;

const DAY: u64 = 86_400;
/// Months go whole: of the oldest one up to this many days are kept longer.
const MONTH: u64 = 31;
/// Hours that an event id stays in the dedupe cache.
const DEDUPE_HOURS: u64 = 72;
/// What a segment that is not yet full, its footer and the spool's other files take.
const SPOOL_REST: u64 = 16 << 20;
/// A node's process.
const NODE_MEMORY: u64 = 20 << 20;
/// An edge's process before it holds anything.
const EDGE_MEMORY: u64 = 64 << 20;
/// `ingress.max_held` as it is by default.
const INGRESS_HELD: u64 = 64 << 20;
/// Batches of the forwarder at once (two workers for either part), and events in each, as they are by default.
const BATCHES: u64 = 4;
const BATCH_EVENTS: u64 = 500;
/// An event is in memory as a row, as JSON and in a body.
const COPIES: u64 = 3;

/// What is asked.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Site {
    pub(super) nodes: u64,
    pub(super) rate: f64,
    pub(super) record_bytes: u64,
    pub(super) metrics: u64,
    pub(super) images_per_day: u64,
    pub(super) image_size: u64,
    #[serde(skip)]
    pub(super) outage: Duration,
    pub(super) raw_days: u64,
    pub(super) agg_days: u64,
    pub(super) outbox_days: u64,
    pub(super) media_days: u64,
}

/// One line of the arithmetic.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Part {
    pub(super) place: &'static str,
    pub(super) what: &'static str,
    pub(super) bytes: u64,
    pub(super) arithmetic: String,
}

/// What is needed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Estimate {
    input: Site,
    outage_seconds: u64,
    pub(super) parts: Vec<Part>,
    pub(super) totals: Vec<(&'static str, u64)>,
}

/// A number of things, with its unit.
type Factor = (u64, &'static str);

impl Estimate {
    pub(super) fn of(site: &Site) -> Estimate {
        let outage = site.outage.as_secs().max(1);
        let per_node_day = ceil(site.rate * DAY as f64);
        let per_day = per_node_day.saturating_mul(site.nodes);
        let of_outage = |rate: f64| ceil(rate * outage as f64);
        let backlog = of_outage(site.rate * site.nodes as f64);
        let images = (site.images_per_day, "images/day");
        // A bucket needs a reading: what measures seldom has fewer.
        let buckets = (1440 + 24 + 1).min(per_node_day.saturating_mul(3).max(1));
        let media_days = site.media_days.max(outage.div_ceil(DAY));
        let record = (site.record_bytes, "B a reading");
        let acked = bytes::acked_row(site.record_bytes / 2);
        let waiting = bytes::outbox_row(site.record_bytes / 2);

        let mut parts = Vec::new();
        let mut add = |place, what, factors: &[Factor], rest: u64| {
            parts.push(part(place, what, factors, rest));
        };
        let framed = (site.record_bytes + bytes::SPOOL_FRAME, "B with its frame");
        add(
            "disk of a node",
            "spool",
            &[(of_outage(site.rate), "readings of the outage"), framed],
            SPOOL_REST,
        );
        let edge = "edge database";
        let readings = (per_day, "readings/day");
        let raw_days = (site.raw_days + MONTH, "days, for months go whole");
        add(edge, "telemetry_raw", &[readings, raw_days, (bytes::RAW_ROW, "B a row")], 0);
        let series = (site.nodes * site.metrics, "series");
        let agg_days = (site.agg_days + MONTH, "days");
        add(
            edge,
            "telemetry_agg",
            &[series, (buckets, "buckets/day"), agg_days, (bytes::AGG_ROW, "B a row")],
            0,
        );
        let outbox_days = (site.outbox_days, "days");
        add(edge, "sync_outbox, delivered", &[readings, outbox_days, (acked, "B a row")], 0);
        add(
            edge,
            "sync_outbox, waiting",
            &[(backlog, "readings of the outage"), (waiting, "B a row")],
            0,
        );
        let hourly = (per_day.div_ceil(24), "readings/hour");
        add(
            edge,
            "ingress_dedupe",
            &[hourly, (DEDUPE_HOURS, "hours"), (bytes::DEDUPE_ROW, "B a row")],
            0,
        );
        let kept = (media_days, "days");
        add(edge, "media_objects", &[images, kept, (bytes::MEDIA_ROW, "B a row")], 0);
        add("object store", "images", &[images, kept, (site.image_size, "B an image")], 0);
        let relay = (bytes::relay_row(site.record_bytes), "B a row");
        add("cloud backlog", "relay_outbox", &[(backlog, "readings of the outage"), relay], 0);
        add("memory of a node", "process", &[], NODE_MEMORY);
        let memory = "memory of the edge";
        add(memory, "process and ingress", &[], EDGE_MEMORY + INGRESS_HELD);
        let in_flight =
            [(BATCHES, "batches"), (BATCH_EVENTS, "events"), record, (COPIES, "copies")];
        add(memory, "forwarder", &in_flight, 0);
        let totals = totals(&parts);
        Estimate { input: site.clone(), outage_seconds: outage, parts, totals }
    }
}

fn part(place: &'static str, what: &'static str, factors: &[Factor], rest: u64) -> Part {
    let mut words: Vec<String> = factors
        .iter()
        .map(|(number, unit)| format!("{} {unit}", crate::table::grouped(number.cast_signed())))
        .collect();
    let product = match factors {
        [] => 0,
        factors => {
            factors.iter().fold(1u64, |product, (number, _)| product.saturating_mul(*number))
        }
    };
    let mut arithmetic = words.join(" × ");
    if rest > 0 {
        words = vec![arithmetic, amount(rest)];
        words.retain(|word| !word.is_empty());
        arithmetic = words.join(" + ");
    }
    Part { place, what, bytes: product.saturating_add(rest), arithmetic }
}

/// The sum of every place, in the order of the places.
fn totals(parts: &[Part]) -> Vec<(&'static str, u64)> {
    let mut totals: Vec<(&'static str, u64)> = Vec::new();
    for part in parts {
        match totals.last_mut() {
            Some((place, sum)) if *place == part.place => *sum = sum.saturating_add(part.bytes),
            _ => totals.push((part.place, part.bytes)),
        }
    }
    totals
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and too much is the most there is"
)]
fn ceil(number: f64) -> u64 {
    number.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            nodes: 10,
            rate: 1.0,
            record_bytes: 300,
            metrics: 1,
            images_per_day: 100,
            image_size: 1 << 20,
            outage: Duration::from_secs(7 * DAY),
            raw_days: 90,
            agg_days: 365,
            outbox_days: 30,
            media_days: 90,
        }
    }

    fn bytes_of(estimate: &Estimate, what: &str) -> u64 {
        estimate.parts.iter().find(|part| part.what == what).unwrap().bytes
    }

    #[test]
    fn the_arithmetic_is_what_it_says() {
        let estimate = Estimate::of(&site());
        assert_eq!(bytes_of(&estimate, "spool"), 7 * 86_400 * 336 + SPOOL_REST);
        assert_eq!(bytes_of(&estimate, "telemetry_raw"), 864_000 * 121 * bytes::RAW_ROW);
        assert_eq!(bytes_of(&estimate, "images"), 9_000 << 20);
        let edge = estimate.totals.iter().find(|(place, _)| *place == "edge database").unwrap().1;
        let sum: u64 = estimate
            .parts
            .iter()
            .filter(|part| part.place == "edge database")
            .map(|part| part.bytes)
            .sum();
        assert_eq!(edge, sum);
        let raw = estimate.parts.iter().find(|part| part.what == "telemetry_raw").unwrap();
        assert!(
            raw.arithmetic.starts_with("864,000 readings/day × 121 days"),
            "{}",
            raw.arithmetic
        );
    }

    #[test]
    fn more_of_anything_never_needs_less() {
        let least = Estimate::of(&site());
        let grown: [fn(&mut Site); 8] = [
            |site| site.nodes *= 2,
            |site| site.rate *= 1.5,
            |site| site.record_bytes += 100,
            |site| site.images_per_day += 1,
            |site| site.image_size += 1,
            |site| site.outage *= 20,
            |site| site.raw_days += 1,
            |site| site.outbox_days += 1,
        ];
        for grow in grown {
            let mut more = site();
            grow(&mut more);
            let more = Estimate::of(&more);
            let pairs = least.totals.iter().zip(&more.totals);
            assert!(
                pairs.clone().all(|(a, b)| a.1 <= b.1) && pairs.clone().any(|(a, b)| a.1 < b.1),
                "{more:?}"
            );
        }
    }

    #[test]
    fn absurd_numbers_do_not_wrap() {
        let huge = Site { nodes: 100_000, rate: 100_000.0, record_bytes: 1 << 40, ..site() };
        assert_eq!(bytes_of(&Estimate::of(&huge), "sync_outbox, delivered"), u64::MAX);
    }
}
