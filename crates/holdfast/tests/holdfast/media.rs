//! `holdfast media copies`, on the cloud's database.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

use testkit::Database;

const IMAGE: &str = "0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01";

struct Cloud {
    database: Database,
    config: tempfile::NamedTempFile,
}

impl Cloud {
    /// A cloud that has given up the copies of two images, and waits with a third.
    async fn new() -> Cloud {
        let migrate = |url| async move { cloud::migrate(&pg::Options::new(url)).await };
        let database = testkit::database("media_command", "cloud", migrate).await.unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), format!("[cloud]\ndatabase.url = {:?}\n", database.url()))
            .unwrap();
        let fill = format!(
            "INSERT INTO media_object (tenant_id, media_id, event_id, farm_id, barn_id, device_id, occurred_at, path,
                 mime_type, size_bytes, copy_status, copy_attempts, copy_failed_at, copy_error_code, copy_error_message)
             SELECT gen_random_uuid(), CASE n WHEN 1 THEN '{IMAGE}' ELSE gen_random_uuid() END::uuid, gen_random_uuid(),
                 gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now(), 'tenants/t/a.jpg', 'image/jpeg', 7,
                 CASE WHEN n < 3 THEN 'failed' ELSE 'pending' END, CASE WHEN n < 3 THEN 10 ELSE 1 END,
                 CASE WHEN n < 3 THEN now() - n * interval '1 hour' END,
                 CASE n WHEN 1 THEN 'not_found' ELSE 'size_differs' END, 'said so'
             FROM generate_series(1, 3) n"
        );
        database.connect().await.unwrap().batch_execute(&fill).await.unwrap();
        Cloud { database, config }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["media", "copies"]).args(arguments).arg("--config").arg(self.config.path());
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
async fn failed_copies_are_seen_and_tried_again_on_record() {
    let cloud = Cloud::new().await;
    let all = cloud.says(&["list"]);
    assert!(
        all.contains(IMAGE) && all.contains("size_differs") && all.contains("said so"),
        "{all}"
    );
    let json = cloud.says(&["list", "--code", "not_found", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((rows.len(), rows[0]["media_id"].as_str()), (1, Some(IMAGE)));
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&cloud.says(&["list", "--json"])).unwrap();
    assert_eq!(all.len(), 2, "one that is tried again by itself has not failed");
    assert!(cloud.says(&["list", "--since", "30m"]).contains("No copy has failed"));

    let refused = cloud.run(&["retry"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("or say --all"), "{refused:?}");
    let would = cloud.says(&["retry", "--all", "--dry-run"]);
    assert_eq!(would, "2 images would be copied again\n");
    let due =
        "SELECT count(*) FROM media_object WHERE copy_status = 'pending' AND copy_attempts = 0";
    assert_eq!(cloud.number(due).await, 0);
    assert_eq!(cloud.says(&["retry", "--id", IMAGE]), "1 of 1 images are copied again\n");
    assert_eq!(cloud.number(due).await, 1);
    let json = cloud.says(&["retry", "--all", "--json"]);
    let done: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&done["matched"], &done["changed"]), (&1.into(), &1.into()));
    let audited =
        "SELECT count(*) FROM operator_audit WHERE action = 'media.retry' AND outcome = 'done'";
    assert_eq!(cloud.number(audited).await, 3, "the dry run and two retries");
}
