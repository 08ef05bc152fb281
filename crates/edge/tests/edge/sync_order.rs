//! Several forwarders, lost replies, zombies: every event once, in the order of its device.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use testkit::eventually;
use tokio::sync::watch;

use crate::site::{LONG, Site};
use crate::sync::all_are;
use crate::sync_cloud::{Say, TestCloud, forward, sync_config};

/// The sequences of each stream, in the order in which the cloud first stored them.
fn by_stream(cloud: &TestCloud) -> BTreeMap<String, Vec<i64>> {
    let mut streams: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for element in cloud.order() {
        if let (Some(stream), Some(seq)) = (element["stream"].as_str(), element["seq"].as_i64()) {
            streams.entry(stream.to_owned()).or_default().push(seq);
        }
    }
    streams
}

/// Rows whose time grows with their sequence.
async fn fill(site: &Site, nodes: u64, rows: u64) {
    for n in 0..nodes {
        let node = site.enroll(&format!("barn-{n}")).await;
        let records: Vec<(u64, String)> = (1..=rows)
            .map(|seq| {
                let mut event = node.reading();
                let at = jiff::Timestamp::from_second(1_770_000_000 + seq.cast_signed()).unwrap();
                event["occurred_at"] = json!(at);
                (seq, event.to_string())
            })
            .collect();
        for part in records.chunks(500) {
            site.ingest(&[node.batch(part, &[])]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_forwarders_share_the_work_through_faults_and_keep_the_order_of_devices() {
    let site = Site::new("sync_two").await;
    fill(&site, 6, 300).await;
    // Some requests meet a fault, after the cloud stored it or before.
    let count = AtomicUsize::new(0);
    let cloud = TestCloud::start(move |request| match count.fetch_add(1, Ordering::Relaxed) % 15 {
        2 => Say::StoreAndCut,
        7 => Say::Status(503, json!({})),
        12 if request.events().len() > 10 => {
            Say::Status(413, json!({"error": {"code": "too_large", "message": "m"}}))
        }
        _ => Say::Store,
    })
    .await;
    let config = sync_config(&site, &cloud.url, &[("SYNC_BATCH_EVENTS", "60")]);
    let forwarders = [forward(&site, &config, "edge-1"), forward(&site, &config, "edge-2")];
    all_are(&site, "acked").await;
    for forwarder in &forwarders {
        let counts = forwarder.counts();
        assert!(counts.done > 0, "both did some of the work");
        assert_eq!((counts.fenced, counts.reclaimed, counts.buried), (0, 0, 0));
    }
    for forwarder in forwarders {
        forwarder.stop().await;
    }
    let streams = by_stream(&cloud);
    assert_eq!(streams.len(), 6);
    for (stream, seqs) in streams {
        assert_eq!(seqs, (1..=300).collect::<Vec<i64>>(), "{stream}");
    }
    let attempts = "SELECT sum(attempt_count)::bigint FROM sync_outbox";
    assert_eq!(site.number(attempts).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_lost_after_the_commit_is_a_duplicate_and_is_acked_once() {
    let site = Site::new("sync_lost_reply").await;
    fill(&site, 1, 20).await;
    let first = AtomicUsize::new(0);
    let cloud = TestCloud::start(move |_| match first.fetch_add(1, Ordering::Relaxed) {
        0 => Say::StoreAndCut,
        _ => Say::Store,
    })
    .await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked").await;
    forwarder.stop().await;
    assert_eq!(cloud.duplicates(), 20);
    assert_eq!(by_stream(&cloud)["barn-0"], (1..=20).collect::<Vec<i64>>());
    let pairs = "SELECT count(*) FROM sync_outbox WHERE event_type LIKE 'sync.batch.%'";
    assert_eq!(site.number(pairs).await, 2, "the batch without a reply is not told of");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_changes_nothing_and_is_counted() {
    let site = Site::new("sync_zombie").await;
    fill(&site, 1, 10).await;
    let (open, door) = watch::channel(false);
    let asleep = TestCloud::start(move |_| Say::Hold(door.clone())).await;
    let zombie = forward(&site, &sync_config(&site, &asleep.url, &[]), "edge-1");
    eventually(LONG, "it has sent", async || !asleep.requests().is_empty()).await.unwrap();
    // Its lease is over while it waits for its answer.
    let lapse =
        "UPDATE sync_outbox SET lease_expires_at = now() - interval '1 s' WHERE status = 'claimed'";
    assert_eq!(site.client().await.execute(lapse, &[]).await.unwrap(), 10);
    let bad = site.text("SELECT id::text FROM sync_outbox WHERE seq = 3").await;
    let rejected = vec![bad];
    let cloud = TestCloud::start(move |_| Say::Reject(rejected.clone())).await;
    let other = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-2");
    // The zombie may hold what the other tells of itself, so only these rows are waited for.
    let open_rows = "SELECT count(*) FROM sync_outbox WHERE stream IS NOT NULL
        AND status NOT IN ('acked', 'dlq')";
    eventually(LONG, "the other has settled", async || site.number(open_rows).await == 0)
        .await
        .unwrap();
    let rows =
        "SELECT string_agg(o::text, ' ' ORDER BY id) FROM sync_outbox o WHERE stream IS NOT NULL";
    let settled = site.text(rows).await;
    open.send_replace(true);
    eventually(LONG, "the zombie is fenced", async || zombie.counts().fenced == 10).await.unwrap();
    assert_eq!(site.text(rows).await, settled, "it would have acked the rejected one");
    assert_eq!(other.counts().reclaimed, 10, "a lost lease counts an attempt");
    let attempts = "SELECT count(*) FROM sync_outbox WHERE stream IS NOT NULL
        AND attempt_count = CASE status WHEN 'dlq' THEN 2 ELSE 1 END";
    assert_eq!(site.number(attempts).await, 10);
    other.stop().await;
    zombie.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_outlives_every_forwarder_is_a_dead_letter_at_last() {
    let site = Site::new("sync_deadly").await;
    fill(&site, 1, 1).await;
    let dying =
        "UPDATE sync_outbox SET status = 'sending', claimed_by = 'edge-9', claimed_at = now(),
        lease_expires_at = now(), lease_token = gen_random_uuid(), attempt_count = 9";
    site.client().await.execute(dying, &[]).await.unwrap();
    let cloud = TestCloud::start(|_| Say::Store).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "dlq").await;
    forwarder.stop().await;
    let why =
        "SELECT dlq_reason || ' ' || last_error_code || ' ' || attempt_count FROM sync_outbox";
    assert_eq!(site.text(why).await, "max_attempts_exceeded LEASE_EXPIRED 10");
    assert!(cloud.requests().is_empty());
}
