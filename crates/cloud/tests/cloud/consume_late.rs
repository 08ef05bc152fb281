//! Aggregates and KPIs against a naive model: late data, two replicas, corrections that are sent.

use std::collections::BTreeMap;
use std::time::Duration;

use event::Window;
use event::id::TenantId;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use testkit::Database;

use crate::consume_world::{Barn, Replica, database, options, settled};
use crate::site::number;

/// Count, mean, lowest, highest.
type Stats = (i64, f64, f64, f64);
/// Window, device, metric, unit, start.
type Bucket = (&'static str, String, String, String, Timestamp);

/// What the aggregates must be, from nothing but the events.
fn model(events: &[Value]) -> BTreeMap<Bucket, Stats> {
    let mut values: BTreeMap<Bucket, BTreeMap<String, f64>> = BTreeMap::new();
    for event in events {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let payload = &event["payload"];
        if matches!(payload["quality"].as_str(), Some("BAD" | "OOR")) {
            continue;
        }
        let at: Timestamp = text(&event["occurred_at"]).parse().unwrap();
        for window in Window::ALL {
            let key = (
                window.as_str(),
                text(&event["device_id"]),
                text(&payload["metric_type"]),
                text(&payload["unit"]),
                window.start_of(at),
            );
            let value = payload["metric_value"].as_f64().unwrap();
            values.entry(key).or_default().insert(text(&event["event_id"]), value);
        }
    }
    let stats = |values: &BTreeMap<String, f64>| {
        let count = i64::try_from(values.len()).unwrap();
        let all = || values.values().copied();
        let mean = all().sum::<f64>() / values.len() as f64;
        (count, mean, all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
    };
    values.iter().map(|(key, values)| (key.clone(), stats(values))).collect()
}

async fn stored(database: &Database) -> BTreeMap<Bucket, Stats> {
    let client = database.connect().await.unwrap();
    let query = "SELECT aggregation_window, device_id::text, metric_type, unit, bucket_start,
        sample_count, avg_value, min_value, max_value FROM telemetry_aggregate";
    let rows = client.query(query, &[]).await.unwrap();
    let each = rows.iter().map(|row| {
        let window: Window = row.get::<_, String>(0).parse().unwrap();
        let key = (window.as_str(), row.get(1), row.get(2), row.get(3), row.get(4));
        (key, (row.get(5), row.get(6), row.get(7), row.get(8)))
    });
    each.collect()
}

fn assert_same(found: &BTreeMap<Bucket, Stats>, expected: &BTreeMap<Bucket, Stats>) {
    let keys = |of: &BTreeMap<Bucket, Stats>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(expected));
    for (key, stats) in expected {
        let (count, mean, low, high) = found[key];
        assert_eq!((count, low, high), (stats.0, stats.2, stats.3), "{key:?}");
        assert!((mean - stats.1).abs() <= 1e-9 * stats.1.abs().max(1.0), "{key:?} {mean}");
    }
}

#[tokio::test]
async fn two_days_that_come_late_make_hours_and_days_right() {
    let database = database("late").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let noon: Timestamp = "2026-02-03T12:00:00Z".parse().unwrap();
    let minutes = |i: u32| noon - Duration::from_secs(60 * u64::from(i));
    // A site that was cut off sends its newest hour first, then the rest from the oldest on.
    let live: Vec<Value> = (0..60).map(|i| barn.reading(minutes(i), 25.0)).collect();
    replica.deliver(&live).await;
    settled(&database).await;
    assert_same(&stored(&database).await, &model(&live));
    let late: Vec<Value> = (1..48 * 60)
        .rev()
        .map(|i| barn.reading(minutes(i) + Duration::from_secs(7), 15.0 + f64::from(i % 20)))
        .collect();
    replica.deliver(&late).await;
    settled(&database).await;
    let all: Vec<Value> = live.iter().chain(&late).cloned().collect();
    assert_same(&stored(&database).await, &model(&all));

    // Every version that was published is in the outbox once, and the last one tells what is stored.
    let client = database.connect().await.unwrap();
    let query = "SELECT convert_from(envelope, 'UTF8')::jsonb::text, event_id::text,
        event_type, routing_key FROM relay_outbox ORDER BY event_id";
    let mut last: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut sent: BTreeMap<(String, String), u32> = BTreeMap::new();
    for row in client.query(query, &[]).await.unwrap() {
        let event: Value = serde_json::from_str(row.get(0)).unwrap();
        let envelope = event::farm::Envelope::parse(event.to_string().as_bytes()).unwrap();
        assert_eq!(envelope.event_id.to_string(), row.get::<_, String>(1));
        assert_eq!((row.get(2), row.get(3)), ("telemetry.aggregated", "telemetry.aggregated"));
        assert_eq!(event["payload"].as_object().unwrap().len(), 6, "exactly the documented fields");
        assert_eq!(event["barn_id"], json!(barn.barn));
        let key = (
            event["payload"]["aggregation_window"].as_str().unwrap().to_owned(),
            event["occurred_at"].as_str().unwrap().to_owned(),
        );
        *sent.entry(key.clone()).or_default() += 1;
        last.insert(key, event);
    }
    let hour = ("1h".to_owned(), "2026-02-03T11:00:00Z".to_owned());
    assert!(sent[&hour] >= 2, "the hour was live, and was corrected: {}", sent[&hour]);
    let stored = stored(&database).await;
    assert_eq!(last.len(), stored.len());
    for ((window, _, _, unit, start), stats) in &stored {
        let payload = &last[&((*window).to_owned(), start.to_string())]["payload"];
        let near = |name: &str, expected: f64| {
            let value = payload[name].as_f64().unwrap();
            // Reading JSON costs the last bit.
            assert!((value - expected).abs() <= 1e-12 * expected.abs(), "{name} {value}");
        };
        near("avg_value", stats.1);
        near("min_value", stats.2);
        near("max_value", stats.3);
        assert_eq!(payload["unit"].as_str(), Some(&unit[..]));
    }
    let behind = "SELECT count(*) FROM telemetry_aggregate WHERE published_version <> version";
    assert_eq!(number(&client, behind).await, 0);
    replica.stop().await;
}

#[tokio::test]
async fn an_open_bucket_is_not_published_and_a_window_that_is_off_never() {
    let database = database("debounce").await;
    let mut options = options();
    options.windows = [Window::Hour].into();
    let replica = Replica::start(&database, options);
    let barn = Barn::new(TenantId::mint());
    let next_year = Timestamp::now() + Duration::from_secs(366 * 86_400);
    replica.deliver(&[barn.reading(next_year, 1.0)]).await;
    replica.deliver(&[barn.reading("2026-02-01T10:00:00Z".parse().unwrap(), 1.0)]).await;
    settled(&database).await;
    let client = database.connect().await.unwrap();
    assert_eq!(number(&client, "SELECT count(*) FROM relay_outbox").await, 1);
    let due = "SELECT count(*) FROM telemetry_aggregate WHERE publish_at = bucket_start + '1 hour'";
    assert_eq!(number(&client, due).await, 1, "when it closes");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_the_work_and_count_nothing_twice() {
    let database = database("replicas").await;
    let replicas = [Replica::start(&database, options()), Replica::start(&database, options())];
    let barns: Vec<Barn> = (0..4).map(|_| Barn::new(TenantId::mint())).collect();
    let start: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
    let events: Vec<Value> = (0..3_000_u32)
        .map(|i| {
            let at = start + Duration::from_secs(u64::from(i % 600) * 10);
            barns[i as usize % 4].reading(at, f64::from(i % 50))
        })
        .collect();
    // Each gets two thirds, so a third is delivered to both, in opposite order.
    let backwards: Vec<Value> = events[1_000..].iter().rev().cloned().collect();
    tokio::join!(replicas[0].deliver(&events[..2_000]), replicas[1].deliver(&backwards));
    settled(&database).await;
    assert_same(&stored(&database).await, &model(&events));
    let client = database.connect().await.unwrap();
    let counted = "SELECT sum(sample_count)::bigint FROM kpi_metric_day";
    assert_eq!(number(&client, counted).await, 3_000);
    let twice = "SELECT count(*) - count(DISTINCT event_id) FROM relay_outbox";
    assert_eq!(number(&client, twice).await, 0);
    for replica in replicas {
        assert!(replica.causes().is_empty());
        replica.stop().await;
    }
}

#[derive(Debug, Clone)]
struct Sample {
    device: usize,
    second: u32,
    value: f64,
    quality: Option<&'static str>,
    fahrenheit: bool,
}

fn sample() -> impl Strategy<Value = Sample> {
    let quality = prop_oneof![
        4 => Just(None),
        1 => Just(Some("GOOD")),
        1 => Just(Some("UNCERTAIN")),
        1 => Just(Some("BAD")),
        1 => Just(Some("OOR")),
    ];
    (0..2_usize, 0..200_000_u32, -50.0..150.0_f64, quality, any::<bool>()).prop_map(
        |(device, second, value, quality, fahrenheit)| Sample {
            device,
            second,
            value,
            quality,
            fahrenheit,
        },
    )
}

/// Random readings over two days and more, in random batches, some delivered again.
#[test]
fn aggregates_are_what_a_naive_model_says() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let database = runtime.block_on(database("model"));
    let replica = runtime.block_on(async { Replica::start(&database, options()) });
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() };
    let batches = proptest::collection::vec(
        (proptest::collection::vec(sample(), 1..40), any::<bool>()),
        1..8,
    );
    let ran = TestRunner::new(config).run(&batches, |batches| {
        // Devices of their own for each case, in one database: the model covers all of them.
        let barns = [Barn::new(TenantId::mint()), Barn::new(TenantId::mint())];
        let start: Timestamp = "2026-02-27T20:00:00Z".parse().unwrap();
        runtime.block_on(async {
            let mut case = Vec::new();
            for (samples, again) in batches {
                let events: Vec<Value> = samples
                    .iter()
                    .map(|sample| {
                        let at = start + Duration::from_secs(sample.second.into());
                        let mut event = barns[sample.device].reading(at, sample.value);
                        if sample.fahrenheit {
                            event["payload"]["unit"] = json!("F");
                        }
                        if let Some(quality) = sample.quality {
                            event["payload"]["quality"] = json!(quality);
                        }
                        event
                    })
                    .collect();
                replica.deliver(&events).await;
                if again {
                    replica.deliver(&events).await;
                }
                case.extend(events);
            }
            settled(&database).await;
            let ours: Vec<String> = barns.iter().map(|barn| barn.device.to_string()).collect();
            let mut found = stored(&database).await;
            found.retain(|key, _| ours.contains(&key.1));
            assert_same(&found, &model(&case));
        });
        Ok(())
    });
    ran.unwrap();
    runtime.block_on(replica.stop());
}
