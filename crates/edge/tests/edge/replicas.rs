//! Several edges on one broker and one database.

use crate::broker::{Farm, STORED, ready};
use crate::device::{Device, Spool};
use crate::site::{config, start};
use testkit::eventually;

fn replica(farm: &Farm, name: &str) -> edge::Config {
    let pairs = [("MQTT_ADDRESS", farm.address.as_str()), ("REPLICA", name)];
    config(farm.site.database.url(), &pairs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_replicas_share_the_work_and_store_every_record_once() {
    let farm = Farm::new("replicas").await;
    let edges = [start(&replica(&farm, "edge-1")).await, start(&replica(&farm, "edge-2")).await];
    for edge in &edges {
        ready(edge).await;
    }
    let mut spools: Vec<(Spool, Device)> = Vec::new();
    for n in 0..4 {
        let (node, device) = farm.node(&format!("barn-{n}")).await;
        spools.push((Spool::new(node, 1_000), device));
    }
    // Everything twice, in small batches, so that both replicas work on the same streams at once.
    for (spool, device) in &spools {
        spool.send(device, 10);
        spool.send(device, 25);
    }
    for (spool, device) in &spools {
        spool.drain(device, 100, 1_000).await;
    }
    farm.number(STORED, 4_000).await;
    farm.number("SELECT sum(count)::bigint FROM ledger_block", 4_000).await;
    farm.number(
        "SELECT count(*) FROM ledger_frontier WHERE acked = 1000 AND stored_count = 1000",
        4,
    )
    .await;
    farm.number("SELECT count(*) FROM nodes WHERE flagged_at IS NULL", 4).await;
    for edge in &edges {
        let text = edge.metrics().render();
        assert!(!text.contains("outcome=\"stored\"} 0"), "both did some of the work: {text}");
    }
    for edge in edges {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_dies_in_the_middle_takes_nothing_with_it() {
    let farm = Farm::new("replica_dies").await;
    let survivor = start(&replica(&farm, "edge-1")).await;
    let victim = start(&replica(&farm, "edge-2")).await;
    ready(&survivor).await;
    ready(&victim).await;
    let (node, device) = farm.node("barn-1").await;
    let bare: Vec<String> = (0..200).map(|_| node.reading().to_string()).collect();
    let topic = node.topic("event");
    let spool = Spool::new(node, 3_000);
    spool.send(&device, 10);
    for event in &bare {
        device.publish(&topic, event.clone()).await;
    }
    eventually(crate::site::LONG, "the victim works", async || {
        !victim.metrics().render().contains("outcome=\"stored\"} 0")
    })
    .await
    .unwrap();
    drop(victim);
    spool.drain(&device, 100, 3_000).await;
    // What the broker had given the victim waits for its return.
    let victim = start(&replica(&farm, "edge-2")).await;
    farm.number(STORED, 3_200).await;
    farm.number("SELECT stored_count FROM ledger_frontier", 3_000).await;
    farm.number("SELECT sum(count)::bigint FROM ledger_block", 3_000).await;
    victim.stop().await;
    survivor.stop().await;
}
