//! What a batch leaves in the tables, once and again.

use crate::site::{Site, gap};
use event::wire::{Ack, compress};
use jiff::Timestamp;
use serde_json::json;

#[tokio::test]
async fn a_batch_is_in_every_table_it_belongs_to() {
    let site = Site::new("batch").await;
    let node = site.enroll("barn-1").await;
    let mut records = node.readings(1..=3);
    let mut alarm = node.reading();
    alarm["event_type"] = json!("alarm.raised");
    alarm["payload"] = json!({"code": "NH3_HIGH"});
    records.push((4, alarm.to_string()));
    let body = compress(&node.body(&records, &[]), 3).unwrap();
    let committed = site.ingest(&[node.message("backfill", body)]).await;

    assert_eq!(committed.tally.stored, 4);
    let ack = Ack { epoch: node.epoch, acked_seq: 4, ranges: vec![] };
    assert_eq!(committed.acks, [("barn-1".parse().unwrap(), ack)]);
    let query = "SELECT count(*) FROM telemetry_raw WHERE stream = 'barn-1' AND seq BETWEEN 1 AND 3
        AND metric_type = 'temperature' AND metric_value = 26.4 AND unit = 'C' AND farm_id IS NULL
        AND tableoid = 'telemetry_raw_2026_02'::regclass";
    assert_eq!(site.number(query).await, 3);
    let query = "SELECT count(*) FROM sync_outbox WHERE status = 'pending' AND attempt_count = 0
        AND (event_type, priority) IN (('telemetry.ingested', 0), ('alarm.raised', 20))
        AND payload_size_bytes > 0 AND payload_json ? 'code' = (seq = 4) AND trace_id = 'trace-1'";
    assert_eq!(site.number(query).await, 4);
    assert_eq!(site.number("SELECT count(*) FROM ingress_dedupe").await, 4);
    let query =
        "SELECT format('%s %s %s %s', acked, received, lost, stored_count) FROM ledger_frontier";
    assert_eq!(site.text(query).await, "4 {1,4} {} 4");
    assert_eq!(site.number("SELECT count FROM ledger_block WHERE block = 0").await, 4);
    assert_eq!(site.number("SELECT stored_count FROM nodes").await, 4);
}

#[tokio::test]
async fn the_same_batch_twice_leaves_every_table_as_it_was() {
    let site = Site::new("twice").await;
    let node = site.enroll("barn-1").await;
    let mut records = node.readings([1, 2, 5, 1024, 1025]);
    let mut bad = node.reading();
    bad["payload"]["metric_value"] = json!("hot");
    records.push((1026, bad.to_string()));
    let batch = node.batch(&records, &[gap(3, 4)]);
    let mut bare = node.reading();
    bare["event_type"] = json!("door.opened");
    let bare = node.message("event", bare.to_string());
    let mut bad_bare = node.reading();
    bad_bare["occurred_at"] = json!("yesterday");
    let messages = [batch, bare, node.message("event", bad_bare.to_string())];

    let first = site.ingest(&messages).await;
    assert_eq!((first.tally.stored, first.tally.lost), (6, 2));
    assert_eq!(first.tally.quarantined.values().sum::<u64>(), 2);
    let before = site.snapshot().await;
    let second = site.ingest(&messages).await;
    assert_eq!(second.tally.stored, 0);
    assert_eq!(second.tally.duplicate, 7, "all but the bad bare event have a sequence or an id");
    assert_eq!(second.acks, first.acks, "a batch that brings nothing new is acknowledged again");
    assert_eq!(site.snapshot().await, before);
    // Both in one transaction, and the records one by one.
    site.ingest(&[messages[0].clone(), messages[1].clone(), messages[0].clone()]).await;
    for record in &records {
        site.ingest(&[node.batch(std::slice::from_ref(record), &[])]).await;
    }
    let after = site.snapshot().await;
    let still = |tables: &[(&str, Vec<String>)]| {
        let kept = tables.iter().filter(|(table, _)| !["nodes", "devices"].contains(table));
        kept.cloned().map(|(t, rows)| (t.to_owned(), rows)).collect::<Vec<_>>()
    };
    assert_eq!(still(&after), still(&before), "only liveness follows a new receipt");
}

#[tokio::test]
async fn a_replay_after_the_cache_has_forgotten_changes_nothing() {
    let site = Site::new("ttl").await;
    let node = site.enroll("barn-1").await;
    let records = node.readings(1..=20);
    let bare = node.message("event", node.reading().to_string());
    let messages = [node.batch(&records, &[gap(21, 25)]), bare];
    site.ingest(&messages).await;
    let client = site.client().await;
    let age = "UPDATE ingress_dedupe SET first_seen_at = now() - interval '73 hours'";
    client.execute(age, &[]).await.unwrap();
    let swept = edge::sweep_dedupe(&site.config.database, site.config.dedupe_ttl).await.unwrap();
    assert_eq!(swept, Some(21));
    let before = site.snapshot().await;
    let committed = site.ingest(&messages).await;
    assert_eq!(committed.tally.duplicate, 21);
    assert_eq!(committed.tally.cloned, 0);
    let forgotten = |tables: Vec<(&'static str, Vec<String>)>| {
        tables.into_iter().filter(|(table, _)| *table != "ingress_dedupe").collect::<Vec<_>>()
    };
    assert_eq!(forgotten(site.snapshot().await), forgotten(before));

    // The sampler retries under a new sequence what was stored long ago: the store itself refuses
    // it.
    client.execute("DELETE FROM ingress_dedupe", &[]).await.unwrap();
    let retried = (26, records[0].1.clone());
    let committed = site.ingest(&[node.batch(&[retried], &[])]).await;
    assert_eq!((committed.tally.duplicate, committed.tally.stored), (1, 0));
    assert_eq!(committed.acks[0].1.acked_seq, 26);
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 21);
}

#[tokio::test]
async fn the_sweep_keeps_what_is_young() {
    let site = Site::new("sweep").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=10), &[])]).await;
    let swept = edge::sweep_dedupe(&site.config.database, site.config.dedupe_ttl).await.unwrap();
    assert_eq!(swept, Some(0));
    assert_eq!(site.number("SELECT count(*) FROM ingress_dedupe").await, 10);
}

#[tokio::test]
async fn a_sampler_that_retries_is_stored_once_and_both_sequences_count() {
    let site = Site::new("retry").await;
    let node = site.enroll("barn-1").await;
    let event = node.reading().to_string();
    let committed = site.ingest(&[node.batch(&[(1, event.clone()), (2, event)], &[])]).await;
    assert_eq!((committed.tally.stored, committed.tally.duplicate), (1, 1));
    assert_eq!(committed.acks[0].1.acked_seq, 2);
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 1);
    assert_eq!(site.number("SELECT count FROM ledger_block").await, 2);
}

#[tokio::test]
async fn gaps_are_kept_and_what_arrives_after_all_is_recovered() {
    let site = Site::new("gaps").await;
    let node = site.enroll("barn-1").await;
    let records = node.readings([1, 2, 10, 20]);
    let committed = site.ingest(&[node.batch(&records, &[gap(3, 8)])]).await;
    let ack = &committed.acks[0].1;
    assert_eq!((ack.acked_seq, ack.ranges.as_slice()), (8, [(10, 10), (20, 20)].as_slice()));
    let tombstone = "SELECT format('%s %s %s %s %s', from_seq, to_seq, count, reason, origin)
        FROM ledger_tombstone";
    assert_eq!(site.text(tombstone).await, "3 8 6 drop_oldest node");

    let committed = site.ingest(&[node.batch(&node.readings([5]), &[])]).await;
    assert_eq!((committed.tally.recovered, committed.tally.stored), (1, 0));
    let query =
        "SELECT format('%s %s %s %s', acked, received, lost, lost_count) FROM ledger_frontier";
    assert_eq!(site.text(query).await, "8 {1,2,5,5,10,10,20,20} {3,4,6,8} 5");
    assert_eq!(site.number("SELECT recovered_count FROM nodes").await, 1);
    // The gap again does not take back what was received.
    let committed = site.ingest(&[node.batch(&[], &[gap(3, 8), gap(9, 9)])]).await;
    assert_eq!(committed.tally.lost, 1);
    assert_eq!(committed.acks[0].1.acked_seq, 10);
    assert_eq!(site.number("SELECT count(*) FROM ledger_tombstone").await, 2);
}

#[tokio::test]
async fn a_re_imaged_node_starts_anew_beside_its_past() {
    let site = Site::new("epochs").await;
    let mut node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=5), &[])]).await;
    node.epoch = event::id::Epoch::mint();
    let committed = site.ingest(&[node.batch(&node.readings(1..=2), &[])]).await;
    assert_eq!((committed.tally.stored, committed.tally.cloned), (2, 0));
    assert_eq!(committed.acks[0].1.acked_seq, 2);
    let client = site.client().await;
    let now = Timestamp::now();
    let nodes = edge::registry::list(&client, now, &site.config.liveness).await.unwrap();
    assert_eq!((nodes[0].epochs, nodes[0].acked, nodes[0].stored), (2, 2, 7));
    assert_eq!((nodes[0].produced_before, nodes[0].lost_before), (5, 0));
    assert_eq!(nodes[0].epoch, Some(node.epoch.uuid()));
}

#[tokio::test]
async fn replay_never_turns_liveness_back() {
    let site = Site::new("liveness").await;
    let node = site.enroll("barn-1").await;
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let sample = |time: &str, clock: Option<&str>| {
        let mut event = node.reading();
        event["occurred_at"] = json!(time);
        if let Some(clock) = clock {
            event["payload"]["clock"] = json!(clock);
        }
        event.to_string()
    };
    let mut seq = 0;
    let mut send = |event: String, received: &str, retained: bool| {
        seq += 1;
        let mut message = node.batch(&[(seq, event)], &[]);
        message.received_at = at(received);
        message.retained = retained;
        message
    };
    let seen = "SELECT format('%s %s', n.last_rx_at AT TIME ZONE 'UTC', n.last_sample_ts AT TIME ZONE 'UTC')
        FROM nodes n JOIN devices d ON d.node_id = n.node_id
         AND d.last_rx_at = n.last_rx_at AND d.last_sample_ts = n.last_sample_ts";
    let steps = [
        ("2026-02-01T10:00:00Z", None, "2026-02-01T10:00:01Z", false),
        // Backfill: an old sample, received later.
        ("2026-01-01T00:00:00Z", None, "2026-02-01T10:00:02Z", false),
        // Received earlier by another replica, committed later.
        ("2026-01-01T00:00:00Z", None, "2026-02-01T09:00:00Z", false),
        // Clocks that are wrong say nothing about freshness.
        ("2026-02-01T10:00:02Z", Some("unset"), "2026-02-01T10:00:02Z", false),
        ("2099-02-01T10:00:02Z", None, "2026-02-01T10:00:02Z", false),
        // What the broker kept says nothing about now.
        ("2026-01-01T00:00:00Z", None, "2026-03-01T10:00:00Z", true),
    ];
    for (index, (time, clock, received, retained)) in steps.into_iter().enumerate() {
        site.ingest(&[send(sample(time, clock), received, retained)]).await;
        let rx = if index == 0 { "2026-02-01 10:00:01" } else { "2026-02-01 10:00:02" };
        assert_eq!(site.text(seen).await, format!("{rx} 2026-02-01 10:00:00"), "step {index}");
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 6, "all are stored");
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw_default").await, 1);
}
