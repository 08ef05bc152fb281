//! The bytes of a row that sizes are computed with, against tables that were filled.

use edge::retention::bytes;

use crate::retention_ground::{days_ago, fill, set_state};
use crate::site::{Site, number};

/// What an estimate may be off by, either way.
const FACTOR: f64 = 1.35;
const ROWS: u64 = 12_000;

#[expect(clippy::cast_precision_loss, reason = "sizes of test tables")]
fn off(measured: i64, estimated: u64) -> f64 {
    let (measured, estimated) = (measured as f64, estimated as f64);
    (measured / estimated).max(estimated / measured)
}

#[tokio::test]
async fn the_estimates_are_near_what_real_tables_take() {
    let site = Site::new("row_bytes").await;
    let nodes =
        [site.enroll("barn-1").await, site.enroll("barn-2").await, site.enroll("barn-3").await];
    let part = ROWS / 3 / 4;
    for n in 0..4 {
        for node in &nodes {
            fill(&site, node, n * part + 1..=(n + 1) * part, days_ago(2)).await;
        }
    }
    let client = site.client().await;
    let mut found: Vec<(&str, i64, u64)> = Vec::new();
    let total = async |table: &str| {
        let size = format!("SELECT pg_total_relation_size('{table}') / {ROWS}");
        number(&client, &size).await
    };
    let month = "SELECT sum(pg_total_relation_size(inhrelid))::int8 / 12000 FROM pg_inherits
        WHERE inhparent = 'telemetry_raw'::regclass";
    found.push(("telemetry_raw", number(&client, month).await, bytes::RAW_ROW));
    found.push(("ingress_dedupe", total("ingress_dedupe").await, bytes::DEDUPE_ROW));
    let payload = number(&client, "SELECT avg(payload_size_bytes)::int8 FROM sync_outbox")
        .await
        .unsigned_abs();
    found.push(("sync_outbox, waiting", total("sync_outbox").await, bytes::outbox_row(payload)));
    // Claimed and acked in parts, with a vacuum between them, as a site does it in its time.
    for n in 0..4 {
        let some = format!("seq > {} AND seq <= {}", n * part, (n + 1) * part);
        set_state(&site, "claimed", 0, &some).await;
        set_state(&site, "acked", 0, &some).await;
        client.batch_execute("VACUUM sync_outbox").await.unwrap();
    }
    found.push(("sync_outbox, delivered", total("sync_outbox").await, bytes::acked_row(payload)));

    let media = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id, bucket, object_key,
            mime_type, size_bytes, captured_at, status, stored_at, sha256, etag)
        SELECT i, i, i, i, i, i, 'media', 'tenants/' || i || '/farms/' || i || '/barns/' || i || '/devices/' || i
                || '/images/2026/01/01/' || i || '.jpg', 'image/jpeg', 8, now(), 'stored', now(),
            sha256(i::text::bytea), repeat('e', 34)
        FROM (SELECT gen_random_uuid() AS i FROM generate_series(1, 12000)) n";
    client.execute(media, &[]).await.unwrap();
    found.push(("media_objects", total("media_objects").await, bytes::MEDIA_ROW));
    let aggregates = "INSERT INTO telemetry_agg (id, tenant_id, device_id, \"window\", bucket_start_at, bucket_end_at, metric_type,
            avg_value, min_value, max_value, count, sum_value, unit, readings)
        SELECT gen_random_uuid(), md5('t')::uuid, md5('d' || n % 20)::uuid, '1m', at, at + interval '1 min', 'temperature',
            n, n, n, 60, n, 'C', 60
        FROM (SELECT n, date_trunc('minute', now()) - n * interval '1 min' AS at FROM generate_series(1, 12000) n) m";
    client.execute(aggregates, &[]).await.unwrap();
    let months = "SELECT sum(pg_total_relation_size(inhrelid))::int8 / 12000 FROM pg_inherits
        WHERE inhparent = 'telemetry_agg'::regclass AND pg_relation_size(inhrelid) > 0";
    found.push(("telemetry_agg", number(&client, months).await, bytes::AGG_ROW));

    let cloud = testkit::Database::empty("row_bytes_cloud").await.unwrap();
    cloud::migrate(&pg::Options::new(cloud.url())).await.unwrap();
    let client = cloud.connect().await.unwrap();
    let relay = "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, trace_id, routing_key, ordering_key, envelope,
            stream, epoch, seq, traceparent)
        SELECT md5('t' || n % 10)::uuid, gen_random_uuid(), 'telemetry.ingested', now(), repeat('a', 32), 'telemetry.ingested',
            'telemetry/' || md5('d' || n % 100)::uuid, convert_to(repeat('e', 350), 'UTF8'), 'barn-' || n % 100,
            md5('e' || n % 100)::uuid, n / 100, '00-' || repeat('a', 32) || '-' || repeat('b', 16) || '-01'
        FROM generate_series(1, 12000) n";
    client.execute(relay, &[]).await.unwrap();
    let size = "SELECT pg_total_relation_size('relay_outbox') / 12000";
    found.push(("relay_outbox", number(&client, size).await, bytes::relay_row(350)));
    let wrong: Vec<_> = found
        .iter()
        .filter(|(_, measured, estimated)| off(*measured, *estimated) > FACTOR)
        .collect();
    assert!(wrong.is_empty(), "measured and estimated bytes a row: {wrong:?} of {found:?}");
}
