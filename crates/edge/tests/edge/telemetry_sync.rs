//! What of readings goes to the cloud, and how the ledger stays explainable when readings stay at the site.

use api::tokens::Tenants;
use edge::config::TelemetrySync;
use event::farm::Envelope;
use event::id::DeviceId;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Site, gap, number};
use crate::sync::{alarm, all_are};
use crate::sync_cloud::{forward, sync_config};
use crate::sync_real::RealCloud;
use crate::telemetry::{aggregator, at, marks, numbered, reading};

/// Every aggregate that was handed over, in the order of ids: window, version and the rest.
async fn sent(site: &Site) -> Vec<Value> {
    let query = "SELECT payload_json FROM sync_outbox WHERE event_type = 'telemetry.aggregated'
        ORDER BY id";
    let rows = site.client().await.query(query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn aggregates_are_sent_when_they_end_and_again_when_they_are_corrected() {
    let mut site = Site::new("agg_sent").await;
    site.writer = site.writer.clone().sending(TelemetrySync::Aggregates);
    let node = site.enroll("barn-1").await;
    let device = DeviceId::mint();
    let aggregator = aggregator(&site, TelemetrySync::Aggregates);
    let time = at("2026-02-01T10:00:10Z");
    site.ingest(&[node.batch(&[(1, reading(device, time, 20.0, "GOOD"))], &[])]).await;
    aggregator.work_off().await.unwrap();
    let first = sent(&site).await;
    let windows: Vec<&Value> = first.iter().map(|one| &one["aggregation_window"]).collect();
    assert_eq!(windows, ["1m", "1h", "1d"]);
    let wanted = json!({"metric_type": "temperature", "aggregation_window": "1m", "avg_value": 20.0,
        "min_value": 20.0, "max_value": 20.0, "unit": "C", "count": 1, "sum_value": 20.0,
        "version": 1, "source": "edge"});
    assert_eq!(first[0], wanted);

    // A bad reading changes no value and sends nothing; a late one sends all three again.
    site.ingest(&[node.batch(&[(2, reading(device, time, 99.0, "BAD"))], &[])]).await;
    aggregator.work_off().await.unwrap();
    assert_eq!(sent(&site).await.len(), 3);
    let late = time + SignedDuration::from_secs(5);
    site.ingest(&[node.batch(&[(3, reading(device, late, 30.0, "GOOD"))], &[])]).await;
    aggregator.work_off().await.unwrap();
    let again = sent(&site).await;
    assert_eq!(again.len(), 6);
    for one in &again[3..] {
        assert_eq!(
            (&one["version"], &one["avg_value"], &one["count"]),
            (&json!(2), &json!(25.0), &json!(2))
        );
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 3);
    let raw = "SELECT count(*) FROM sync_outbox WHERE event_type = 'telemetry.ingested'";
    assert_eq!(site.number(raw).await, 0, "readings stay at the site");
    // Each is an envelope that keeps every rule.
    let envelopes = "SELECT jsonb_build_object('event_id', id, 'event_type', event_type,
            'tenant_id', tenant_id, 'farm_id', farm_id, 'barn_id', barn_id, 'device_id', device_id,
            'session_id', null, 'occurred_at', to_char(occurred_at AT TIME ZONE 'UTC',
                'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), 'payload', payload_json)::text
        FROM sync_outbox";
    for row in site.client().await.query(envelopes, &[]).await.unwrap() {
        Envelope::parse(row.get::<_, String>(0).as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn an_open_bucket_is_computed_and_sent_once_it_has_ended() {
    let site = Site::new("agg_open").await;
    let node = site.enroll("barn-1").await;
    let aggregator = aggregator(&site, TelemetrySync::Both);
    // Two years ahead: no bucket of it ends during the test.
    let ahead = jiff::Timestamp::now() + SignedDuration::from_hours(2 * 365 * 24);
    let event = reading(DeviceId::mint(), ahead, 20.0, "GOOD");
    site.ingest(&[node.batch(&[(1, event)], &[])]).await;
    let due = "UPDATE telemetry_dirty SET due_at = now() WHERE due_at < now() + interval '1 hour'";
    for _ in 0..3 {
        site.client().await.execute(due, &[]).await.unwrap();
        aggregator.work_off().await.unwrap();
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_agg").await, 3, "it can be asked for");
    assert_eq!((sent(&site).await.len(), marks(&site).await), (0, 3), "and is not sent");
    let kept = "SELECT count(*) FROM telemetry_dirty d JOIN telemetry_agg a
        USING (tenant_id, device_id, \"window\", bucket_start_at) WHERE d.due_at = a.bucket_end_at";
    assert_eq!(site.number(kept).await, 3, "before it ends");
    let raw = "SELECT count(*) FROM sync_outbox WHERE event_type = 'telemetry.ingested'";
    assert_eq!(site.number(raw).await, 1, "both: the reading is sent too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readings_that_stay_at_the_site_are_accounted_for_in_the_cloud() {
    let cloud = RealCloud::start("agg_kept_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let mut site = Site::new("agg_kept_edge").await;
    site.writer = site.writer.clone().sending(TelemetrySync::Aggregates);
    let node = site.enroll("barn-1").await;
    let device = node.enrolled.device_id;
    let aggregator = aggregator(&site, TelemetrySync::Aggregates);
    let start = at("2026-02-01T10:00:00Z");
    let readings = (0..200)
        .map(|n| reading(device, start + SignedDuration::from_secs(n * 7), n as f64, "GOOD"));
    let mut records = numbered(11, readings);
    // An alarm in the middle goes to the cloud, a record in quarantine does not, a gap is lost.
    records[100].1 = alarm(&node).1;
    records[150].1 = "{}".to_owned();
    site.ingest(&[node.batch(&records, &[gap(1, 10)])]).await;
    site.ingest(&[node.batch(&records, &[gap(1, 10)])]).await;
    aggregator.work_off().await.unwrap();
    assert_eq!(aggregator.tell_kept().await.unwrap(), 1);
    assert_eq!(aggregator.tell_kept().await.unwrap(), 0, "once");
    let told =
        "SELECT string_agg(reason || ' ' || from_seq || '-' || to_seq, ', ' ORDER BY from_seq)
        FROM ledger_tombstone";
    let wanted = "drop_oldest 1-10, kept_at_site 11-110, kept_at_site 112-160, quarantined 161-161, \
                  kept_at_site 162-210";
    assert_eq!(site.text(told).await, wanted);

    let sync = sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", &token)]);
    let forwarder = forward(&site, &sync, "edge-1");
    all_are(&site, "acked").await;
    let frontier = "SELECT (acked, received, lost, received_count, lost_count)::text
        FROM ledger_frontier WHERE stream = 'barn-1'";
    let store = cloud.client().await;
    eventually(LONG, "the frontiers are equal", async || {
        let here = site.text(frontier).await;
        let there: Option<String> =
            store.query_opt(frontier, &[]).await.unwrap().map(|row| row.get(0));
        if there.as_ref() == Some(&here) { Ok(()) } else { Err(format!("{here} {there:?}")) }
    })
    .await
    .unwrap();

    // The cloud has the site's aggregates, and made none of its own.
    let of_edge = "SELECT string_agg((\"window\", bucket_start_at, count, sum_value)::text, ' '
        ORDER BY \"window\", bucket_start_at) FROM telemetry_agg";
    let of_cloud = "SELECT coalesce(string_agg((aggregation_window, bucket_start, sample_count,
        sum_value)::text, ' ' ORDER BY aggregation_window, bucket_start), '') FROM telemetry_aggregate";
    let here = site.text(of_edge).await;
    eventually(LONG, "the cloud has them", async || {
        let there: String = store.query_one(of_cloud, &[]).await.unwrap().get(0);
        if there == here { Ok(()) } else { Err(there) }
    })
    .await
    .unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM telemetry_reading").await, 0);
    forwarder.stop().await;
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_both_nothing_is_counted_twice_in_the_cloud() {
    let cloud = RealCloud::start("agg_both_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("agg_both_edge").await;
    let node = site.enroll("barn-1").await;
    let device = node.enrolled.device_id;
    let aggregator = aggregator(&site, TelemetrySync::Both);
    let sync = sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", &token)]);
    let forwarder = forward(&site, &sync, "edge-1");
    let start = at("2026-02-01T10:00:00Z");
    let time = |n: i64| start + SignedDuration::from_secs(n * 13 % 3_600);
    let readings = (0..300).map(|n| reading(device, time(n), 0.5 * n as f64, "GOOD"));
    for batch in numbered(1, readings).chunks(60) {
        site.ingest(&[node.batch(batch, &[])]).await;
        aggregator.work_off().await.unwrap();
    }
    all_are(&site, "acked").await;
    let query = |window, start, count, table| {
        format!(
            "SELECT coalesce(string_agg(({window}, {start}, {count}, sum_value, min_value, max_value)::text,
             ' ' ORDER BY {window}, {start}), '') FROM {table}"
        )
    };
    let here = site.text(&query("\"window\"", "bucket_start_at", "count", "telemetry_agg")).await;
    let of_cloud =
        query("aggregation_window", "bucket_start", "sample_count", "telemetry_aggregate");
    let store = cloud.client().await;
    eventually(LONG, "the cloud's are the edge's", async || {
        let there: String = store.query_one(&of_cloud, &[]).await.unwrap().get(0);
        let rest = number(&store, "SELECT count(*) FROM telemetry_mark").await;
        if there == here && rest == 0 { Ok(()) } else { Err(there) }
    })
    .await
    .unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM telemetry_reading").await, 300);
    forwarder.stop().await;
    cloud.stop().await;
}
