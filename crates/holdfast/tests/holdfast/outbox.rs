//! `holdfast outbox` and `holdfast token --edge`, on a site's database.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

use serde_json::Value;
use testkit::Database;

const TENANT: &str = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002";

struct Site {
    database: Database,
    config: tempfile::NamedTempFile,
}

impl Site {
    async fn new(name: &str) -> Site {
        let database = Database::empty(name).await.unwrap();
        edge::migrate(&pg::Options::new(database.url())).await.unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        let text = format!("[edge]\ndatabase.url = {:?}\n", database.url());
        std::fs::write(config.path(), text).unwrap();
        Site { database, config }
    }

    /// Rows in a state, with ids that end in their number.
    async fn rows(&self, from: i32, to: i32, status: &str, reason: &str) {
        let query = "INSERT INTO sync_outbox (id, tenant_id, event_type, occurred_at, payload_json, status,
                attempt_count, failed_at, dlq_reason, last_error_message, claimed_by, claimed_at, lease_expires_at,
                lease_token, stream, epoch, seq)
            SELECT ('0190f1a8-7c21-7b3e-9b0e-' || lpad(n::text, 12, '0'))::uuid, $3::text::uuid,
                'telemetry.ingested', now(), '{\"metric_value\": 1}', $4, CASE $4 WHEN 'dlq' THEN 3 ELSE 0 END,
                CASE $4 WHEN 'dlq' THEN now() END, CASE $4 WHEN 'dlq' THEN $5 END,
                CASE $4 WHEN 'dlq' THEN 'not right' END,
                CASE $4 WHEN 'claimed' THEN $5 END, CASE $4 WHEN 'claimed' THEN now() END,
                CASE $4 WHEN 'claimed' THEN now() - interval '1 s' END,
                CASE $4 WHEN 'claimed' THEN gen_random_uuid() END, 'barn-1', gen_random_uuid(), n
            FROM generate_series($1::int, $2::int) AS n";
        let client = self.database.connect().await.unwrap();
        client.execute(query, &[&from, &to, &TENANT, &status, &reason]).await.unwrap();
    }

    async fn number(&self, query: &str) -> i64 {
        self.database.connect().await.unwrap().query_one(query, &[]).await.unwrap().get(0)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).arg("--config").arg(self.config.path());
        command.output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        serde_json::from_str(&self.says(&arguments)).unwrap()
    }
}

#[tokio::test]
async fn dead_letters_are_listed_shown_and_sent_again_with_an_audit() {
    let site = Site::new("cli_outbox").await;
    site.rows(1, 150, "dlq", "invalid").await;
    site.rows(151, 153, "dlq", "too_large").await;
    site.rows(201, 205, "pending", "").await;

    let listed = site.says(&["outbox", "list", "--status", "dlq", "--reason", "too_large"]);
    assert_eq!(listed.matches("too_large: not right").count(), 3, "{listed}");
    assert!(listed.contains("barn-1 #152"), "{listed}");
    let page = site.json(&["outbox", "list", "--limit", "100"]);
    assert_eq!(page["rows"].as_array().unwrap().len(), 100);
    let next = page["next"].as_str().unwrap();
    let rest = site.json(&["outbox", "list", "--limit", "100", "--after", next]);
    assert_eq!(rest["rows"].as_array().unwrap().len(), 58);
    assert!(rest["next"].is_null());

    let dry = site.says(&["outbox", "redrive", "--reason", "invalid", "--dry-run"]);
    assert!(dry.contains("150 rows would be redriven"), "{dry}");
    let refused = site.run(&["outbox", "redrive", "--reason", "invalid"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("--yes"), "{text}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'dlq'").await, 153);
    let nothing = site.run(&["outbox", "redrive"]);
    assert_eq!(nothing.status.code(), Some(2), "it must be said which");

    // In parts, one a second; one audit for each part.
    let done = site.json(&["outbox", "redrive", "--reason", "invalid", "--rate", "80", "--yes"]);
    assert_eq!((&done["rows"], &done["left"]), (&150.into(), &0.into()), "{done}");
    assert_eq!(
        site.number(
            "SELECT count(*) FROM sync_audit WHERE via = 'cli' AND actor LIKE 'user %(uid %)'"
        )
        .await,
        2
    );
    assert_eq!(
        site.number(
            "SELECT count(*) FROM sync_audit_row WHERE dlq_reason = 'invalid' AND attempt_count = 3"
        )
        .await,
        150
    );
    assert_eq!(
        site.number(
            "SELECT count(*) FROM sync_outbox WHERE status = 'pending' AND attempt_count = 0"
        )
        .await,
        155
    );

    let id = "0190f1a8-7c21-7b3e-9b0e-000000000007";
    let shown = site.says(&["outbox", "show", id]);
    assert!(shown.contains("metric_value") && shown.contains("redrive"), "{shown}");
    assert_eq!(site.json(&["outbox", "show", id])["history"][0]["dlq_reason"], "invalid");
    let missing = site.run(&["outbox", "show", "0190f1a8-7c21-7b3e-9b0e-000000009999"]);
    assert!(String::from_utf8(missing.stderr).unwrap().contains("holdfast outbox list"));
}

#[tokio::test]
async fn dead_letters_are_given_up_with_a_reason_and_come_back_by_their_id() {
    let site = Site::new("cli_give_up").await;
    site.rows(1, 120, "dlq", "invalid").await;
    site.rows(121, 122, "dlq", "too_large").await;
    site.rows(201, 203, "pending", "").await;
    let give_up =
        |more: &[&'static str]| [&["outbox", "give-up", "--reason", "invalid"], more].concat();
    let why = ["--because", "readings of a test rig"];

    let silent = site.run(&give_up(&["--yes"]));
    assert_eq!(silent.status.code(), Some(2), "it must be said why");
    assert!(String::from_utf8(silent.stderr).unwrap().contains("--because"));
    let dry = site.says(&give_up(&[&why[..], &["--dry-run"]].concat()));
    assert!(dry.contains("120 rows would be given up"), "{dry}");
    let refused = site.run(&give_up(&why));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("--yes"), "{text}");
    let failed =
        "SELECT count(*) FROM sync_outbox WHERE status = 'failed' AND dlq_reason = 'invalid'";
    assert_eq!(site.number(failed).await, 0);

    let done = site.json(&give_up(&[&why[..], &["--yes"]].concat()));
    assert_eq!((&done["rows"], &done["left"]), (&120.into(), &0.into()), "{done}");
    assert_eq!(site.number(failed).await, 120);
    let audit = "SELECT count(*) FROM sync_audit WHERE action = 'give_up' AND via = 'cli'
        AND because = 'readings of a test rig' AND rows = 120";
    assert_eq!(site.number(audit).await, 1);

    let id = "0190f1a8-7c21-7b3e-9b0e-000000000007";
    let shown = site.says(&["outbox", "show", id]);
    assert!(shown.contains("given up: readings of a test rig"), "{shown}");
    assert_eq!(
        site.json(&["outbox", "redrive", "--all"])["rows"],
        2,
        "final for whoever names no id"
    );
    assert_eq!(site.json(&["outbox", "redrive", "--id", id])["rows"], 1);
    assert_eq!(site.number(failed).await, 119);
}

#[tokio::test]
async fn stuck_rows_are_freed_and_the_stats_say_how_it_stands() {
    let site = Site::new("cli_unclaim").await;
    site.rows(1, 4, "claimed", "edge-2/bulk").await;
    let client = site.database.connect().await.unwrap();
    let down =
        "INSERT INTO sync_state (tenant_id, consecutive_failures, paused_until, last_failure)
        VALUES ($1::text::uuid, 3, now() + interval '4 min', 'the cloud answers 503')";
    client.execute(down, &[&TENANT]).await.unwrap();

    let stats = site.says(&["outbox", "stats"]);
    assert!(stats.contains("The link to the cloud is down; it is tried again in 3 min"), "{stats}");
    assert!(stats.contains("the cloud answers 503") && stats.contains("4 rows wait"), "{stats}");
    let stats = site.json(&["outbox", "stats"]);
    assert_eq!((&stats["breaker"], &stats["tenants"][0]["stuck"]), (&"open".into(), &4.into()));

    let freed = site.says(&["outbox", "unclaim", "--claimed-by", "edge-2/bulk"]);
    assert!(freed.contains("4 rows freed") && freed.contains("4 held by edge-2/bulk"), "{freed}");
    assert_eq!(site.json(&["outbox", "unclaim"])["rows"], 0);
}

#[tokio::test]
async fn a_site_has_tokens_of_its_own() {
    let site = Site::new("cli_edge_tokens").await;
    let made =
        site.says(&["token", "create", "anna", "--edge", "--role", "operator", "--tenant", TENANT]);
    assert!(made.starts_with("hf_"), "{made}");
    let listed = site.says(&["token", "list", "--edge"]);
    assert!(listed.contains("anna") && !listed.contains(made.trim()), "{listed}");
}
