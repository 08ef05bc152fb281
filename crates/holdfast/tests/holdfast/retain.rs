//! `holdfast edge retain` and `holdfast edge lifecycle`, as a cron and an operator run them.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use crate::images::Site;
use event::id::EventId;
use serde_json::{Value, json};
use uuid::Uuid;

/// A row of the outbox that came to its state some days ago.
async fn outbox(site: &Site, state: &str, days: i32) -> Uuid {
    let id = EventId::mint().uuid();
    let text = "INSERT INTO sync_outbox (id, tenant_id, event_type, payload_json, status, updated_at, failed_at, dlq_reason)
        VALUES ($1, $2, 'door.opened', '{}', $3, now() - make_interval(days => $4),
            CASE WHEN $3 = 'dlq' THEN now() END, CASE WHEN $3 = 'dlq' THEN 'invalid' END)";
    site.client.execute(text, &[&id, &site.tenant.uuid(), &state, &days]).await.unwrap();
    id
}

/// Ages an image; returns nothing, the key names it.
async fn captured(site: &Site, key: &str, days: i32, copied: bool) {
    let text = "UPDATE media_objects SET captured_at = now() - make_interval(days => $2), stored_at = now() - make_interval(days => $2),
            cloud_copy = CASE WHEN $3 THEN 'copied' END, cloud_copied_at = CASE WHEN $3 THEN now() END
        WHERE object_key = $1";
    site.client.execute(text, &[&key, &days, &copied]).await.unwrap();
}

/// Rows of a job with a fate.
fn rows(report: &Value, job: &str, fate: &str) -> u64 {
    let lines = report["lines"].as_array().unwrap().iter();
    let fitting = lines.filter(|line| line["job"] == job && line["fate"] == fate);
    fitting.map(|line| line["rows"].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn a_dry_run_says_what_a_turn_does_and_changes_nothing() {
    let site = Site::new("retain_command").await;
    site.write_config("sync.cloud_url = \"http://127.0.0.1:1\"\nsync.token = \"canary-77ab\"\nretention.share = 1.0\n");
    for (state, days) in [("acked", 40), ("acked", 40), ("acked", 2), ("dlq", 40)] {
        outbox(&site, state, days).await;
    }
    let waiting = outbox(&site, "pending", 400).await;
    let (old, only, young) =
        (site.image(b"old").await, site.image(b"only").await, site.image(b"young").await);
    captured(&site, &old, 100, true).await;
    captured(&site, &only, 100, false).await;
    captured(&site, &young, 10, true).await;
    let state = "SELECT count(*) FROM sync_outbox";
    let seen = "INSERT INTO ingress_dedupe (event_id, tenant_id, first_seen_at)
        SELECT gen_random_uuid(), $1, now() - n * interval '1 day' FROM generate_series(1, 5) AS n";
    site.client.execute(seen, &[&site.tenant.uuid()]).await.unwrap();

    let would = site.json(true, &["edge", "retain", "--dry-run", "--json"]).await;
    assert_eq!(would["dry_run"], json!(true));
    assert_eq!((rows(&would, "acked", "would_go"), rows(&would, "media", "would_go")), (2, 1));
    assert_eq!(rows(&would, "media", "held"), 1, "{would}");
    assert_eq!(site.number(state).await, 5, "a look changes nothing");
    let listed = async || site.bucket.list("tenants/", None, 10).await.unwrap().objects.len();
    assert_eq!(listed().await, 3);
    let shown = site.run(&["edge", "retain", "--dry-run"]).await;
    let shown = [shown.stdout, shown.stderr].concat();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("would go") && shown.contains("no copy of them yet"), "{shown}");
    assert!(shown.contains("The database takes") && !shown.contains("canary-77ab"), "{shown}");

    let done = site.json(true, &["edge", "retain", "--json"]).await;
    assert_eq!(done["dry_run"], json!(false));
    assert_eq!(rows(&would, "dedupe", "would_go"), 3, "{would}");
    for job in ["acked", "media", "dead_letters", "dedupe"] {
        assert_eq!(rows(&done, job, "gone"), rows(&would, job, "would_go"), "{job}: {done}");
    }
    assert_eq!(
        site.number(state).await,
        3,
        "the young one, the one that waits, and what tells of the dead letter"
    );
    let pending = format!("{state} WHERE id = '{waiting}' AND status = 'pending'");
    assert_eq!(site.number(&pending).await, 1, "work that waits is never touched");
    assert_eq!(listed().await, 2);
    assert!(site.bucket.head(&old).await.is_err());
    assert!(site.bucket.head(&only).await.is_ok(), "the only one stays");
    assert_eq!(site.number("SELECT count(*) FROM outbox_archive").await, 1);
    let again = site.json(true, &["edge", "retain", "--json"]).await;
    assert_eq!(rows(&again, "acked", "gone") + rows(&again, "media", "gone"), 0, "{again}");
}

#[tokio::test]
async fn a_turn_that_another_process_is_at_is_said() {
    let site = Site::new("retain_busy").await;
    // The lock of retention's turn, held by this connection.
    let turn = 0x7265_7461_696e_i64;
    site.client.execute("SELECT pg_advisory_lock($1)", &[&turn]).await.unwrap();
    let output = site.run(&["edge", "retain"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("another process is at it"), "{said}");
    assert!(site.run(&["edge", "retain", "--dry-run"]).await.status.success(), "a look needs none");
}

#[tokio::test]
async fn lifecycle_rules_follow_the_configuration_and_come_with_a_warning() {
    let site = Site::new("lifecycle_command").await;
    site.write_config("retention.media_days = 33\n");
    let output = site.run(&["edge", "lifecycle"]).await;
    assert!(output.status.success(), "{output:?}");
    let rules: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rule = &rules["Rules"][0];
    assert_eq!((&rule["Expiration"]["Days"], &rule["Status"]), (&json!(33), &json!("Enabled")));
    assert_eq!(rule["Filter"]["Prefix"], "tenants/", "archives of dead letters are not under it");
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(warned.contains("do not know what was delivered"), "{warned}");
    let output = site.run(&["edge", "lifecycle", "--format", "xml"]).await;
    let xml = String::from_utf8(output.stdout).unwrap();
    assert!(xml.starts_with("<?xml") && xml.contains("<Days>33</Days>"), "{xml}");
    assert_eq!(xml.matches("<Prefix>tenants/</Prefix>").count(), 1, "{xml}");
}
