//! Over a real broker: receiving, acknowledging, reconnecting.

use edge::{Config, Edge};
use event::wire::{Ack, Clock, Report, Status, compress};
use jiff::Timestamp;
use mqtt::rumqttc::{LastWill, QoS};
use serde_json::json;
use testkit::{Broker, eventually};

use crate::device::{Device, Spool};
use crate::site::{LONG, Sender, Site, config, enroll, gap, http, start};

pub(crate) struct Farm {
    pub(crate) site: Site,
    pub(crate) broker: Broker,
    pub(crate) config: Config,
    pub(crate) address: String,
}

impl Farm {
    pub(crate) async fn new(name: &str) -> Farm {
        let site = Site::new(name).await;
        let broker = testkit::mosquitto().await.unwrap();
        let address = broker.url();
        let config = config(site.database.url(), &[("MQTT_ADDRESS", &address)]);
        Farm { site, broker, config, address }
    }

    pub(crate) async fn node(&self, name: &str) -> (Sender, Device) {
        let sender = enroll(&self.config, name, event::id::TenantId::mint()).await;
        let device = Device::connect(&self.address, name).await;
        (sender, device)
    }

    /// Waits until a query gives this number.
    pub(crate) async fn number(&self, query: &str, expected: i64) {
        let client = self.site.client().await;
        eventually(LONG, query, async || {
            let found = crate::site::number(&client, query).await;
            if found == expected { Ok(()) } else { Err(found) }
        })
        .await
        .unwrap();
    }
}

pub(crate) async fn ready(edge: &Edge) {
    let url = format!("http://{}/readyz", edge.http());
    eventually(LONG, "the edge is ready", async || {
        let answer = http().get(&url).send().await.unwrap();
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(answer.text().await.unwrap()) }
    })
    .await
    .unwrap();
}

pub(crate) const STORED: &str = "SELECT count(*) FROM sync_outbox";

#[tokio::test]
async fn batches_are_stored_and_acknowledged_with_a_retained_ack() {
    let farm = Farm::new("mqtt").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    device.publish(&node.topic("live"), node.body(&node.readings([1, 2, 6]), &[])).await;
    let ack = device.acked(2).await;
    assert_eq!(ack, Ack { epoch: node.epoch, acked_seq: 2, ranges: vec![(6, 6)] });
    let body = compress(&node.body(&node.readings([3]), &[gap(4, 5)]), 3).unwrap();
    device.publish(&node.topic("backfill"), body).await;
    device.acked(6).await;
    farm.number(STORED, 4).await;
    // Who connects later hears it at once.
    let late = Device::connect(&farm.address, "barn-1").await;
    assert_eq!(late.acked(6).await.ranges, []);
    let text = edge.metrics().render();
    assert!(text.contains("holdfast_edge_records_total{outcome=\"stored\"} 4"), "{text}");
    assert!(text.contains("holdfast_edge_waiting_messages 0"), "{text}");
    assert!(!text.contains("barn-1"), "a node's name is no label");
    edge.stop().await;
}

#[tokio::test]
async fn a_bad_message_holds_up_nobody() {
    let farm = Farm::new("mqtt_bad").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    let bomb = zstd::bulk::compress(&vec![b' '; 200 << 20], 1).unwrap();
    device.publish(&node.topic("backfill"), bomb).await;
    device.publish(&node.topic("live"), "{").await;
    // Larger than a message may be, and than any limit of the client that could break the
    // connection.
    device.publish(&node.topic("live"), vec![b'x'; 4 << 20]).await;
    device.publish(&node.topic("event"), vec![b'y'; 4 << 20]).await;
    device.publish("iot/BARN/live", "{}").await;
    device.publish("iot/stranger/live", node.body(&node.readings([1]), &[])).await;
    device.publish(&node.topic("live"), node.body(&node.readings([1]), &[])).await;
    device.acked(1).await;
    farm.number("SELECT count(*) FROM ingress_quarantine", 6).await;
    let query = "SELECT count(*) FROM ingress_quarantine WHERE reason = 'too_large' AND times = 1
        AND octet_length(body) <= 65536";
    farm.number(query, 3).await;
    assert_eq!(device.connects(), 1);
    let text = edge.metrics().render();
    assert!(text.contains("holdfast_edge_broker_connects_total 2"), "nothing broke a connection");
    // Acknowledged: a new edge is not sent them again.
    edge.stop().await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    device.publish(&node.topic("live"), node.body(&node.readings([2]), &[])).await;
    device.acked(2).await;
    assert_eq!(farm.site.number("SELECT max(times) FROM ingress_quarantine").await, 1);
    edge.stop().await;
}

#[tokio::test]
async fn bare_events_are_stored_once_also_those_that_come_while_the_edge_is_away() {
    let farm = Farm::new("bare").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    let event = || {
        let mut event = node.reading();
        event["event_type"] = json!("door.opened");
        event["payload"] = json!({});
        event.to_string()
    };
    let first = event();
    device.publish(&node.topic("event"), first.clone()).await;
    device.publish(&node.topic("event"), first).await;
    device.publish(&node.topic("event"), compress(event().as_bytes(), 3).unwrap()).await;
    farm.number(STORED, 2).await;
    edge.stop().await;
    for _ in 0..300 {
        device.publish(&node.topic("event"), event()).await;
    }
    let edge = start(&farm.config).await;
    farm.number(STORED, 302).await;
    let query =
        "SELECT count(*) FROM sync_outbox WHERE priority = 10 AND stream IS NULL AND seq IS NULL
        AND device_id IS NOT NULL";
    farm.number(query, 302).await;
    edge.stop().await;
}

/// What a node says of itself that was acknowledged its first record.
fn report(head: u64, at: &str) -> Report {
    Report {
        head,
        acked: 1,
        oldest: 1,
        bytes: 4096,
        backlog: 2,
        drops: 0,
        gaps: 0,
        clock: Clock::Set,
        at: at.parse().unwrap(),
        free_bytes: None,
        oldest_at: None,
        version: "0.1.0".to_owned(),
        written_bytes_per_day: None,
        ignored_acks: Default::default(),
        ignored_commands: Default::default(),
    }
}

#[tokio::test]
async fn a_node_that_does_not_know_of_a_repair_is_acknowledged_again() {
    let farm = Farm::new("behind").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    device.publish(&node.topic("live"), node.body(&node.readings([1, 2, 6]), &[])).await;
    device.acked(2).await;
    // A repair closes the hole below what the node still holds, and the node samples nothing more.
    let repaired =
        "UPDATE ledger_frontier SET lost = '{3,5}', lost_count = 3, acked = 6, updated_at = now()";
    assert_eq!(farm.site.client().await.execute(repaired, &[]).await.unwrap(), 1);
    let says = Status::online(node.epoch, report(6, "2026-02-01T10:00:00Z")).to_json();
    device.retain(&node.topic("status"), says).await;
    assert_eq!(device.acked(6).await.ranges, []);
    edge.stop().await;
}

#[tokio::test]
async fn status_is_kept_and_only_the_nodes_own_word_counts_as_life() {
    let farm = Farm::new("status").await;
    let sender = enroll(&farm.config, "barn-1", event::id::TenantId::mint()).await;
    let topic = sender.topic("status");
    let online = |head, at: &str| Status::online(sender.epoch, report(head, at)).to_json();
    let will = Status::offline(sender.epoch).to_json();
    let last_will = LastWill::new(topic.clone(), will, QoS::AtLeastOnce, true);
    let device = Device::with_will(&farm.address, "barn-1", Some(last_will)).await;
    device.retain(&topic, online(7, "2026-02-01T10:00:00Z")).await;

    // The edge comes later: what the broker kept is shown, and is no sign of life.
    let edge = start(&farm.config).await;
    let status = |state: &str, head: u64| {
        format!(
            "SELECT count(*) FROM nodes WHERE status->>'state' = '{state}' AND status->>'head' = '{head}'"
        )
    };
    farm.number(&status("online", 7), 1).await;
    farm.number("SELECT count(*) FROM nodes WHERE last_rx_at IS NULL", 1).await;
    device.retain(&topic, online(8, "2026-02-01T10:01:00Z")).await;
    farm.number("SELECT count(*) FROM nodes WHERE last_rx_at = status_at", 1).await;
    let heard = farm.site.text("SELECT last_rx_at::text FROM nodes").await;
    device.vanish();
    farm.number(&status("offline", 8), 1).await;
    assert_eq!(farm.site.text("SELECT last_rx_at::text FROM nodes").await, heard);
    // The numbers are those of the report, and so is the time at which they came.
    assert_eq!(farm.site.text("SELECT status_at::text FROM nodes").await, heard);
    let client = farm.site.client().await;
    let list =
        edge::registry::list(&client, Timestamp::now(), &farm.config.liveness).await.unwrap();
    assert_eq!(list[0].status.as_ref().unwrap()["backlog"], 2);
    edge.stop().await;
}

#[tokio::test]
async fn a_broker_that_restarts_loses_nothing() {
    let mut farm = Farm::new("broker_restart").await;
    let edge = start(&farm.config).await;
    ready(&edge).await;
    let (node, device) = farm.node("barn-1").await;
    let spool = Spool::new(node, 2_000);
    spool.send(&device, 50);
    device.acked(1).await;
    farm.broker.kill().await.unwrap();
    spool.send(&device, 50);
    eventually(LONG, "the edge notices", async || {
        let url = format!("http://{}/readyz", edge.http());
        http().get(&url).send().await.unwrap().text().await.unwrap().contains("broker")
    })
    .await
    .unwrap();
    farm.broker.restart().await.unwrap();
    spool.drain(&device, 50, 2_000).await;
    farm.number(STORED, 2_000).await;
    farm.number("SELECT acked FROM ledger_frontier", 2_000).await;
    ready(&edge).await;
    edge.stop().await;
}
