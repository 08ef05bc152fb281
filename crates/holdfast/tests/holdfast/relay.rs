//! `holdfast relay`, on the cloud's database.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

use testkit::Database;

const EVENT: &str = "0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01";

struct Site {
    database: Database,
    config: tempfile::NamedTempFile,
}

impl Site {
    /// A cloud whose relay has given up two events.
    async fn new() -> Site {
        let database = Database::empty("relay_command").await.unwrap();
        cloud::migrate(&pg::Options::new(database.url())).await.unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), format!("[cloud]\ndatabase.url = {:?}\n", database.url()))
            .unwrap();
        let fill = format!(
            "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key, envelope, status,
                 attempt_count, failed_at, dlq_reason, last_error_message)
             SELECT gen_random_uuid(), CASE n WHEN 1 THEN '{EVENT}' ELSE gen_random_uuid() END::uuid, 'door.opened', now(),
                 'door.opened', 'canary-payload', 'dlq', 1, now() - n * interval '1 hour',
                 CASE n WHEN 1 THEN 'unroutable' ELSE 'too_large' END, 'said so'
             FROM generate_series(1, 2) n"
        );
        database.connect().await.unwrap().batch_execute(&fill).await.unwrap();
        Site { database, config }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("relay").args(arguments).arg("--config").arg(self.config.path());
        command.output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    async fn number(&self, query: &str) -> i64 {
        self.database.connect().await.unwrap().query_one(query, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn what_the_relay_gave_up_is_seen_and_published_again_on_record() {
    let site = Site::new().await;
    let all = site.says(&["list"]);
    assert!(all.contains(EVENT) && all.contains("too_large") && all.contains("said so"), "{all}");
    assert!(!all.contains("canary-payload"), "{all}");
    let json = site.says(&["list", "--reason", "unroutable", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((rows.len(), rows[0]["event_id"].as_str()), (1, Some(EVENT)));
    assert!(site.says(&["list", "--since", "30m"]).contains("nothing that fits"));

    let refused = site.run(&["redrive"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("or say --all"), "{refused:?}");
    let would = site.says(&["redrive", "--all", "--dry-run"]);
    assert_eq!(would, "2 events would be published again\n");
    let pending = "SELECT count(*) FROM relay_outbox WHERE status = 'pending'";
    assert_eq!(site.number(pending).await, 0);
    assert_eq!(site.says(&["redrive", "--id", EVENT]), "1 of 1 events are published again\n");
    assert_eq!(site.number(pending).await, 1);
    let audited = "SELECT count(*) FROM operator_audit WHERE action = 'relay.redrive'";
    assert_eq!(site.number(audited).await, 2, "the dry run and the redrive");
}
