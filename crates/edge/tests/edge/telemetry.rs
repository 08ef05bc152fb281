//! Aggregates: right whatever comes late, in whichever order, and changed by nothing that is not new.

use std::collections::BTreeMap;
use std::time::Duration;

use edge::config::{Telemetry, TelemetrySync};
use edge::metrics::Metrics;
use edge::telemetry::Aggregator;
use event::Window;
use event::id::{DeviceId, EventId};
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use uuid::Uuid;

use crate::site::{Sender, Site};

/// An aggregator that does not wait for buckets to settle.
pub(crate) fn aggregator(site: &Site, sync: TelemetrySync) -> Aggregator {
    let pool = pg::Pool::new(&site.config.database).unwrap();
    let options =
        Telemetry { settle: Duration::ZERO, sync, windows: Window::ALL.into_iter().collect() };
    Aggregator::new(pool, options, Metrics::new().into())
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A reading of a device, as a node spools it.
pub(crate) fn reading(device: DeviceId, at: Timestamp, value: f64, quality: &str) -> String {
    measured(device, at, "temperature", value, "C", quality)
}

pub(crate) fn measured(
    device: DeviceId,
    at: Timestamp,
    metric: &str,
    value: f64,
    unit: &str,
    quality: &str,
) -> String {
    json!({"event_id": EventId::mint(), "event_type": "telemetry.ingested", "device_id": device,
        "occurred_at": at, "payload": {"metric_type": metric, "metric_value": value, "unit": unit,
        "quality": quality}})
    .to_string()
}

/// Records with sequences from `first` on.
pub(crate) fn numbered(first: u64, events: impl IntoIterator<Item = String>) -> Vec<(u64, String)> {
    (first..).zip(events).collect()
}

/// An aggregate, without what depends on when it was computed.
type Row = (String, Uuid, Timestamp, String, String, i64, i64, [u64; 4]);

/// The aggregates that are stored.
async fn stored(site: &Site) -> Vec<Row> {
    let query = "SELECT \"window\", device_id, bucket_start_at, metric_type, unit, readings, count,
            sum_value, avg_value, min_value, max_value FROM telemetry_agg
         ORDER BY 1, 2, 3, 4";
    let rows = site.client().await.query(query, &[]).await.unwrap();
    let row = |row: &tokio_postgres::Row| {
        let values = [7, 8, 9, 10].map(|column| row.get::<_, f64>(column).to_bits());
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5), row.get(6), values)
    };
    rows.iter().map(row).collect()
}

/// The aggregates are what computing from scratch gives; else the first that is not is shown.
pub(crate) async fn assert_right(site: &Site) {
    let (stored, wanted) = (stored(site).await, from_scratch(site).await);
    let differs = stored.iter().zip(&wanted).find(|(stored, wanted)| stored != wanted);
    assert_eq!((differs, stored.len()), (None, wanted.len()));
}

#[derive(Clone)]
struct Part {
    at: Timestamp,
    unit: String,
    readings: i64,
    count: i64,
    sum: f64,
    min: f64,
    max: f64,
}

/// The aggregates computed from nothing but the readings that are stored, in the plainest way.
async fn from_scratch(site: &Site) -> Vec<Row> {
    let query = "SELECT device_id, metric_type, occurred_at, unit, metric_value,
            coalesce(quality, '') NOT IN ('BAD', 'OOR') FROM telemetry_raw ORDER BY occurred_at, id";
    let mut parts: BTreeMap<(Uuid, String), Vec<Part>> = BTreeMap::new();
    for row in site.client().await.query(query, &[]).await.unwrap() {
        let (value, counts): (f64, bool) = (row.get(4), row.get(5));
        let part = Part {
            at: row.get(2),
            unit: row.get(3),
            readings: 1,
            count: i64::from(counts),
            sum: value,
            min: value,
            max: value,
        };
        parts.entry((row.get(0), row.get(1))).or_default().push(part);
    }
    let mut rows = Vec::new();
    for window in Window::ALL {
        for ((device, metric), parts) in &mut parts {
            *parts = fold(window, parts);
            rows.extend(parts.iter().map(|part| {
                let values = [part.sum, part.sum / part.count as f64, part.min, part.max];
                (
                    window.as_str().to_owned(),
                    *device,
                    part.at,
                    metric.clone(),
                    part.unit.clone(),
                    part.readings,
                    part.count,
                    values.map(f64::to_bits),
                )
            }));
        }
    }
    rows.sort();
    rows
}

fn fold(window: Window, parts: &[Part]) -> Vec<Part> {
    let mut buckets: BTreeMap<Timestamp, Vec<&Part>> = BTreeMap::new();
    for part in parts {
        buckets.entry(window.start_of(part.at)).or_default().push(part);
    }
    let folded = buckets.into_iter().filter_map(|(at, parts)| {
        let unit = &parts.iter().rev().find(|part| part.count > 0)?.unit;
        let counts: Vec<&&Part> =
            parts.iter().filter(|part| part.count > 0 && part.unit == *unit).collect();
        Some(Part {
            at,
            unit: unit.clone(),
            readings: parts.iter().map(|part| part.readings).sum(),
            count: counts.iter().map(|part| part.count).sum(),
            sum: counts.iter().map(|part| part.sum).reduce(|a, b| a + b)?,
            min: counts.iter().map(|part| part.min).reduce(f64::min)?,
            max: counts.iter().map(|part| part.max).reduce(f64::max)?,
        })
    });
    folded.collect()
}

/// Readings of some devices over two days, the night in which clocks are changed among them.
pub(crate) fn two_days(random: &mut StdRng, devices: &[DeviceId], count: usize) -> Vec<String> {
    let start = at("2026-03-28T12:00:00Z");
    let each = (0..count).map(|_| {
        // Few minutes are touched, so that each gets several readings, late ones too.
        let minute = random.random_range(0..48) * 60 + random.random_range(0..4);
        let micros = random.random_range(0..60_000_000i64);
        let time = start + SignedDuration::from_mins(minute) + SignedDuration::from_micros(micros);
        let (metric, unit) = match random.random_range(0..10) {
            0..6 => ("temperature", "C"),
            6 => ("temperature", "F"),
            _ => ("humidity", "%"),
        };
        let quality =
            ["GOOD", "GOOD", "GOOD", "UNCERTAIN", "BAD", "OOR"][random.random_range(0..6)];
        let value = random.random_range(-40.0..60.0);
        let device = devices[random.random_range(0..devices.len())];
        measured(device, time, metric, value, unit, quality)
    });
    each.collect()
}

pub(crate) async fn marks(site: &Site) -> i64 {
    site.number("SELECT count(*) FROM telemetry_dirty").await
}

#[tokio::test]
async fn late_data_in_any_order_gives_what_computing_from_scratch_gives() {
    let mut random = StdRng::seed_from_u64(testkit::seed().unwrap());
    let site = Site::new("agg_order").await;
    let node = site.enroll("barn-1").await;
    let devices = [DeviceId::mint(), DeviceId::mint()];
    let aggregator = aggregator(&site, TelemetrySync::Raw);
    let mut records = numbered(1, two_days(&mut random, &devices, 1_500));
    let sent = records.clone();
    records.shuffle(&mut random);
    for batch in records.chunks(150) {
        let mut batch = batch.to_vec();
        // A replay of what came before is in every batch.
        batch.extend((0..20).map(|_| sent[random.random_range(0..sent.len())].clone()));
        batch.sort();
        batch.dedup();
        site.ingest(&[node.batch(&batch, &[])]).await;
        if random.random_bool(0.5) {
            aggregator.turn().await.unwrap();
        }
    }
    aggregator.work_off().await.unwrap();
    assert_eq!(marks(&site).await, 0);
    assert!(stored(&site).await.len() > 500);
    assert_right(&site).await;

    // Everything once more, and every bucket computed once more: nothing changes.
    let before = site.snapshot().await;
    for batch in sent.chunks(500) {
        site.ingest(&[node.batch(batch, &[])]).await;
    }
    assert_eq!(marks(&site).await, 0, "a replay marks nothing");
    let all = "INSERT INTO telemetry_dirty SELECT DISTINCT tenant_id, device_id, \"window\",
        bucket_start_at, now() FROM telemetry_agg";
    site.client().await.execute(all, &[]).await.unwrap();
    aggregator.work_off().await.unwrap();
    let tables = |all: Vec<(&'static str, Vec<String>)>| -> Vec<_> {
        all.into_iter().filter(|(name, _)| name.starts_with("telemetry")).collect()
    };
    assert_eq!(tables(site.snapshot().await), tables(before));
}

async fn one(site: &Site, window: &str) -> (i64, i64, i64, f64, String) {
    let query = "SELECT readings, count, version, avg_value, unit FROM telemetry_agg
        WHERE \"window\" = $1 AND metric_type = 'temperature'";
    let row = site.client().await.query_one(query, &[&window]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
}

async fn send(site: &Site, node: &Sender, seq: u64, event: String) {
    site.ingest(&[node.batch(&[(seq, event)], &[])]).await;
    aggregator(site, TelemetrySync::Raw).work_off().await.unwrap();
}

#[tokio::test]
async fn a_correction_raises_the_version_and_what_does_not_count_does_not() {
    let site = Site::new("agg_version").await;
    let node = site.enroll("barn-1").await;
    let device = DeviceId::mint();
    let time = |second| at("2026-02-01T10:00:00Z") + SignedDuration::from_secs(second);
    send(&site, &node, 1, reading(device, time(50), 20.0, "GOOD")).await;
    send(&site, &node, 2, reading(device, time(10), 30.0, "UNCERTAIN")).await;
    for window in ["1m", "1h", "1d"] {
        assert_eq!(one(&site, window).await, (2, 2, 2, 25.0, "C".into()), "{window}");
    }
    send(&site, &node, 3, reading(device, time(20), 90.0, "BAD")).await;
    send(&site, &node, 4, reading(device, time(20), 90.0, "OOR")).await;
    send(&site, &node, 5, reading(device, time(20), 1e300, "GOOD")).await;
    send(&site, &node, 6, reading(device, time(20), 5e-324, "GOOD")).await;
    for window in ["1m", "1h", "1d"] {
        assert_eq!(one(&site, window).await, (6, 2, 2, 25.0, "C".into()), "{window}");
    }
    // A sensor set to another unit in the middle: the bucket has the newer one.
    send(&site, &node, 7, measured(device, time(55), "temperature", 70.0, "F", "GOOD")).await;
    assert_eq!(one(&site, "1m").await, (7, 1, 3, 70.0, "F".into()));
    // A bucket of the next day changes nothing here, and a bucket of bad readings has no row.
    let tomorrow = time(24 * 3_600);
    send(&site, &node, 8, measured(device, tomorrow, "humidity", 1.0, "%", "BAD")).await;
    assert_eq!(site.number("SELECT count(*) FROM telemetry_agg").await, 3);
    let series = "SELECT string_agg(metric_type || ' ' || unit, ', ' ORDER BY metric_type)
        FROM telemetry_series";
    assert_eq!(site.text(series).await, "humidity %, temperature F");
}

#[tokio::test]
async fn clocks_that_are_wrong_and_rows_that_are_gone_do_no_harm() {
    let site = Site::new("agg_wrong").await;
    let node = site.enroll("barn-1").await;
    let device = DeviceId::mint();
    let aggregator = aggregator(&site, TelemetrySync::Raw);
    // Never set, and far ahead: both are in the default partition.
    let events = [
        reading(device, at("1970-01-01T00:00:30Z"), 1.0, "GOOD"),
        reading(device, at("2099-01-01T00:00:30Z"), 2.0, "GOOD"),
        reading(device, at("2026-02-28T23:59:59.999999Z"), 3.0, "GOOD"),
        reading(device, at("2026-02-28T23:59:10Z"), 5.0, "GOOD"),
        reading(device, at("2026-03-01T00:00:00Z"), 4.0, "GOOD"),
    ];
    site.ingest(&[node.batch(&numbered(1, events), &[])]).await;
    aggregator.work_off().await.unwrap();
    // What is ahead of the clock waits a minute for its bucket to end, and no longer.
    let wait = "SELECT count(*) FROM telemetry_dirty WHERE due_at <= now() + interval '61 s'";
    assert_eq!((marks(&site).await, site.number(wait).await), (1, 1));
    let now = "UPDATE telemetry_dirty SET due_at = now()";
    for _ in 0..3 {
        site.client().await.execute(now, &[]).await.unwrap();
        aggregator.work_off().await.unwrap();
    }
    assert_right(&site).await;
    assert_eq!(site.number("SELECT count(*) FROM telemetry_agg_default").await, 6);
    assert_eq!(
        site.text("SELECT (last_at AT TIME ZONE 'UTC')::text FROM telemetry_series").await,
        "2026-03-01 00:00:00",
        "a clock that is ahead does not say what is newest"
    );

    // Retention takes the raw rows; a reading that comes later still does not wipe out the aggregate.
    site.client()
        .await
        .execute("DELETE FROM telemetry_raw WHERE metric_value > 2.5", &[])
        .await
        .unwrap();
    let late = reading(device, at("2026-02-28T23:59:20Z"), 9.0, "GOOD");
    site.ingest(&[node.batch(&[(6, late)], &[])]).await;
    let before = stored(&site).await;
    aggregator.work_off().await.unwrap();
    assert_eq!((stored(&site).await, marks(&site).await), (before, 0));
}
