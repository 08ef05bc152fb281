//! The forwarder with a cloud that works: what it sends, what it notes, what it tells of itself.

use std::collections::BTreeSet;

use event::farm::Envelope;
use event::id::EventId;
use serde_json::json;
use testkit::eventually;
use tokio::sync::watch;

use crate::site::{LONG, Sender, Site, config, gap, start};
use crate::sync_cloud::{Say, TOKEN, TestCloud, forward, sync_config};

/// Until every row is in this state.
pub(crate) async fn all_are(site: &Site, status: &str) {
    let query = "SELECT coalesce(string_agg(DISTINCT status, ' '), '') FROM sync_outbox";
    eventually(LONG, "every row has its state", async || {
        let found = site.text(query).await;
        if found == status { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
}

/// An event of a node with the rules of alarms, as the node spools it.
pub(crate) fn alarm(node: &Sender) -> (String, String) {
    let id = EventId::mint().to_string();
    let event = json!({"event_id": id, "event_type": "alarm.raised",
        "device_id": node.enrolled.device_id, "occurred_at": "2026-02-01T10:00:05Z",
        "payload": {"level": "high"}});
    (id, event.to_string())
}

#[tokio::test]
async fn a_batch_is_as_the_contract_has_it_and_everything_is_noted() {
    let site = Site::new("sync_contract").await;
    let node = site.enroll("barn-1").await;
    let readings = node.readings(1..=3);
    site.ingest(&[node.batch(&readings, &[])]).await;
    site.ingest(&[node.message("event", node.reading().to_string())]).await;
    let cloud = TestCloud::start(|_| Say::Store).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    all_are(&site, "acked").await;
    forwarder.stop().await;

    let first = cloud.requests().into_iter().find(|request| request.telemetry()).unwrap();
    let header = |name: &str| first.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(
        (header("content-type"), header("content-encoding")),
        ("application/json".into(), "zstd".into())
    );
    assert_eq!(header("traceparent").len(), 55);
    assert_eq!((&first.body["v"], &first.body["edge_cluster_id"]), (&json!(1), &json!("edge-1")));
    event::rfc3339("sent_at", first.body["sent_at"].as_str().unwrap()).unwrap();
    let batch_id = first.body["batch_id"].as_str().unwrap();
    assert!(
        batch_id.len() <= 64 && batch_id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    );

    let order = cloud.order();
    for (seq, text) in &readings {
        let element = order.iter().find(|one| one["seq"] == json!(seq)).unwrap();
        let sent = Envelope::parse_from_node(text, node.tenant).unwrap();
        let wanted: serde_json::Value = serde_json::from_str(&sent.to_json()).unwrap();
        assert_eq!(element["event"], wanted);
        assert_eq!((&element["stream"], &element["epoch"]), (&json!("barn-1"), &json!(node.epoch)));
    }
    let bare = order.iter().filter(|one| one["event"]["event_type"] == "telemetry.ingested");
    let bare: Vec<_> = bare.filter(|one| one.get("seq").is_none()).collect();
    assert_eq!(bare.len(), 1);
    assert!(bare[0].get("stream").is_none() && bare[0].get("epoch").is_none());

    let state = site.text("SELECT (consecutive_failures, paused_until IS NULL, last_acked_at IS NOT NULL)::text FROM sync_state").await;
    assert_eq!(state, "(0,t,t)");
    let known =
        "SELECT count(*) FROM sync_state s JOIN sync_outbox o ON o.id = s.last_acked_event_id
        AND o.tenant_id = s.tenant_id";
    assert_eq!(site.number(known).await, 1);
    let last = site.text("SELECT last_sent_batch_id FROM sync_state").await;
    assert!(cloud.requests().iter().any(|request| request.body["batch_id"] == json!(last)));
}

#[tokio::test]
async fn batches_are_told_of_once_and_that_begets_no_more() {
    let site = Site::new("sync_own_events").await;
    let nodes = [site.enroll("barn-1").await, site.enroll("barn-2").await];
    let cloud = TestCloud::start(|_| Say::Store).await;
    let forwarder =
        forward(&site, &sync_config(&site, &cloud.url, &[("SYNC_BATCH_EVENTS", "10")]), "edge-1");
    for node in &nodes {
        site.ingest(&[node.batch(&node.readings(1..=25), &[])]).await;
    }
    all_are(&site, "acked").await;
    // Once all is quiet, another event makes exactly one more pair: the loop has an end.
    let own = "SELECT count(*) FROM sync_outbox WHERE event_type LIKE 'sync.batch.%'";
    let before = site.number(own).await;
    site.ingest(&[nodes[0].batch(&nodes[0].readings([26]), &[])]).await;
    eventually(LONG, "the pair is there", async || site.number(own).await == before + 2)
        .await
        .unwrap();
    all_are(&site, "acked").await;
    forwarder.stop().await;
    assert_eq!(site.number(own).await, before + 2);

    let sum = |kind: &str| {
        format!(
            "SELECT sum((payload_json->>'event_count')::int)::bigint FROM sync_outbox WHERE event_type = '{kind}'"
        )
    };
    assert_eq!(site.number(&sum("sync.batch.sent")).await, 51);
    assert_eq!(site.number(&sum("sync.batch.acked")).await, 51);
    // They keep the rules of their types, and name batches that were sent.
    let batches: BTreeSet<String> = cloud
        .requests()
        .iter()
        .map(|request| request.body["batch_id"].as_str().unwrap().to_owned())
        .collect();
    for element in cloud.order() {
        let text = element["event"].to_string();
        let envelope = Envelope::parse(text.as_bytes()).unwrap();
        if envelope.event_type.domain() == "sync" {
            let batch = element["event"]["payload"]["batch_id"].as_str().unwrap();
            assert!(batches.contains(batch));
            assert!(element.get("stream").is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarms_go_out_while_every_place_for_telemetry_is_taken() {
    let site = Site::new("sync_live_first").await;
    let node = site.enroll("barn-1").await;
    let (open, door) = watch::channel(false);
    let cloud =
        TestCloud::start(
            move |request| {
                if request.telemetry() { Say::Hold(door.clone()) } else { Say::Store }
            },
        )
        .await;
    for first in [1u64, 501, 1001] {
        site.ingest(&[node.batch(&node.readings(first..first + 500), &[])]).await;
    }
    // The backlog of an outage.
    let old = "UPDATE sync_outbox SET created_at = now() - interval '2 d'";
    site.client().await.execute(old, &[]).await.unwrap();
    let config = sync_config(
        &site,
        &cloud.url,
        &[("SYNC_BATCH_EVENTS", "50"), ("SYNC_BACKLOG_SHARE", "0.5")],
    );
    let forwarder = forward(&site, &config, "edge-1");
    eventually(LONG, "telemetry is on its way", async || {
        cloud.requests().iter().any(|request| request.telemetry())
    })
    .await
    .unwrap();
    for seq in 1501..1511 {
        let (id, event) = alarm(&node);
        site.ingest(&[node.batch(&[(seq, event)], &[])]).await;
        eventually(LONG, "the alarm is there", async || cloud.stored().contains(&id))
            .await
            .unwrap();
    }
    let left = "SELECT count(*) FROM sync_outbox WHERE event_type = 'telemetry.ingested' AND status <> 'acked'";
    assert_eq!(site.number(left).await, 1500);
    open.send_replace(true);
    eventually(LONG, "the backlog drains", async || site.number(left).await == 0).await.unwrap();
    forwarder.stop().await;
}

#[tokio::test]
async fn tombstones_reach_the_cloud_and_a_rejected_one_says_why() {
    let site = Site::new("sync_tombstones").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings([20]), &[gap(1, 9), gap(10, 19)])]).await;
    let cloud = TestCloud::start(|_| Say::Store).await;
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    let unsent = "SELECT count(*) FROM ledger_tombstone WHERE sent_at IS NULL";
    eventually(LONG, "they are told", async || site.number(unsent).await == 0).await.unwrap();
    let told = cloud.requests().into_iter().find(|request| request.body["tombstones"] != json!([]));
    let told = told.unwrap().body["tombstones"].clone();
    assert_eq!(
        told[0],
        json!({"tenant_id": node.tenant, "stream": "barn-1", "epoch": node.epoch,
        "from_seq": 1, "to_seq": 9, "count": 9, "first_at": null, "last_at": null,
        "reason": "drop_oldest", "origin": "node"})
    );
    assert_eq!(told.as_array().unwrap().len(), 2);

    cloud.tell(|_| Say::RejectTombstones("ledger_full"));
    site.ingest(&[node.batch(&node.readings([40]), &[gap(21, 39)])]).await;
    let asked = || cloud.requests().iter().filter(|r| r.body["tombstones"] != json!([])).count();
    eventually(LONG, "it is offered", async || asked() == 2).await.unwrap();
    forwarder.stop().await;
    assert_eq!(site.number(unsent).await, 1, "no room at the moment: it is kept");

    cloud.tell(|_| Say::RejectTombstones("invalid"));
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &[]), "edge-1");
    eventually(LONG, "it is settled", async || site.number(unsent).await == 0).await.unwrap();
    forwarder.stop().await;
    let why = site.text("SELECT send_error FROM ledger_tombstone WHERE from_seq = 21").await;
    assert_eq!(why, "invalid: no");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edge_runs_the_forwarder_and_shows_its_metrics() {
    let site = Site::new("sync_role").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=40), &[])]).await;
    let cloud = TestCloud::start(|_| Say::Status(401, json!({}))).await;
    let pairs = [
        ("SYNC_CLOUD_URL", cloud.url.as_str()),
        ("SYNC_TOKEN", TOKEN),
        ("SYNC_BACKOFF_CAP", "1s"),
        ("SYNC_STALL_AFTER", "1s"),
    ];
    let edge = start(&config(site.database.url(), &pairs)).await;
    let shows = async |lines: &[&str]| {
        eventually(LONG, "the metrics say so", async || {
            let text = edge.metrics().render();
            if lines.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
        })
        .await
        .unwrap();
    };
    shows(&[
        "holdfast_sync_up 0",
        "holdfast_sync_rows{part=\"bulk\"} 40",
        "holdfast_sync_drain_seconds -1",
        "holdfast_sync_not_draining 0",
    ])
    .await;
    cloud.tell(|_| Say::Store);
    shows(&[
        "holdfast_sync_up 1",
        "holdfast_sync_rows{part=\"bulk\"} 0",
        "holdfast_sync_events_total{outcome=\"accepted\"} 42",
        "holdfast_sync_work_total{what=\"done\"} 42",
        "holdfast_sync_drain_seconds 0",
    ])
    .await;
    edge.stop().await;
    all_are(&site, "acked").await;
}
