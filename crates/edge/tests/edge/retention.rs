//! What goes by age, and what is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use edge::retention::{Fate, Job, Retention};
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _};
use testkit::eventually;

use crate::retention_ground::{
    aggregated, days_ago, delivering, event, fill, set_state, take_turn, turn,
};
use crate::site::{LONG, Site, config, start};

const MONTHS: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry_raw'::regclass";

#[tokio::test]
async fn a_month_goes_when_its_time_is_over_and_all_of_it_is_in_the_cloud() {
    let site = Site::new("retain_month").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    fill(&site, &node, 21..=30, days_ago(5)).await;
    let (config, before) = (delivering(&site), site.number(MONTHS).await);

    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Held), 20, "{report:?}");
    for state in ["claimed", "sending", "dlq", "failed"] {
        set_state(&site, "acked", 0, "seq < 20").await;
        set_state(&site, state, 0, "seq = 20").await;
        let report = turn(&config, None).await;
        assert_eq!(report.rows(Job::Raw, Fate::Held), 20, "{state}: {report:?}");
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 30);

    set_state(&site, "acked", 0, "seq <= 20").await;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Held), 20, "aggregates are missing: {report:?}");
    aggregated(&site).await;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 20, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 10);
    assert_eq!(site.number(MONTHS).await, before - 1, "empty months stay for late backfills");
    assert_eq!(turn(&config, None).await.lines, [], "a turn with nothing to do says nothing");
    // What comes late for a month that is gone is stored all the same.
    fill(&site, &node, 31..=32, days_ago(150)).await;
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw_default").await, 2);
}

#[tokio::test]
async fn without_a_cloud_age_alone_decides() {
    let site = Site::new("retain_alone").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    let mut config = config(site.database.url(), &[]);
    config.retention.share = 1.0;
    aggregated(&site).await;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 20, "{report:?}");
    let waiting = "SELECT count(*) FROM sync_outbox WHERE status = 'pending'";
    assert_eq!(site.number(waiting).await, 20, "what waits for a cloud goes on waiting");
}

/// A replica that does retention alone, or a cron, has no address of the cloud. The database knows that there is one.
#[tokio::test]
async fn a_site_that_delivers_is_known_without_its_configuration() {
    let site = Site::new("retain_knows").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    aggregated(&site).await;
    let mut config = config(site.database.url(), &[("ROLES", "retention")]);
    config.retention.share = 1.0;
    let client = site.client().await;
    for (is, was) in [
        // A forwarder that has met an outage and nothing else.
        (
            "INSERT INTO sync_state (tenant_id, consecutive_failures) VALUES (gen_random_uuid(), 3)",
            "DELETE FROM sync_state",
        ),
        ("INSERT INTO cloud_copying (copies) VALUES (false)", "DELETE FROM cloud_copying"),
        (
            "UPDATE sync_outbox SET status = 'acked' WHERE seq = 20",
            "UPDATE sync_outbox SET status = 'pending' WHERE seq = 20",
        ),
    ] {
        client.execute(is, &[]).await.unwrap();
        let report = turn(&config, None).await;
        assert_eq!(report.rows(Job::Raw, Fate::Held), 20, "{is}: {report:?}");
        let looked = Retention::new(&config, None).look().await.unwrap();
        assert_eq!(looked.rows(Job::Raw, Fate::Held), 20, "{is}: {looked:?}");
        client.execute(was, &[]).await.unwrap();
    }
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 20, "what waits alone is no cloud: {report:?}");
}

#[tokio::test]
async fn readings_without_a_month_go_by_their_receipt() {
    let site = Site::new("retain_default").await;
    let node = site.enroll("barn-1").await;
    let never_set: Timestamp = "1970-01-01T00:10:00Z".parse().unwrap();
    fill(&site, &node, 1..=9, never_set).await;
    let config = delivering(&site);
    assert_eq!(turn(&config, None).await.lines, [], "received today");
    let old = "UPDATE telemetry_raw SET ingested_at = now() - interval '91 days'";
    site.client().await.execute(old, &[]).await.unwrap();
    set_state(&site, "acked", 0, "seq <= 5").await;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 5, "{report:?}");
    assert_eq!(report.rows(Job::Raw, Fate::Held), 4, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 4);
}

/// An aggregate of an hour, made some days ago.
async fn aggregate(site: &Site, at: Timestamp, made: i32) {
    let text = "INSERT INTO telemetry_agg (id, tenant_id, device_id, \"window\", bucket_start_at, bucket_end_at,
            metric_type, avg_value, min_value, max_value, count, sum_value, unit, readings, updated_at)
        VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '1h', $1, $1::timestamptz + interval '1 h',
            'temperature', 1, 1, 1, 1, 1, 'C', 1, now() - make_interval(days => $2))";
    site.client().await.execute(text, &[&at, &made]).await.unwrap();
}

#[tokio::test]
async fn aggregates_go_by_their_month_and_those_without_one_by_their_making() {
    let site = Site::new("retain_aggregates").await;
    aggregate(&site, days_ago(400), 400).await;
    for young in [330, 100, 1] {
        aggregate(&site, days_ago(young), 400).await;
    }
    let config = delivering(&site);
    let months = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry_agg'::regclass";
    let before = site.number(months).await;
    let in_default = "SELECT count(*) FROM telemetry_agg_default";
    assert_eq!(site.number(in_default).await, 0, "each has its month");
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Aggregates, Fate::Gone), 1, "{report:?}");
    let left = (site.number("SELECT count(*) FROM telemetry_agg").await, site.number(months).await);
    assert_eq!(left, (3, before - 1), "the month went whole");

    // Clocks that were never set, and one that is far ahead.
    for (at, made) in [("1970-01-01T00:00:00Z", 366), ("2099-01-01T00:00:00Z", 366)] {
        aggregate(&site, at.parse().unwrap(), made).await;
    }
    for (at, made) in [("1970-01-02T00:00:00Z", 364), ("2099-01-02T00:00:00Z", 364)] {
        aggregate(&site, at.parse().unwrap(), made).await;
    }
    assert_eq!(site.number(in_default).await, 4);
    let looked = Retention::new(&config, None).look().await.unwrap();
    assert_eq!(looked.rows(Job::Aggregates, Fate::WouldGo), 2, "{looked:?}");
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Aggregates, Fate::Gone), 2, "{report:?}");
    let young =
        "SELECT count(*) FROM telemetry_agg_default WHERE updated_at > now() - interval '365 days'";
    assert_eq!((site.number(in_default).await, site.number(young).await), (2, 2));
    assert_eq!(site.number("SELECT count(*) FROM telemetry_agg").await, 5);
}

#[tokio::test]
async fn a_turn_sweeps_the_dedupe_cache_too() {
    let site = Site::new("retain_dedupe").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(1)).await;
    let old = "UPDATE ingress_dedupe SET first_seen_at = now() - interval '73 hours'
        WHERE event_id IN (SELECT event_id FROM ingress_dedupe LIMIT 12)";
    let client = site.client().await;
    assert_eq!(client.execute(old, &[]).await.unwrap(), 12);
    let config = delivering(&site);
    let looked = Retention::new(&config, None).look().await.unwrap();
    assert_eq!(looked.rows(Job::Dedupe, Fate::WouldGo), 12, "{looked:?}");
    let left = "SELECT count(*) FROM ingress_dedupe";
    assert_eq!(site.number(left).await, 20, "a look changes nothing");
    // A replica of ingress is at it.
    client.execute("SELECT pg_advisory_lock($1)", &[&0x7377_6570_i64]).await.unwrap();
    assert_eq!(turn(&config, None).await.lines, []);
    client.execute("SELECT pg_advisory_unlock($1)", &[&0x7377_6570_i64]).await.unwrap();
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Dedupe, Fate::Gone), 12, "{report:?}");
    assert_eq!(site.number(left).await, 8, "what is young stays");
    let swept = edge::sweep_dedupe(&site.config.database, site.config.dedupe_ttl).await.unwrap();
    assert_eq!(swept, Some(0), "the lock of the sweep is free again");
}

/// Whatever the states and ages: what is active or young stays, what was acked long ago goes, and nothing else does.
#[tokio::test]
async fn work_that_is_active_is_never_touched() {
    let seed = testkit::seed().unwrap();
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let site = Site::new("retain_active").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=600, days_ago(1)).await;
    let states = ["pending", "claimed", "sending", "acked", "dlq", "failed"];
    for seq in 1..=600 {
        let state = states[random.random_range(0..states.len())];
        let days = random.random_range(0..60);
        set_state(&site, state, days, &format!("seq = {seq}")).await;
    }
    let mut config = delivering(&site);
    config.retention.batch_pages = random.random_range(1..8);
    let left = "SELECT coalesce(string_agg(seq::text, ',' ORDER BY seq), '') FROM sync_outbox";
    let stays =
        format!("{left} WHERE status <> 'acked' OR updated_at >= now() - interval '30 days'");
    let expected = site.text(&stays).await;
    let dead = "SELECT count(*) FROM sync_outbox WHERE status IN ('dlq', 'failed')
        AND updated_at < now() - interval '30 days'";
    let dead = site.number(dead).await;

    let looked = Retention::new(&config, None).look().await.unwrap();
    let report = turn(&config, None).await;
    assert_eq!(site.text(left).await, expected);
    assert_eq!(report.rows(Job::DeadLetters, Fate::Held), dead.unsigned_abs(), "no object store");
    let would_go = looked.rows(Job::Acked, Fate::WouldGo);
    assert_eq!(report.rows(Job::Acked, Fate::Gone), would_go, "a look says what a turn does");
}

#[tokio::test]
async fn a_look_changes_nothing() {
    let site = Site::new("retain_look").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    set_state(&site, "acked", 40, "seq > 1").await;
    set_state(&site, "dlq", 40, "seq = 1").await;
    aggregated(&site).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    let before = (site.snapshot().await, site.number(MONTHS).await);
    let report = Retention::new(&config, None).look().await.unwrap();
    assert!(report.dry_run && report.lines.len() >= 2, "{report:?}");
    assert!(report.disk.unwrap().over > 0);
    assert_eq!((site.snapshot().await, site.number(MONTHS).await), before);
}

#[tokio::test]
async fn one_replica_works_at_a_time() {
    let site = Site::new("retain_replicas").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(150)).await;
    set_state(&site, "acked", 40, "true").await;
    let config = delivering(&site);
    let (inside, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicBool::new(false)));
    let (tell, wait) = (Arc::clone(&inside), Arc::clone(&go_on));
    // The first stands in the middle of its work until the second has been sent away.
    let first = Retention::new(&config, None).watched(Arc::new(move |_| {
        tell.notify_one();
        while !wait.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        true
    }));
    let working =
        std::thread::spawn(move || tokio::runtime::Runtime::new().unwrap().block_on(first.turn()));
    inside.notified().await;
    let second = Retention::new(&config, None);
    assert!(second.turn().await.unwrap().is_none());
    assert!(second.watch_disk().await.unwrap().is_none());
    go_on.store(true, Ordering::SeqCst);
    let report = working.join().unwrap().unwrap().unwrap();
    assert_eq!(report.rows(Job::Acked, Fate::Gone), 20);
    // The lock went with the first.
    take_turn(&second).await.unwrap();
}

#[tokio::test]
async fn the_role_takes_its_turns_by_itself() {
    let site = Site::new("retain_role").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=20, days_ago(2)).await;
    set_state(&site, "acked", 40, "seq <= 15").await;
    let pairs = [("ROLES", "retention"), ("RETENTION_EVERY", "1s"), ("RETENTION_DISK_EVERY", "1s")];
    let edge = start(&config(site.database.url(), &pairs)).await;
    eventually(LONG, "acked rows go", async || {
        site.number("SELECT count(*) FROM sync_outbox").await == 5
    })
    .await
    .unwrap();
    let counted = "holdfast_edge_retention_removed_total{job=\"acked\"} 15";
    eventually(LONG, "they are counted", async || edge.metrics().render().contains(counted))
        .await
        .unwrap();
    eventually(LONG, "the disk is looked at", async || {
        !edge.metrics().render().contains("holdfast_edge_database_bytes 0")
    })
    .await
    .unwrap();
    edge.stop().await;
}

/// Ingest goes on while a month is dropped, readings of that very month included, and loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ingest_goes_on_while_a_month_is_dropped() {
    let site = Arc::new(Site::new("retain_ingest").await);
    let node = Arc::new(site.enroll("barn-1").await);
    fill(&site, &node, 1..=500, days_ago(150)).await;
    set_state(&site, "acked", 0, "true").await;
    aggregated(&site).await;
    let config = delivering(&site);
    let done = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (site, node, done) = (Arc::clone(&site), Arc::clone(&node), Arc::clone(&done));
        async move {
            let mut seq = 501;
            while !done.load(Ordering::SeqCst) && seq < 5_000 {
                let late = if seq % 20 == 0 { days_ago(150) } else { days_ago(1) };
                let records: Vec<_> = (seq..seq + 5)
                    .map(|seq| (seq, event(&node, "telemetry.ingested", late)))
                    .collect();
                site.ingest(&[node.batch(&records, &[])]).await;
                seq += 5;
            }
            seq - 501
        }
    });
    let mut gone = 0;
    for _ in 0..20 {
        gone += turn(&config, None).await.rows(Job::Raw, Fate::Gone);
        if gone > 0 {
            break;
        }
        // A late reading holds the month until it is in the cloud.
        set_state(&site, "acked", 0, "status = 'pending'").await;
        aggregated(&site).await;
    }
    done.store(true, Ordering::SeqCst);
    let written = writing.await.unwrap();
    let left = site.number("SELECT count(*) FROM telemetry_raw").await.unsigned_abs();
    assert!(gone >= 500, "the month went under ingest");
    assert_eq!(left + gone, 500 + written);
    let unsent_without_reading = "SELECT count(*) FROM sync_outbox o WHERE status = 'pending'
        AND NOT EXISTS (SELECT FROM telemetry_raw t WHERE t.id = o.id)";
    assert_eq!(site.number(unsent_without_reading).await, 0, "nothing undelivered went");
}
