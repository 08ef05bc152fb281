//! A database that goes away and comes back.

use std::os::unix::fs::PermissionsExt;

use testkit::eventually;
use testkit::rig::{Postgres, PostgresOptions};

use crate::broker::{Farm, ready};
use crate::device::{Device, Spool};
use crate::site::{LONG, config, enroll, number, start};

/// A database that can be killed without harm to other tests.
async fn private() -> (tempfile::TempDir, Postgres, String) {
    let folder = tempfile::tempdir().unwrap();
    // The server runs as another user when the test runs as root.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let server = Postgres::start(folder.path(), options).await.unwrap();
    let url = server.url("postgres");
    (folder, server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_acknowledged_while_the_database_is_away_and_nothing_is_lost() {
    let (_folder, mut server, url) = private().await;
    let broker = testkit::mosquitto().await.unwrap();
    let address = broker.url();
    let pairs = [("MQTT_ADDRESS", address.as_str()), ("INGRESS_STALL_AFTER", "1s")];
    let config = config(&url, &pairs);
    let edge = start(&config).await;
    ready(&edge).await;
    let node = enroll(&config, "barn-1", event::id::TenantId::mint()).await;
    let device = Device::connect(&address, "barn-1").await;
    let bare: Vec<String> = (0..50).map(|_| node.reading().to_string()).collect();
    let topic = node.topic("event");
    let spool = Spool::new(node, 2_000);
    spool.send(&device, 20);
    device.acked(20).await;
    server.kill().await.unwrap();
    let acked = device.last_ack().unwrap().acked_seq;
    for event in &bare {
        device.publish(&topic, event.clone()).await;
    }
    spool.send(&device, 20);
    let (client, http) = (crate::site::http(), format!("http://{}", edge.http()));
    eventually(LONG, "the edge says that data has stopped", async || {
        let answer = client.get(format!("{http}/readyz")).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        let said = text.contains("waited") && text.contains("database");
        if status == 503 && said { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    assert_eq!(client.get(format!("{http}/healthz")).send().await.unwrap().status(), 200);
    let later = device.last_ack().unwrap().acked_seq;
    // A commit may have been under way when the server died; after that, nothing.
    assert!(later < 2_000, "acked {later} after {acked} without a database");

    // The edge dies with what it holds. Had it acknowledged a bare event, nobody would send it
    // again.
    drop(edge);
    server.restart().await.unwrap();
    let edge = start(&config).await;
    spool.drain(&device, 100, 2_000).await;
    let client = pg::connect(&pg::Options::new(&url)).await.unwrap();
    eventually(LONG, "every event is stored", async || {
        let stored = number(&client, "SELECT count(*) FROM sync_outbox").await;
        if stored == 2_050 { Ok(()) } else { Err(stored) }
    })
    .await
    .unwrap();
    assert_eq!(number(&client, "SELECT count(*) FROM telemetry_raw").await, 2_050);

    // Killed again under an edge that stays: it goes on by itself.
    server.kill().await.unwrap();
    let event = spool.sender.reading().to_string();
    device.publish(&topic, event).await;
    server.restart().await.unwrap();
    let client = pg::connect(&pg::Options::new(&url)).await.unwrap();
    eventually(LONG, "the edge goes on", async || {
        number(&client, "SELECT count(*) FROM sync_outbox").await == 2_051
    })
    .await
    .unwrap();
    ready(&edge).await;
    edge.stop().await;
}

#[tokio::test]
async fn nothing_is_acknowledged_before_its_commit() {
    let farm = Farm::new("before_commit").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    let mut blocker = farm.site.client().await;
    let transaction = blocker.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE sync_outbox IN EXCLUSIVE MODE").await.unwrap();
    device.publish(&node.topic("live"), node.body(&node.readings([1]), &[])).await;
    for _ in 0..5 {
        device.publish(&node.topic("event"), node.reading().to_string()).await;
    }
    farm.number(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
         AND application_name = 'holdfast-edge' AND datname = current_database()",
        1,
    )
    .await;
    eventually(LONG, "the edge holds every message", async || {
        edge.metrics().render().contains("holdfast_edge_waiting_messages 6")
    })
    .await
    .unwrap();
    assert_eq!(device.last_ack(), None);
    drop(edge);
    drop(transaction);
    // What was not acknowledged comes again.
    let edge = start(&farm.config).await;
    farm.number("SELECT count(*) FROM sync_outbox WHERE stream IS NULL", 5).await;
    edge.stop().await;
}
