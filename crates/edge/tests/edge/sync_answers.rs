//! What each answer of the cloud does to the rows and to the link: the table of
//! docs/spec/sync-forwarder.md, line by line.

use std::sync::Arc;

use edge::sync::Forwarder;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::sync::watch;

use crate::heard::Heard;
use crate::site::{LONG, Sender, Site};
use crate::sync::all_are;
use crate::sync_cloud::{Request, Say, TOKEN, TestCloud, forward, sync_config};

fn error(code: &str) -> Value {
    json!({"error": {"code": code, "message": "the cloud's words", "field": null}})
}

async fn site_with(name: &str, readings: u64) -> (Site, Sender, Vec<String>) {
    let site = Site::new(name).await;
    let node = site.enroll("barn-1").await;
    let records = node.readings(1..=readings);
    let ids = records.iter().map(|(_, text)| {
        let event: Value = serde_json::from_str(text).unwrap();
        event["event_id"].as_str().unwrap().to_owned()
    });
    let ids = ids.collect();
    site.ingest(&[node.batch(&records, &[])]).await;
    (site, node, ids)
}

/// Until the link has failed some times; returns the forwarder's count of them.
async fn failed(site: &Site, times: i64) {
    let query = "SELECT coalesce(max(consecutive_failures), 0)::bigint FROM sync_state";
    eventually(LONG, "the link is down", async || {
        let failures = site.number(query).await;
        if failures >= times { Ok(()) } else { Err(failures) }
    })
    .await
    .unwrap();
}

const TOUCHED: &str = "SELECT count(*) FROM sync_outbox WHERE event_type = 'telemetry.ingested'
    AND (attempt_count > 0 OR last_error_code IS NOT NULL OR last_attempt_at IS NOT NULL
         OR next_attempt_at > created_at OR status NOT IN ('pending', 'claimed'))";

/// What was sent while the link was down is as it was, and arrives when it is up.
async fn untouched_then_acked(
    site: &Site,
    cloud: &TestCloud,
    forwarder: Forwarder,
    ids: &[String],
) {
    failed(site, 3).await;
    assert_eq!(site.number(TOUCHED).await, 0);
    cloud.tell(|_| Say::Store);
    all_are(site, "acked").await;
    let attempts = "SELECT coalesce(sum(attempt_count), 0)::bigint FROM sync_outbox";
    assert_eq!(site.number(attempts).await, 0, "an outage burns no attempts");
    let reset =
        "SELECT count(*) FROM sync_state WHERE consecutive_failures = 0 AND paused_until IS NULL";
    eventually(LONG, "the state is reset", async || site.number(reset).await == 1).await.unwrap();
    assert!(ids.iter().all(|id| cloud.stored().contains(id)));
    forwarder.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_about_the_link_touch_no_row() {
    type Answer = fn(&Request) -> Say;
    let answers: [(&str, Answer); 11] = [
        ("401", |_| Say::Status(401, error("unauthorized"))),
        ("403", |_| Say::Status(403, error("forbidden"))),
        ("429", |_| Say::RetryAfter(429, "0")),
        ("500", |_| Say::Status(500, json!({}))),
        ("503", |_| Say::RetryAfter(503, "0")),
        ("404", |_| Say::Status(404, json!({}))),
        ("302", |_| Say::Status(302, json!({}))),
        ("400 of a proxy", |_| Say::Status(400, json!("bad gateway"))),
        ("413 of a proxy", |_| Say::Status(413, json!("too large"))),
        ("200 without sense", |_| Say::Status(200, json!({"ok": true}))),
        ("200 with a result missing", |_| Say::Short),
    ];
    let all = answers.into_iter().enumerate().map(|(n, (name, answer))| async move {
        let (site, _node, ids) = site_with(&format!("sync_link_{n}"), 4).await;
        let cloud = TestCloud::start(answer).await;
        let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
        untouched_then_acked(&site, &cloud, forwarder, &ids).await;
        println!("{name}: as the table has it");
    });
    futures_util::future::join_all(all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_hangs_or_is_not_there_touches_no_row() {
    let (site, _node, ids) = site_with("sync_hangs", 4).await;
    let (_never, door) = watch::channel(false);
    let cloud = TestCloud::start(move |_| Say::Hold(door.clone())).await;
    let config = sync_config(&site, &cloud.url, &[("SYNC_TIMEOUT", "100ms")]);
    let forwarder = forward(&site, &config, "edge-1");
    untouched_then_acked(&site, &cloud, forwarder, &ids).await;

    let (site, _node, _ids) = site_with("sync_refused", 4).await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let forwarder = forward(&site, &sync_config(&site, &url, &[]), "edge-1");
    failed(&site, 3).await;
    assert_eq!(site.number(TOUCHED).await, 0);
    forwarder.stop().await;
    let held =
        "SELECT count(*) FROM sync_outbox WHERE status <> 'pending' OR lease_token IS NOT NULL";
    assert_eq!(site.number(held).await, 0, "a stop gives back what is held");
}

#[tokio::test]
async fn retry_after_is_kept_to_and_shown() {
    let (site, node, _ids) = site_with("sync_retry_after", 4).await;
    let cloud = TestCloud::start(|_| Say::RetryAfter(429, "1200")).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    failed(&site, 1).await;
    let paused = "SELECT count(*) FROM sync_state WHERE paused_until BETWEEN
        now() + interval '1100 s' AND now() + interval '1201 s'";
    assert_eq!(site.number(paused).await, 1);
    // New work does not go out either: the workers give it back without asking the cloud.
    let asked = cloud.requests().len();
    let (_, alarm) = crate::sync::alarm(&node);
    site.ingest(&[node.batch(&[(9, alarm)], &[])]).await;
    eventually(LONG, "it is claimed and given back", async || forwarder.counts().released >= 5)
        .await
        .unwrap();
    assert_eq!(cloud.requests().len(), asked);
    forwarder.stop().await;
}

#[tokio::test]
async fn a_rejected_event_is_a_dead_letter_and_its_neighbours_are_acked() {
    let (site, _node, ids) = site_with("sync_rejected", 50).await;
    let bad = ids[20].clone();
    let named = vec![bad.clone()];
    let cloud = TestCloud::start(move |_| Say::Reject(named.clone())).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked dlq").await;
    forwarder.stop().await;
    let dead = "SELECT (id, dlq_reason, last_error_code, last_error_message, attempt_count,
        failed_at IS NOT NULL, lease_token IS NULL)::text FROM sync_outbox WHERE status = 'dlq'";
    let wanted = format!("({bad},invalid,REJECTED,\"payload is not right\",1,t,t)");
    assert_eq!(site.text(dead).await, wanted);
    // The batch is told of with what was acked.
    let counts = "SELECT string_agg(payload_json->>'event_count', ' ' ORDER BY event_type)
        FROM sync_outbox WHERE event_type LIKE 'sync.batch.%'";
    assert_eq!(site.text(counts).await, "49 50");
}

#[tokio::test]
async fn too_large_is_split_in_halves_and_a_single_one_is_a_dead_letter() {
    let (site, _node, ids) = site_with("sync_too_large", 40).await;
    let bad = ids[33].clone();
    let large = bad.clone();
    let cloud = TestCloud::start(move |request| {
        if request.events().len() > 3 || request.has(&large) {
            Say::Status(413, error("too_large"))
        } else {
            Say::Store
        }
    })
    .await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked dlq").await;
    forwarder.stop().await;
    let dead = "SELECT (id, dlq_reason, last_error_code, last_error_message)::text
        FROM sync_outbox WHERE status = 'dlq'";
    let wanted = format!("({bad},too_large,HTTP_413,\"the cloud's words\")");
    assert_eq!(site.text(dead).await, wanted);
    assert_eq!(cloud.duplicates(), 0);
    // Halves keep the order.
    let seqs: Vec<i64> = cloud.order().iter().filter_map(|one| one["seq"].as_i64()).collect();
    assert!(seqs.is_sorted() && seqs.len() == 39, "{seqs:?}");
}

#[tokio::test]
async fn a_malformed_batch_is_split_until_the_culprit_is_alone() {
    let (site, _node, ids) = site_with("sync_poison", 100).await;
    let bad = ids[67].clone();
    let poison = bad.clone();
    let cloud = TestCloud::start(move |request| {
        if request.has(&poison) { Say::Status(400, error("malformed")) } else { Say::Store }
    })
    .await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked dlq").await;
    forwarder.stop().await;
    let dead = "SELECT (id, dlq_reason, last_error_code, attempt_count)::text
        FROM sync_outbox WHERE status = 'dlq'";
    assert_eq!(site.text(dead).await, format!("({bad},malformed,HTTP_400,1)"));
    assert_eq!(cloud.duplicates(), 0);
    assert!(cloud.requests().len() < 30, "halves, not one by one: {}", cloud.requests().len());
}

#[tokio::test]
async fn a_cloud_that_finds_everything_malformed_buries_nothing() {
    let (site, _node, ids) = site_with("sync_all_malformed", 40).await;
    let cloud = TestCloud::start(|_| Say::Status(400, error("malformed"))).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    untouched_then_acked(&site, &cloud, forwarder, &ids).await;
}

#[tokio::test]
async fn a_row_that_makes_no_envelope_is_a_dead_letter() {
    let (site, _node, _ids) = site_with("sync_unreadable", 3).await;
    let strange = "INSERT INTO sync_outbox (id, tenant_id, event_type, payload_json)
        SELECT gen_random_uuid(), tenant_id, 'No Type', '{\"secret\": 1}' FROM sync_outbox LIMIT 1";
    site.client().await.execute(strange, &[]).await.unwrap();
    let cloud = TestCloud::start(|_| Say::Store).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked dlq").await;
    forwarder.stop().await;
    let dead =
        "SELECT dlq_reason || ': ' || last_error_message FROM sync_outbox WHERE status = 'dlq'";
    assert_eq!(site.text(dead).await, "unreadable_row: event_type breaks its grammar");
}

// On one thread, so that the subscriber hears everything.
#[tokio::test]
async fn the_token_and_payloads_are_in_no_log_row_or_metric() {
    let heard = Heard::here();
    let (site, node, _ids) = site_with("sync_canary", 3).await;
    let mut canary = node.reading();
    canary["payload"]["note"] = json!("canary-payload");
    site.ingest(&[node.batch(&[(4, canary.to_string())], &[])]).await;
    let cloud = TestCloud::start(|_| Say::Status(401, error("unauthorized"))).await;
    let config = sync_config(&site, &cloud.url, &[]);
    let metrics = Arc::new(edge::metrics::Metrics::new());
    let replica = "edge-1".parse().unwrap();
    let forwarder =
        Forwarder::start(&site.config.database, &config, &replica, Arc::clone(&metrics)).unwrap();
    failed(&site, 2).await;
    cloud.tell(|_| Say::Status(500, json!({})));
    failed(&site, 4).await;
    cloud.tell(|_| Say::StoreAndCut);
    failed(&site, 6).await;
    cloud.tell(|_| Say::Store);
    all_are(&site, "acked").await;
    let shown = format!("{forwarder:?} {config:?} {}", metrics.render());
    forwarder.stop().await;
    let log = heard.text();
    assert!(log.contains("the cloud is not reached") && log.contains("the cloud is back"));
    let state = "SELECT coalesce(string_agg(s::text, ' '), '') FROM sync_state s";
    for text in [&log, &shown, &site.text(state).await] {
        assert!(!text.contains(TOKEN));
        assert!(!text.contains("canary-payload"));
    }
    let rows = "SELECT coalesce(string_agg(o::text, ' '), '') FROM sync_outbox o";
    assert!(!site.text(rows).await.contains(TOKEN));
}
