//! From HTTP to the consumers' stores over Kafka, while the broker is killed.

use cloud::Cloud;
use event::id::{DeviceId, Epoch};
use serde_json::Value;
use testkit::eventually;
use testkit::rig::KafkaOptions;

use crate::relay::{ids, outbox_is_empty, readings, ready};
use crate::site::{LONG, Site, batch, config, post};
use crate::wiring::{Store, analytics, telemetry};

async fn send(cloud: &Cloud, token: &str, events: &[Value]) {
    let body = batch(events.to_vec()).to_string();
    let answer = post(cloud).bearer_auth(token).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_kafka_every_event_is_stored_once_and_in_order_through_a_killed_broker() {
    let Some(mut kafka) = testkit::private_kafka(KafkaOptions::default()).await.unwrap() else {
        return;
    };
    let servers = kafka.servers();
    let (store, other) = (Store::default(), Store::default());
    let works = || vec![store.work(telemetry()), other.work(analytics())];
    let pairs = |roles| {
        [
            ("BUS", "kafka"),
            ("KAFKA_BROKERS", servers.as_str()),
            ("KAFKA_PARTITIONS", "3"),
            ("KAFKA_REPLICATION", "1"),
            ("ROLES", roles),
            ("RELAY_BATCH", "50"),
        ]
    };
    let site = Site::with_works("relay_kafka", &pairs("ingestion,relay"), works()).await;
    let consumers = config(site.database.url(), &pairs("telemetry,analytics"));
    let consumers = Cloud::start_with(consumers, works()).await.unwrap();
    eventually(LONG, "ready", async || ready(&site.cloud).await.0 == 200).await.unwrap();
    let devices: Vec<DeviceId> = (0..7).map(|_| DeviceId::mint()).collect();
    let events = readings(&site, &devices, Epoch::mint(), 1, 900);
    let expected = ids(&events);
    send(&site.cloud, &site.token, &events[..500]).await;
    eventually(LONG, "some got through", async || store.len() > 50).await.unwrap();
    kafka.kill(0).await.unwrap();
    // What is sent meanwhile is taken, and waits.
    send(&site.cloud, &site.token, &events[500..]).await;
    eventually(LONG, "it is not ready", async || {
        let (status, text) = ready(&site.cloud).await;
        if status == 503 && text.contains("bus: cannot be reached") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    kafka.restart(0).await.unwrap();
    store.has(900).await;
    other.has(900).await;
    assert!(store.by_key() == expected && other.by_key() == expected, "in order for each key");
    outbox_is_empty(&site).await;
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0, "nothing was given up");
    consumers.stop().await;
    site.cloud.stop().await;
}
