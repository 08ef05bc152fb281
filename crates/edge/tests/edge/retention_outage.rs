//! A long outage: a backlog of any size, searches that take too long and jobs that fail keep nothing from its turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use edge::retention::{Error, Fate, Job, Retention};

use crate::retention_ground::{
    aggregated, days_ago, delivering, event, fill, set_state, take_turn, turn,
};
use crate::site::Site;

/// Runs statements on a connection of their own, from inside a step.
fn execute(database: &pg::Options, text: &'static str) {
    let database = database.clone();
    let done = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let client = pg::connect(&database).await.unwrap();
            client.batch_execute(text).await.unwrap();
        })
    });
    done.join().unwrap();
}

/// Numbers from a query on a connection of its own, from inside a step.
fn ask(database: &pg::Options, text: &'static str) -> Vec<i64> {
    let database = database.clone();
    let asked = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let client = pg::connect(&database).await.unwrap();
            client.query_one(text, &[]).await.unwrap().get(0)
        })
    });
    asked.join().unwrap()
}

const READ: &str = "SELECT (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int8
    FROM pg_stat_user_tables WHERE relname = 'sync_outbox'";

/// Whoever took a turn is gone, and has counted what it read: that is done when a connection ends.
async fn nobody_retains(site: &Site) {
    let here = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'holdfast-retention'";
    testkit::eventually(crate::site::LONG, "turns have ended", async || {
        site.number(here).await == 0
    })
    .await
    .unwrap();
}

/// What waits for the cloud is found by device and time: the rest of a backlog is not read.
#[tokio::test]
async fn a_backlog_costs_the_search_of_a_month_nothing() {
    let site = Site::new("retain_backlog").await;
    let (one, two) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    fill(&site, &one, 1..=10, days_ago(150)).await;
    for node in [&one, &two] {
        fill(&site, node, 1_001..=6_000, days_ago(3)).await;
    }
    aggregated(&site).await;
    site.client().await.batch_execute("VACUUM ANALYZE sync_outbox").await.unwrap();
    let config = delivering(&site);
    // Held by the first of two devices, then by the second, then by none.
    assert_eq!(turn(&config, None).await.rows(Job::Raw, Fate::Held), 10);
    let moved = "UPDATE sync_outbox SET device_id = (SELECT device_id FROM nodes WHERE node_id = 'barn-2') WHERE seq = 7";
    assert_eq!(site.client().await.execute(moved, &[]).await.unwrap(), 1);
    set_state(&site, "acked", 0, "seq <= 6 OR seq BETWEEN 8 AND 10").await;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Held), 10, "{report:?}");
    assert!(report.lines[0].why.starts_with("1 readings"), "{report:?}");
    set_state(&site, "acked", 0, "seq = 7").await;

    nobody_retains(&site).await;
    let client = site.client().await;
    let flushed = "SELECT pg_stat_force_next_flush()";
    client.query(flushed, &[]).await.unwrap();
    testkit::eventually(crate::site::LONG, "earlier reads are counted", async || {
        let before = site.number(READ).await;
        before >= 10_000 && before == site.number(READ).await
    })
    .await
    .unwrap();
    let before = site.number(READ).await;
    let seen = Retention::new(&config, None).watched(Arc::new(|step| step != "partition.locked"));
    let ended = take_turn(&seen).await;
    assert!(matches!(ended, Err(Error::Ended("partition.locked"))), "{ended:?}");
    nobody_retains(&site).await;
    let read = site.number(READ).await - before;
    assert!((1..200).contains(&read), "{read} rows of 10,010 were read");
}

/// The month is locked while the outbox is searched: whoever takes too long gives way, and everything else has its turn.
#[tokio::test]
async fn a_search_that_takes_too_long_holds_the_month_and_nothing_else() {
    let site = Site::new("retain_slow").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    set_state(&site, "acked", 40, "true").await;
    aggregated(&site).await;
    fill(&site, &node, 21..=40, days_ago(2)).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    let (database, swapped) = (site.config.database.clone(), AtomicBool::new(false));
    let slow = move |step: &str| {
        if step == "partition.seen" && !swapped.swap(true, Ordering::SeqCst) {
            execute(
                &database,
                "ALTER TABLE telemetry_dirty RENAME TO telemetry_dirty_before;
                 CREATE VIEW telemetry_dirty AS SELECT clock_timestamp() AS bucket_start_at FROM pg_sleep(120)",
            );
        }
        true
    };
    let slow = Retention::new(&config, None).watched(Arc::new(slow));
    let report = take_turn(&slow).await.unwrap();
    assert_eq!((report.rows(Job::Raw, Fate::Held), &report.failures[..]), (20, &[][..]));
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 20, "the month is there");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 0, "the limit was enforced");
}

#[tokio::test]
async fn a_job_that_fails_keeps_neither_the_others_nor_the_limit_from_their_turn() {
    let site = Site::new("retain_failing").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    fill(&site, &node, 21..=60, days_ago(2)).await;
    set_state(&site, "acked", 40, "seq BETWEEN 51 AND 60").await;
    let broken = "ALTER TABLE telemetry_dirty RENAME TO elsewhere; ALTER TABLE media_objects RENAME TO there";
    site.client().await.batch_execute(broken).await.unwrap();
    let mut config = delivering(&site);
    let report = turn(&config, None).await;
    let mut failed: Vec<Job> = report.failures.iter().map(|failure| failure.job).collect();
    failed.dedup();
    assert_eq!(failed, [Job::Raw, Job::Media], "{report:?}");
    assert!(report.failures[0].why.contains("telemetry_dirty"), "{report:?}");
    assert_eq!(report.rows(Job::Acked, Fate::Gone), 10, "{report:?}");
    config.retention.max_database_bytes = Some(1);
    for report in [
        Retention::new(&config, None).watch_disk().await.unwrap().unwrap(),
        turn(&config, None).await,
    ] {
        assert!(!report.failures.is_empty() && report.disk.is_some(), "{report:?}");
    }
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 0, "the limit was enforced");
    let lost = "SELECT sum(lost_count)::int8 FROM ledger_frontier";
    assert_eq!(site.number(lost).await, 50);
}

/// What a site has at a step of the limit: acked rows, pending ones, and readings of the month before.
const HAS: &str = "SELECT ARRAY[(SELECT count(*) FROM sync_outbox WHERE status = 'acked'),
    (SELECT count(*) FROM sync_outbox WHERE status = 'pending'),
    (SELECT count(*) FROM telemetry_raw WHERE occurred_at < now() - interval '40 days')]";

#[tokio::test]
async fn the_limit_takes_what_was_delivered_before_what_was_not() {
    let site = Site::new("retain_delivered").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=2_000, days_ago(62)).await;
    fill(&site, &node, 2_001..=8_000, days_ago(0)).await;
    set_state(&site, "acked", 1, "seq <= 7800").await;
    aggregated(&site).await;
    let has =
        async || -> Vec<i64> { site.client().await.query_one(HAS, &[]).await.unwrap().get(0) };
    assert_eq!(has().await, [7_800, 200, 2_000]);
    let mut config = delivering(&site);
    config.retention.batch_pages = 8;
    let size = site.number("SELECT pg_database_size(current_database())").await.unsigned_abs();
    config.retention.max_database_bytes = Some(size - (1 << 20));
    let looked = Retention::new(&config, None).look().await.unwrap();
    let would = looked.rows(Job::Acked, Fate::WouldGo);
    assert!((300..3_000).contains(&would), "{looked:?}");
    assert_eq!(looked.rows(Job::Disk, Fate::WouldDrop), 0, "{looked:?}");
    let report = turn(&config, None).await;
    let now = has().await;
    assert!((3_000..7_500).contains(&now[0]), "some of the delivered events: {now:?}, {report:?}");
    assert_eq!(now[1..], [200, 2_000], "and nothing else");
    assert_eq!(report.rows(Job::Acked, Fate::Gone), 7_800 - now[0].unsigned_abs(), "{report:?}");
    assert_eq!((report.disk.unwrap().over, report.rows(Job::Disk, Fate::Dropped)), (0, 0));
    assert_eq!(turn(&config, None).await.lines, [], "what is free inside counts");

    // Then months that the cloud has, and only then what it has not.
    config.retention.max_database_bytes = Some(1);
    let looked = Retention::new(&config, None).look().await.unwrap();
    let would = (looked.rows(Job::Acked, Fate::WouldGo), looked.rows(Job::Raw, Fate::WouldGo));
    assert_eq!(would, (now[0].unsigned_abs(), 2_000), "{looked:?}");
    assert_eq!(looked.rows(Job::Disk, Fate::WouldDrop), 200, "{looked:?}");
    let (database, seen) = (site.config.database.clone(), Arc::new(Mutex::new(Vec::new())));
    let first = Arc::clone(&seen);
    let watch = move |step: &str| {
        if step == "partition.locked" || step == "forced.written" {
            let before: Vec<i64> = ask(&database, HAS);
            first.lock().unwrap().push((step.to_owned(), before));
        }
        true
    };
    let watched = Retention::new(&config, None).watched(Arc::new(watch));
    let report = take_turn(&watched).await.unwrap();
    // A step stands before its commit, so others still see what it takes.
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[0], ("partition.locked".to_owned(), vec![0, 200, 2_000]), "{seen:?}");
    assert_eq!(seen[1], ("forced.written".to_owned(), vec![0, 200, 0]), "{seen:?}");
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 2_000, "{report:?}");
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 200, "{report:?}");
    assert_eq!(site.number("SELECT sum(lost_count)::int8 FROM ledger_frontier").await, 200);
}

/// Rows that nothing can be declared for, and rows that a forwarder has, are passed over; those behind them are found.
#[tokio::test]
async fn what_cannot_go_does_not_stand_in_the_way_of_what_can() {
    let site = Site::new("forced_behind").await;
    let (without, with) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    fill(&site, &without, 1..=300, days_ago(3)).await;
    fill(&site, &with, 1..=400, days_ago(2)).await;
    let events: Vec<_> =
        (401..=450).map(|seq| (seq, event(&with, "feeding.done", days_ago(1)))).collect();
    site.ingest(&[with.batch(&events, &[])]).await;
    let client = site.client().await;
    let gone = "DELETE FROM ledger_frontier WHERE stream = 'barn-1'";
    assert_eq!(client.execute(gone, &[]).await.unwrap(), 1);
    // A forwarder takes these at this moment.
    let held = "BEGIN; SELECT FROM sync_outbox WHERE stream = 'barn-2' AND seq <= 150 FOR UPDATE";
    client.batch_execute(held).await.unwrap();
    let mut config = delivering(&site);
    (config.retention.max_database_bytes, config.retention.batch_rows) = (Some(1), 100);
    let (database, left) = (site.config.database.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&left);
    let watch = move |step: &str| {
        if step == "forced.committed" {
            let text = "SELECT ARRAY[count(*) FILTER (WHERE priority = 0 AND seq > 150 AND stream = 'barn-2'),
                count(*) FILTER (WHERE priority = 10)] FROM sync_outbox";
            seen.lock().unwrap().push(ask(&database, text));
        }
        true
    };
    let watched = Retention::new(&config, None).watched(Arc::new(watch));
    let report = take_turn(&watched).await.unwrap();
    for after in left.lock().unwrap().iter() {
        assert!(after[0] == 0 || after[1] == 50, "telemetry goes before events: {after:?}");
    }
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 300, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 450);
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(turn(&config, None).await.rows(Job::Disk, Fate::Dropped), 150);
    let stays = "SELECT count(*) FROM sync_outbox WHERE stream = 'barn-1'";
    assert_eq!(site.number(stays).await, 300, "what cannot be declared stays");
}
