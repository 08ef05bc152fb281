//! One sequence, two events: a card that was copied.

use crate::site::Site;
use edge::registry;
use jiff::Timestamp;
use serde_json::json;

#[tokio::test]
async fn both_events_of_a_cloned_card_are_kept_and_the_node_is_flagged() {
    let site = Site::new("cloned").await;
    let node = site.enroll("barn-1").await;
    let original = node.batch(&node.readings(1..=5), &[]);
    site.ingest(std::slice::from_ref(&original)).await;
    let block = "SELECT hash::text FROM ledger_block";
    let hash = site.text(block).await;
    let copy = node.batch(&node.readings(4..=6), &[]);
    let committed = site.ingest(std::slice::from_ref(&copy)).await;
    assert_eq!((committed.tally.cloned, committed.tally.stored), (2, 1));
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 8);
    assert_eq!(site.text("SELECT flag_reason FROM nodes").await, "cloned");
    assert_eq!(site.number("SELECT count FROM ledger_block").await, 6, "one event per sequence");
    assert_ne!(site.text(block).await, hash);

    let before = site.snapshot().await;
    let committed = site.ingest(&[copy, original]).await;
    assert_eq!(committed.tally.duplicate, 8);
    assert_eq!(site.snapshot().await, before);

    registry::clear_flag(&site.config, &"barn-1".parse().unwrap()).await.unwrap();
    let client = site.client().await;
    let list = registry::list(&client, Timestamp::now(), &site.config.liveness).await.unwrap();
    assert_eq!((list[0].flagged_at, list[0].cloned), (None, 2));
}

#[tokio::test]
async fn clones_in_one_transaction_are_seen_too() {
    let site = Site::new("cloned_at_once").await;
    let node = site.enroll("barn-1").await;
    let messages = [node.batch(&node.readings([1]), &[]), node.batch(&node.readings([1]), &[])];
    let committed = site.ingest(&messages).await;
    assert_eq!((committed.tally.cloned, committed.tally.stored), (1, 1));
}

#[tokio::test]
async fn a_record_that_becomes_valid_is_no_clone() {
    let site = Site::new("released").await;
    let node = site.enroll("barn-1").await;
    let mut event = node.reading();
    let other = event::id::TenantId::mint();
    event["tenant_id"] = json!(other);
    let batch = node.batch(&[(1, event.to_string())], &[]);
    site.ingest(std::slice::from_ref(&batch)).await;
    // The registration was wrong, and is put right; the node sends again what it has no ack for.
    let client = site.client().await;
    client.execute("UPDATE nodes SET tenant_id = $1", &[&other.uuid()]).await.unwrap();
    let fresh = pg::Pool::new(&site.config.database).unwrap();
    let writer = edge::ingress::Writer::new(fresh, edge::metrics::Metrics::new().into());
    let committed = writer.ingest(&[batch]).await.unwrap();
    assert_eq!((committed.tally.stored, committed.tally.cloned), (1, 0));
}
