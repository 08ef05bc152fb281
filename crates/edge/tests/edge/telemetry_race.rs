//! Aggregators that race with ingress and each other, and that are killed between any two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edge::config::{Telemetry, TelemetrySync};
use edge::metrics::Metrics;
use edge::telemetry::Aggregator;
use event::Window;
use event::id::{DeviceId, TenantId};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use testkit::eventually;

use crate::site::{LONG, Site, enroll};
use crate::telemetry::{aggregator, assert_right, at, marks, numbered, reading, two_days};

/// Waits until no mark is left that is due.
async fn settled(site: &Site) {
    eventually(LONG, "no mark is left", async || match marks(site).await {
        0 => Ok(()),
        left => Err(left),
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_aggregators_and_two_writers_lose_no_mark() {
    let mut random = StdRng::seed_from_u64(testkit::seed().unwrap());
    let site = Site::new("agg_race").await;
    let tenant = TenantId::mint();
    let nodes = [
        enroll(&site.config, "barn-1", tenant).await,
        enroll(&site.config, "barn-2", tenant).await,
    ];
    // Both nodes speak for the same device, so that the writers meet at the same buckets.
    let device = [DeviceId::mint()];
    let done = Arc::new(AtomicBool::new(false));
    let aggregators = [0, 1].map(|_| {
        let (aggregator, done) = (aggregator(&site, TelemetrySync::Raw), Arc::clone(&done));
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                aggregator.turn().await.unwrap();
            }
        })
    });
    let batches = nodes.each_ref().map(|node| {
        let mut records = numbered(1, two_days(&mut random, &device, 1_200));
        records.shuffle(&mut random);
        let batches: Vec<_> = records
            .chunks(20)
            .map(|batch| {
                let mut batch = batch.to_vec();
                batch.sort();
                node.batch(&batch, &[])
            })
            .collect();
        batches
    });
    let write = async |batches: &[edge::ingress::Incoming]| {
        for batch in batches {
            site.ingest(std::slice::from_ref(batch)).await;
        }
    };
    tokio::join!(write(&batches[0]), write(&batches[1]));
    settled(&site).await;
    done.store(true, Ordering::Relaxed);
    for task in aggregators {
        task.await.unwrap();
    }
    assert_right(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_aggregator_leaves_every_mark() {
    let mut random = StdRng::seed_from_u64(testkit::seed().unwrap());
    let site = Site::new("agg_killed").await;
    let node = site.enroll("barn-1").await;
    let devices = [DeviceId::mint(), DeviceId::mint()];
    let records = numbered(1, two_days(&mut random, &devices, 1_500));
    let client = site.client().await;
    let options =
        pg::Options { application_name: "doomed".to_owned(), ..site.config.database.clone() };
    let windows = Window::ALL.into_iter().collect();
    let telemetry = Telemetry { settle: Duration::ZERO, sync: TelemetrySync::Both, windows };
    let doomed =
        Aggregator::new(pg::Pool::new(&options).unwrap(), telemetry, Metrics::new().into());
    for (number, batch) in records.chunks(100).enumerate() {
        site.ingest(&[node.batch(batch, &[])]).await;
        let wait = Duration::from_micros(random.random_range(0..20_000));
        if number % 2 == 0 {
            // The future is dropped wherever it happens to be.
            let _ = tokio::time::timeout(wait, doomed.work_off()).await;
        } else {
            // The server ends the connection wherever its transaction happens to be.
            let kill = async {
                tokio::time::sleep(wait).await;
                let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name = 'doomed' AND datname = current_database()";
                client.execute(kill, &[]).await.unwrap();
            };
            let _ = tokio::join!(doomed.work_off(), kill);
        }
    }
    let survivor = aggregator(&site, TelemetrySync::Both);
    eventually(LONG, "the rest is worked off", async || {
        survivor.work_off().await.unwrap();
        match marks(&site).await {
            0 => Ok(()),
            left => Err(left),
        }
    })
    .await
    .unwrap();
    assert_right(&site).await;
    let unsent = "SELECT count(*) FROM telemetry_agg WHERE emitted_version <> version";
    assert_eq!(site.number(unsent).await, 0, "every version that counts was handed over");
    let once = "SELECT count(*) FROM (SELECT FROM sync_outbox
        WHERE event_type = 'telemetry.aggregated'
        GROUP BY device_id, occurred_at, payload_json->>'metric_type',
            payload_json->>'aggregation_window', payload_json->>'version'
        HAVING count(*) > 1) twice";
    assert_eq!(site.number(once).await, 0, "and each once");
}

#[tokio::test]
async fn ingress_waits_for_whoever_holds_its_mark_and_marks_again() {
    let site = Site::new("agg_held").await;
    let node = site.enroll("barn-1").await;
    let device = DeviceId::mint();
    let first = reading(device, at("2026-02-01T10:00:10Z"), 1.0, "GOOD");
    site.ingest(&[node.batch(&[(1, first)], &[])]).await;

    // Another aggregator, in the middle of its work: it has locked the mark and read the bucket.
    let mut other = site.client().await;
    let transaction = other.transaction().await.unwrap();
    transaction.execute("SELECT FROM telemetry_dirty FOR UPDATE", &[]).await.unwrap();
    let second = reading(device, at("2026-02-01T10:00:20Z"), 2.0, "GOOD");
    let message = node.batch(&[(2, second)], &[]);
    let writing = {
        let writer = site.writer.clone();
        tokio::spawn(async move { writer.ingest(&[message]).await.unwrap() })
    };
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(LONG, "ingress waits", async || site.number(waiting).await == 1).await.unwrap();
    assert_eq!(aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap(), 0, "skipped");
    transaction.execute("DELETE FROM telemetry_dirty", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    writing.await.unwrap();
    assert_eq!(marks(&site).await, 1, "the mark is there again");
    aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap();
    assert_right(&site).await;
}

/// Readings older than the months that are made ahead are in the default partition, and move when their month is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_made_under_the_aggregator_hides_no_reading() {
    let site = Site::new("agg_month").await;
    let node = site.enroll("barn-1").await;
    let early = at("2024-02-01T10:00:10Z");
    site.ingest(&[node.batch(&[(1, reading(DeviceId::mint(), early, 1.0, "GOOD"))], &[])]).await;
    let moved = "SELECT count(*) FROM telemetry_raw_default";
    assert_eq!(site.number(moved).await, 1);
    let waiting = async |count: i64| {
        eventually(LONG, "somebody waits for a lock", async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            site.number(waiting).await == count
        })
        .await
        .unwrap();
    };
    // The month is about to be made; a reader of the default partition holds it up, and then the aggregator comes.
    let mut reader = site.client().await;
    let look = reader.transaction().await.unwrap();
    look.query("SELECT FROM telemetry_raw_default", &[]).await.unwrap();
    let mut maker = site.client().await;
    let making = tokio::spawn(async move {
        let months =
            pg::partitions::ensure_months(&mut maker, "telemetry_raw", "occurred_at", early, early);
        months.await.unwrap()
    });
    waiting(1).await;
    let computing = {
        let aggregator = aggregator(&site, TelemetrySync::Raw);
        tokio::spawn(async move { aggregator.work_off().await.unwrap() })
    };
    waiting(2).await;
    look.commit().await.unwrap();
    assert_eq!(making.await.unwrap(), 1, "the month was made");
    assert_eq!(site.number(moved).await, 0);
    assert_eq!(computing.await.unwrap(), 3, "a minute, an hour and a day");
    assert_eq!(marks(&site).await, 0);
    assert_right(&site).await;
}
