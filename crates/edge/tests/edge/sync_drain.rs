//! Whether what waits leaves: restarts that keep a pause, the alarm, the share of a backlog.

use serde_json::json;
use testkit::eventually;
use tokio::sync::watch;

use crate::site::{LONG, Site, config, http, start};
use crate::sync::{alarm, all_are};
use crate::sync_cloud::{Say, TOKEN, TestCloud, forward, sync_config};

#[tokio::test]
async fn a_restart_keeps_the_pause_that_the_cloud_asked_for() {
    let site = Site::new("sync_restart").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=4), &[])]).await;
    let cloud = TestCloud::start(|_| Say::RetryAfter(429, "1200")).await;
    let sync = sync_config(&site, &cloud.url, &[]);
    let forwarder = forward(&site, &sync, "edge-1");
    let paused = "SELECT count(*) FROM sync_state WHERE consecutive_failures > 0
        AND paused_until > now() + interval '1000 s' AND last_failure LIKE '%429%'";
    eventually(LONG, "it is paused", async || site.number(paused).await == 1).await.unwrap();
    forwarder.stop().await;
    let asked = cloud.requests().len();

    cloud.tell(|_| Say::Store);
    let forwarder = forward(&site, &sync, "edge-1");
    eventually(LONG, "rows are claimed and given back", async || forwarder.counts().released > 0)
        .await
        .unwrap();
    assert_eq!(cloud.requests().len(), asked, "the cloud is left alone");
    forwarder.stop().await;

    // The pause is over: one probe, and all goes out.
    let over = "UPDATE sync_state SET paused_until = now() - interval '1 s'";
    site.client().await.execute(over, &[]).await.unwrap();
    let forwarder = forward(&site, &sync, "edge-1");
    all_are(&site, "acked").await;
    forwarder.stop().await;
    let reset = "SELECT count(*) FROM sync_state WHERE consecutive_failures = 0
        AND paused_until IS NULL AND last_failure IS NULL";
    assert_eq!(site.number(reset).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_is_connected_and_does_not_drain_is_not_ready() {
    let site = Site::new("sync_not_draining").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=4), &[])]).await;
    // A cloud that takes requests and never answers.
    let (open, door) = watch::channel(false);
    let cloud = TestCloud::start(move |_| Say::Hold(door.clone())).await;
    let pairs =
        [("SYNC_CLOUD_URL", cloud.url.as_str()), ("SYNC_TOKEN", TOKEN), ("SYNC_STALL_AFTER", "1s")];
    let edge = start(&config(site.database.url(), &pairs)).await;
    let says = async |wanted: bool| {
        eventually(LONG, "readiness says so", async || {
            let url = format!("http://{}/readyz", edge.http());
            let text = http().get(url).send().await.unwrap().text().await.unwrap();
            let metric = format!("holdfast_sync_not_draining {}", u8::from(wanted));
            let shown = edge.metrics().render().contains(&metric);
            if text.contains("not draining") == wanted && shown { Ok(()) } else { Err(text) }
        })
        .await
        .unwrap();
    };
    says(true).await;
    open.send_replace(true);
    all_are(&site, "acked").await;
    says(false).await;
    edge.stop().await;
}

/// Telemetry of an outage and what is live share the line: neither waits for the end of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_what_is_new_goes_out_at_once_while_the_backlog_drains() {
    let site = Site::new("sync_after_outage").await;
    let (old, new) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    for first in [1u64, 501] {
        site.ingest(&[old.batch(&old.readings(first..first + 500), &[])]).await;
    }
    let aged = "UPDATE sync_outbox SET created_at = now() - interval '2 d'";
    site.client().await.execute(aged, &[]).await.unwrap();
    let cloud = TestCloud::start(|_| Say::Status(503, json!({}))).await;
    let pairs =
        [("SYNC_BATCH_EVENTS", "20"), ("SYNC_BACKLOG_SHARE", "0.05"), ("SYNC_WORKERS", "1")];
    let forwarder = forward(&site, &sync_config(&site, &cloud.url, &pairs), "edge-1");
    let down = "SELECT count(*) FROM sync_state WHERE consecutive_failures > 0";
    eventually(LONG, "the link is down", async || site.number(down).await > 0).await.unwrap();
    cloud.tell(|_| Say::Store);
    let backlog = "SELECT count(*) FROM sync_outbox WHERE stream = 'barn-1' AND status <> 'acked'
        AND event_type = 'telemetry.ingested'";
    eventually(LONG, "the backlog drains", async || site.number(backlog).await < 1_000)
        .await
        .unwrap();
    let (id, event) = alarm(&new);
    let mut records = new.readings([1]);
    records.push((2, event));
    site.ingest(&[new.batch(&records, &[])]).await;
    let fresh: serde_json::Value = serde_json::from_str(&records[0].1).unwrap();
    let fresh = fresh["event_id"].as_str().unwrap().to_owned();
    eventually(LONG, "what is new is there", async || {
        cloud.stored().contains(&id) && cloud.stored().contains(&fresh)
    })
    .await
    .unwrap();
    let order: Vec<String> = cloud
        .order()
        .iter()
        .map(|one| one["event"]["event_id"].as_str().unwrap().to_owned())
        .collect();
    let last_old = cloud.order().iter().rposition(|one| one["stream"] == "barn-1").unwrap();
    let left = site.number(backlog).await;
    for id in [&id, &fresh] {
        let place = order.iter().position(|stored| stored == id).unwrap();
        assert!(place < last_old || left > 0, "the backlog was gone before: nothing is shown");
    }
    forwarder.stop().await;
}
