//! The tables that other services rely on, by name, and the page that explains ours.

use std::collections::BTreeMap;

use crate::site::{Site, TABLES};

const PAGE: &str = include_str!("../../../../docs/spec/edge-tables.md");

/// The documented columns of the site's tables.
const CONTRACT: [(&str, &str); 8] = [
    (
        "telemetry_raw",
        "id tenant_id farm_id barn_id device_id occurred_at metric_type metric_value unit \
         ingested_at",
    ),
    (
        "telemetry_agg",
        "id tenant_id device_id window bucket_start_at bucket_end_at metric_type avg_value \
         min_value max_value count",
    ),
    ("ingress_dedupe", "tenant_id event_id first_seen_at"),
    (
        "weight_sessions",
        "id tenant_id farm_id barn_id device_id batch_id status start_at end_at initial_weight_kg \
         final_weight_kg",
    ),
    (
        "media_objects",
        "id tenant_id farm_id barn_id device_id session_id bucket object_key etag mime_type \
         size_bytes captured_at created_at",
    ),
    (
        "inference_results",
        "id tenant_id farm_id barn_id device_id session_id media_id predicted_weight_kg \
         predicted_size confidence model_version occurred_at",
    ),
    (
        "sync_outbox",
        "id tenant_id farm_id barn_id device_id session_id event_type occurred_at trace_id \
         payload_json payload_size_bytes status priority attempt_count last_attempt_at \
         next_attempt_at claimed_by claimed_at lease_expires_at last_error_code \
         last_error_message failed_at dlq_reason created_at updated_at",
    ),
    (
        "sync_state",
        "tenant_id last_acked_event_id last_acked_at last_sent_batch_id consecutive_failures \
         paused_until",
    ),
];

#[tokio::test]
async fn every_documented_column_and_index_is_there() {
    let site = Site::new("schema").await;
    let client = site.client().await;
    let query = "SELECT table_name::text, column_name::text FROM information_schema.columns
        WHERE table_schema = 'public'";
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in client.query(query, &[]).await.unwrap() {
        columns.entry(row.get(0)).or_default().push(row.get(1));
    }
    for (table, documented) in CONTRACT {
        for column in documented.split_whitespace() {
            let there = columns[table].iter().any(|name| name == column);
            assert!(there, "{table}.{column}");
        }
    }
    let query = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'";
    let rows = client.query(query, &[]).await.unwrap();
    let indexes: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    for (table, index) in [
        ("telemetry_raw", "(tenant_id, device_id, occurred_at DESC)"),
        ("telemetry_raw", "(tenant_id, occurred_at DESC)"),
        ("telemetry_agg", "(tenant_id, device_id, \"window\", bucket_start_at DESC"),
        ("ingress_dedupe", "(tenant_id, event_id)"),
        ("ingress_dedupe", "(first_seen_at)"),
        ("weight_sessions", "(tenant_id, device_id, start_at DESC)"),
        ("weight_sessions", "(tenant_id, status, start_at DESC)"),
        ("media_objects", "(tenant_id, session_id)"),
        ("media_objects", "(tenant_id, device_id, captured_at DESC)"),
        ("inference_results", "(tenant_id, session_id)"),
        ("inference_results", "(tenant_id, device_id, occurred_at DESC)"),
        ("sync_outbox", "(id)"),
        ("sync_outbox", "(next_attempt_at, occurred_at)"),
        ("sync_outbox", "(tenant_id, occurred_at DESC)"),
        ("sync_outbox", "(tenant_id, id)"),
        ("sync_outbox", "(tenant_id, failed_at DESC)"),
    ] {
        let on = format!("public.{table} ");
        let there = indexes.iter().any(|def| def.contains(&on) && def.contains(index));
        assert!(there, "{table} {index}");
    }
}

#[tokio::test]
async fn the_page_names_every_table_column_and_reason() {
    let site = Site::new("schema_page").await;
    let client = site.client().await;
    for table in TABLES.into_iter().chain(["outbox_archive", "retention_log", "retention_fill"]) {
        assert!(PAGE.contains(&format!("`{table}`")), "{table}");
        let query = "SELECT column_name::text FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name = $1::text";
        let rows = client.query(query, &[&table]).await.unwrap();
        assert!(!rows.is_empty());
        for row in &rows {
            let column: &str = row.get(0);
            let named = PAGE.contains(&format!("`{column}`"));
            assert!(named, "{table}.{column}");
        }
    }
    for reason in edge::ingress::Reason::ALL {
        assert!(PAGE.contains(&format!("`{}`", reason.as_str())), "{}", reason.as_str());
    }
}

#[tokio::test]
async fn states_and_leases_of_the_outbox_are_checked() {
    let site = Site::new("outbox_states").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings([1]), &[])]).await;
    let client = site.client().await;
    for wrong in [
        "status = 'lost'",
        "status = 'claimed'",
        "status = 'sending', claimed_by = 'a', claimed_at = now()",
        "status = 'dlq', failed_at = now()",
        "attempt_count = -1",
    ] {
        let refused = client.execute(&format!("UPDATE sync_outbox SET {wrong}"), &[]).await;
        assert!(refused.is_err(), "{wrong}");
    }
    let claim = "UPDATE sync_outbox SET status = 'claimed', claimed_by = 'a', claimed_at = now(),
        lease_expires_at = now() + interval '30 s', lease_token = gen_random_uuid()";
    assert_eq!(client.execute(claim, &[]).await.unwrap(), 1);
    let touched = "SELECT count(*) FROM sync_outbox WHERE updated_at > created_at";
    assert_eq!(site.number(touched).await, 1);
}

#[tokio::test]
async fn replicas_may_migrate_at_once_and_again() {
    let database = testkit::Database::empty("migrate").await.unwrap();
    let options = pg::Options::new(database.url());
    let all =
        tokio::join!(edge::migrate(&options), edge::migrate(&options), edge::migrate(&options));
    for outcome in [all.0, all.1, all.2] {
        outcome.unwrap();
    }
    edge::migrate(&options).await.unwrap();
    let client = database.connect().await.unwrap();
    let partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry_raw'::regclass";
    let made = crate::site::number(&client, partitions).await;
    assert!(made >= 17, "thirteen months back, three ahead, this one and the default: {made}");
}
