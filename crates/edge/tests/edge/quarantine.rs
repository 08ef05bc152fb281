//! What cannot be stored is kept with its reason, and its neighbours get through.

use crate::site::Site;
use edge::ingress::{Incoming, Reason, Source};
use event::id::{EventId, TenantId};
use serde_json::json;

fn reasons(committed: &edge::ingress::Committed) -> Vec<(Reason, u64)> {
    committed.tally.quarantined.iter().map(|(reason, count)| (*reason, *count)).collect()
}

#[tokio::test]
async fn bad_records_go_aside_and_their_sequences_count() {
    let site = Site::new("bad_records").await;
    let node = site.enroll("barn-1").await;
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut event = node.reading();
        change(&mut event);
        event.to_string()
    };
    let records = vec![
        (1, node.reading().to_string()),
        (2, with(&|e| e["tenant_id"] = json!(TenantId::mint()))),
        (3, with(&|e| e["payload"]["metric_value"] = json!("hot"))),
        (4, with(&|e| e["payload"]["unit"] = json!("C\u{0}"))),
        (5, with(&|e| e["event_id"] = json!("none"))),
        (6, "[1, 2, 3]".to_owned()),
        (7, "{\"event_id\": \"\\u0000\"}".to_owned()),
        (8, node.reading().to_string()),
    ];
    let committed = site.ingest(&[node.batch(&records, &[])]).await;
    assert_eq!(committed.tally.stored, 2);
    assert_eq!(reasons(&committed), [(Reason::InvalidEvent, 5), (Reason::TenantMismatch, 1)]);
    assert_eq!(committed.acks[0].1.acked_seq, 8, "what is safe here need not be sent again");
    let query = "SELECT count(*) FROM ingress_quarantine WHERE accounted AND node_id = 'barn-1'
        AND tenant_id IS NOT NULL AND seq BETWEEN 2 AND 7 AND octet_length(body) = body_bytes";
    assert_eq!(site.number(query).await, 6);
    let query = "SELECT convert_from(body, 'UTF8') FROM ingress_quarantine WHERE seq = 6";
    assert_eq!(site.text(query).await, "[1, 2, 3]");
    assert_eq!(site.number("SELECT quarantined_count FROM ledger_frontier").await, 6);
    let other = "SELECT count(*) FROM sync_outbox WHERE tenant_id <> (SELECT tenant_id FROM nodes)";
    assert_eq!(site.number(other).await, 0, "nothing reached another tenant");
    let detail = "SELECT string_agg(detail, '|') FROM ingress_quarantine";
    assert!(!site.text(detail).await.contains("trace-1"), "a detail shows no payload");
}

#[tokio::test]
async fn unreadable_messages_go_aside_whole_and_are_counted() {
    let site = Site::new("unreadable").await;
    let node = site.enroll("barn-1").await;
    let good = node.batch(&node.readings(1..=2), &[]);
    let version = json!({"v": 2, "epoch": node.epoch, "records": [{"seq": 1, "event": {}}]});
    let bad: Vec<(Vec<u8>, Reason)> = vec![
        (b"{".to_vec(), Reason::Unreadable),
        (b"\xff\xfe".to_vec(), Reason::Unreadable),
        (version.to_string().into_bytes(), Reason::Unreadable),
        (zstd::bulk::compress(&vec![b' '; 64 << 20], 1).unwrap(), Reason::TooLarge),
        (vec![b' '; (1 << 20) + 1], Reason::TooLarge),
        ([0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3].to_vec(), Reason::Unreadable),
    ];
    for (body, reason) in bad {
        let messages = [node.message("backfill", body), good.clone()];
        for _ in 0..2 {
            let committed = site.ingest(&messages).await;
            assert_eq!(reasons(&committed), [(reason, 1)]);
            assert_eq!(committed.acks.len(), 1, "the neighbour is acknowledged");
        }
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 2);
    let query = "SELECT count(*) FROM ingress_quarantine WHERE times = 2 AND NOT accounted
        AND octet_length(body) <= 65536";
    assert_eq!(site.number(query).await, 6, "a message that comes again is counted, not piled up");
}

#[tokio::test]
async fn foreign_topics_and_senders_go_aside() {
    let site = Site::new("foreign").await;
    let node = site.enroll("barn-1").await;
    let body = node.body(&node.readings([1]), &[]);
    let topics = [
        "iot/+/live",
        "iot/#",
        "iot/BARN/live",
        "iot/a/b/live",
        "other/barn-1/live",
        "iot/barn-1/other",
        "",
    ];
    let messages: Vec<Incoming> = topics
        .iter()
        .map(|topic| Incoming::new(Source::Mqtt, *topic, body.clone().into()))
        .collect();
    let committed = site.ingest(&messages).await;
    assert_eq!(reasons(&committed), [(Reason::Topic, 7)]);
    assert!(committed.acks.is_empty());

    let stranger = Incoming::new(Source::Mqtt, "iot/stranger/live", body.clone().into());
    let ack = node.message("ack", "{}");
    let committed = site.ingest(&[stranger.clone(), ack]).await;
    assert_eq!(reasons(&committed), [(Reason::Topic, 1), (Reason::UnknownNode, 1)]);
    // However many batches a stranger sends, they share a row.
    let other = Incoming::new(
        Source::Mqtt,
        "iot/stranger/live",
        node.body(&node.readings([2]), &[]).into(),
    );
    site.ingest(&[stranger, other]).await;
    let query = "SELECT times FROM ingress_quarantine WHERE node_id = 'stranger'";
    assert_eq!(site.number(query).await, 3);

    edge::registry::set_disabled(&site.config, &"barn-1".parse().unwrap(), true).await.unwrap();
    let pool = pg::Pool::new(&site.config.database).unwrap();
    let writer = edge::ingress::Writer::new(pool, edge::metrics::Metrics::new().into());
    let batch = node.batch(&node.readings([1]), &[]);
    let committed = writer.ingest(std::slice::from_ref(&batch)).await.unwrap();
    assert_eq!(reasons(&committed), [(Reason::DisabledNode, 1)]);
    assert!(committed.acks.is_empty(), "the node keeps what was not taken");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 0);
}

#[tokio::test]
async fn refused_messages_of_one_node_have_a_bound() {
    let site = Site::new("overflow").await;
    let node = site.enroll("barn-1").await;
    let noise = |range: std::ops::Range<usize>| -> Vec<Incoming> {
        range.map(|n| node.message("live", format!("noise {n}"))).collect()
    };
    site.ingest(&noise(0..1000)).await;
    let committed = site.ingest(&noise(1000..1200)).await;
    assert_eq!(reasons(&committed), [(Reason::Unreadable, 200)]);
    assert_eq!(site.number("SELECT count(*) FROM ingress_quarantine").await, 1001);
    assert_eq!(site.number("SELECT max(times) FROM ingress_quarantine").await, 200);
}

#[tokio::test]
async fn a_ledger_with_too_many_holes_takes_no_more() {
    let site = Site::new("islands").await;
    let node = site.enroll("barn-1").await;
    let event = node.reading().to_string();
    let holes = |from: u64, count: u64| -> Vec<(u64, String)> {
        (0..count).map(|n| (from + 2 * n, event.clone())).collect()
    };
    for part in 0..4 {
        let body = node.body(&holes(2 + part * 8_192, 4_096), &[]);
        let body = event::wire::compress(&body, 1).unwrap();
        let committed = site.ingest(&[node.message("backfill", body)]).await;
        assert_eq!(committed.acks.len(), 1);
    }
    let before = site.text("SELECT md5(received::text) FROM ledger_frontier").await;
    // Its first record would fit; it is taken whole or not at all, and its ids are not remembered.
    let late = node.readings([2, 40_000, 40_002]);
    let committed = site.ingest(&[node.batch(&late, &[])]).await;
    assert_eq!(reasons(&committed), [(Reason::TooManyIslands, 1)]);
    assert!(committed.acks.is_empty());
    assert_eq!(site.text("SELECT md5(received::text) FROM ledger_frontier").await, before);
    // The node fills the hole below, and then the same batch is taken and stored.
    let below: Vec<(u64, String)> = (0..2_000).map(|n| (1 + 2 * n, event.clone())).collect();
    site.ingest(&[node.batch(&below, &[])]).await;
    let committed = site.ingest(&[node.batch(&late, &[])]).await;
    assert_eq!(committed.tally.stored, 2);
}

#[tokio::test]
async fn an_id_of_another_tenant_is_not_theirs_to_take() {
    let site = Site::new("ids").await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    let mut event = ours.reading();
    event["event_id"] = json!(EventId::mint());
    let first = ours.batch(&[(1, event.to_string())], &[]);
    let second = theirs.batch(&[(1, event.to_string())], &[]);
    // In one transaction, and in two.
    let committed = site.ingest(&[first.clone(), second.clone()]).await;
    assert_eq!(committed.tally.stored, 1);
    assert_eq!(reasons(&committed), [(Reason::IdTaken, 1)]);
    let before = site.snapshot().await;
    site.ingest(&[second]).await;
    assert_eq!(site.snapshot().await, before);
    event["event_id"] = json!(EventId::mint());
    site.ingest(&[ours.batch(&[(2, event.to_string())], &[])]).await;
    let committed = site.ingest(&[theirs.batch(&[(2, event.to_string())], &[])]).await;
    assert_eq!(reasons(&committed), [(Reason::IdTaken, 1)]);
    assert_eq!(committed.acks[0].1.acked_seq, 2);
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 2);
}

#[tokio::test]
async fn a_row_that_the_database_refuses_is_isolated() {
    let site = Site::new("poison").await;
    let (node, other) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    let client = site.client().await;
    let rule = "ALTER TABLE sync_outbox ADD CONSTRAINT no_poison CHECK (trace_id <> 'poison')";
    client.execute(rule, &[]).await.unwrap();
    let poison = || {
        let mut event = node.reading();
        event["trace_id"] = json!("poison");
        event.to_string()
    };
    let mut records = node.readings(1..=40);
    records[6].1 = poison();
    records[30].1 = poison();
    let messages = [
        other.batch(&other.readings(1..=5), &[]),
        node.batch(&records, &[crate::site::gap(41, 42)]),
        node.message("event", poison()),
        other.batch(&other.readings(6..=9), &[]),
    ];
    let committed = site.ingest(&messages).await;
    assert_eq!(committed.tally.stored, 47);
    assert_eq!(reasons(&committed), [(Reason::Refused, 3)]);
    let acked: Vec<u64> = committed.acks.iter().map(|(_, ack)| ack.acked_seq).collect();
    assert_eq!(acked.len(), 2);
    assert!(acked.contains(&42) && acked.contains(&9), "{acked:?}");
    let query = "SELECT string_agg(DISTINCT detail, '|') FROM ingress_quarantine";
    assert_eq!(site.text(query).await, "SQLSTATE 23514, no_poison");
    let before = site.snapshot().await;
    site.ingest(&messages).await;
    assert_eq!(site.snapshot().await, before);
}

#[tokio::test]
async fn a_refused_row_is_found_in_a_large_batch_too() {
    let site = Site::new("poison_large").await;
    let node = site.enroll("barn-1").await;
    let client = site.client().await;
    let rule = "ALTER TABLE telemetry_raw ADD CONSTRAINT no_poison CHECK (metric_type <> 'poison')";
    client.execute(rule, &[]).await.unwrap();
    let mut records = node.readings(1..=4_000);
    let mut event = node.reading();
    event["payload"]["metric_type"] = json!("poison");
    // The server refuses it long before the last row is sent.
    records[2].1 = event.to_string();
    let body = event::wire::compress(&node.body(&records, &[]), 1).unwrap();
    let committed = site.ingest(&[node.message("backfill", body)]).await;
    assert_eq!(committed.tally.stored, 3_999);
    assert_eq!(reasons(&committed), [(Reason::Refused, 1)]);
    assert_eq!(committed.acks.last().map(|(_, ack)| ack.acked_seq), Some(4_000));
}
