//! `holdfast edge retain` as a real process that is killed (SIGKILL) at each of its steps. Nothing is lost undeclared, and the last
//! run finishes.
//!
//! A step waits at a door in the database, a lock that the test holds, so nothing in the command knows of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::Stdio;
use std::time::Duration;

use testkit::eventually;

use crate::images::{LONG, Site};

/// Sequences 1 to 10 are of a month whose time is over, 11 to 13 of clocks that were never set: both delivered. 14 to 20 are dead
/// letters, 21 to 25 were acked long ago, 26 to 40 wait for a cloud.
const EVENTS: &str = "WITH n AS (SELECT n, ('0190f1a8-7c21-7b3e-9b0e-' || lpad(n::text, 12, '0'))::uuid AS id,
        CASE WHEN n <= 10 THEN now() - interval '150 days' WHEN n <= 13 THEN '1970-01-01 00:10:00+00'
            ELSE now() END + n * interval '1 ms' AS at
        FROM generate_series(1, 40) AS n),
    raw AS (INSERT INTO telemetry_raw (id, tenant_id, device_id, occurred_at, metric_type, metric_value, unit, ingested_at,
            stream, epoch, seq)
        SELECT id, $1, $1, at, 'temperature', 20, 'C', now() - interval '91 days', 'barn-1', $1, n FROM n),
    ids AS (INSERT INTO ingress_dedupe (tenant_id, event_id, first_seen_at)
        SELECT $1, id, now() - interval '80 hours' FROM n),
    frontier AS (INSERT INTO ledger_frontier (stream, epoch, tenant_id, acked, received, received_count, stored_count)
        VALUES ('barn-1', $1, $1, 40, '{1,40}', 40, 40))
    INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json, payload_size_bytes, status,
        updated_at, failed_at, dlq_reason, stream, epoch, seq)
    SELECT id, $1, $1, 'telemetry.ingested', at, '{}', 2,
        CASE WHEN n <= 13 OR n BETWEEN 21 AND 25 THEN 'acked' WHEN n <= 20 THEN 'dlq' ELSE 'pending' END,
        now() - CASE WHEN n BETWEEN 14 AND 25 THEN interval '40 days' ELSE interval '0' END,
        CASE WHEN n BETWEEN 14 AND 20 THEN now() END, CASE WHEN n BETWEEN 14 AND 20 THEN 'invalid' END,
        'barn-1', $1, n FROM n";

const FUNCTIONS: &str = "CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN coalesce(NEW, OLD); END';
    CREATE FUNCTION drop_door() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(42); END'";
const LOCK: &str = "SELECT pg_advisory_xact_lock(42)";

/// A step, what holds it up, and how that is taken away.
struct Door {
    step: &'static str,
    before: &'static str,
    lock: &'static str,
    after: &'static str,
}

const fn lock(step: &'static str, lock: &'static str) -> Door {
    Door { step, before: "", lock, after: "" }
}

const fn trigger(step: &'static str, before: &'static str, after: &'static str) -> Door {
    Door { step, before, lock: LOCK, after }
}

/// Every step, in the order of a turn. A step that is killed is done by the run for the next door.
const DOORS: [Door; 13] = [
    // The month's name is not known here.
    lock(
        "the month is seen, and not locked",
        "DO $$ BEGIN EXECUTE 'LOCK TABLE ONLY ' || (SELECT tableoid::regclass FROM telemetry_raw WHERE seq = 1)
            || ' IN ROW EXCLUSIVE MODE'; END $$",
    ),
    lock(
        "the month is locked, and not dropped",
        "LOCK TABLE ONLY telemetry_raw IN ACCESS SHARE MODE",
    ),
    trigger(
        "the month is dropped, and not committed",
        "CREATE EVENT TRIGGER door_at_drop ON sql_drop EXECUTE FUNCTION drop_door()",
        "DROP EVENT TRIGGER door_at_drop",
    ),
    lock(
        "the month is committed, and readings without one are not gone",
        "SELECT FROM telemetry_raw_default WHERE seq = 12 FOR UPDATE",
    ),
    lock(
        "readings without a month are gone",
        "LOCK TABLE telemetry_agg_default IN ACCESS EXCLUSIVE MODE",
    ),
    lock(
        "the archive is written and checked",
        "SELECT FROM sync_outbox WHERE seq = 15 FOR UPDATE",
    ),
    lock(
        "the archive is noted, and nothing is declared",
        "LOCK TABLE ledger_tombstone IN SHARE MODE",
    ),
    lock(
        "dead letters are gone, and acked rows are not",
        "SELECT FROM sync_outbox WHERE seq = 22 FOR UPDATE",
    ),
    trigger(
        "an image is about to be marked",
        "CREATE TRIGGER door_at_step BEFORE UPDATE ON media_objects FOR EACH ROW
            WHEN (NEW.status = 'deleted' AND OLD.status = 'stored') EXECUTE FUNCTION door()",
        "DROP TRIGGER door_at_step ON media_objects",
    ),
    trigger(
        "its object is deleted, and not noted",
        "CREATE TRIGGER door_at_step BEFORE UPDATE ON media_objects FOR EACH ROW
            WHEN (NEW.purged_at IS NOT NULL) EXECUTE FUNCTION door()",
        "DROP TRIGGER door_at_step ON media_objects",
    ),
    trigger(
        "event ids are not swept",
        "CREATE TRIGGER door_at_step BEFORE DELETE ON ingress_dedupe FOR EACH ROW EXECUTE FUNCTION door()",
        "DROP TRIGGER door_at_step ON ingress_dedupe",
    ),
    lock("the limit has chosen what goes", "SELECT FROM ledger_frontier FOR UPDATE"),
    trigger(
        "the limit has written everything, and not committed",
        "CREATE TRIGGER door_at_step BEFORE INSERT ON retention_log FOR EACH ROW EXECUTE FUNCTION door()",
        "DROP TRIGGER door_at_step ON retention_log",
    ),
];

const BACKENDS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'holdfast-retention'";

/// Every event is where it was, or is in the archive and declared, or is declared lost; what was delivered may be gone.
async fn conserved(site: &Site, at: &str) {
    let wrong = "SELECT coalesce(string_agg(n::text, ','), '') FROM generate_series(1, 40) AS n
        CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM sync_outbox WHERE seq = n) AS held,
            EXISTS (SELECT FROM outbox_archive WHERE seq = n) AND EXISTS (SELECT FROM ledger_tombstone
                WHERE reason = 'expired' AND n BETWEEN from_seq AND to_seq) AS archived,
            EXISTS (SELECT FROM ledger_tombstone WHERE reason = 'drop_oldest' AND n BETWEEN from_seq AND to_seq)
                AND EXISTS (SELECT FROM ledger_frontier f WHERE n BETWEEN f.lost[1] AND f.lost[2]) AS lost,
            EXISTS (SELECT FROM telemetry_raw WHERE seq = n) AS read) s
        WHERE CASE WHEN n <= 13 OR n BETWEEN 21 AND 25 THEN archived OR lost
            WHEN n <= 20 THEN held = archived OR lost OR NOT read
            ELSE held = lost OR archived OR held <> read END";
    let wrong: String = site.client.query_one(wrong, &[]).await.unwrap().get(0);
    assert_eq!(wrong, "", "{at}");
    let month = "SELECT count(*) FROM telemetry_raw WHERE seq <= 10";
    assert!([0, 10].contains(&site.number(month).await), "{at}: a month is there or is gone");
    let sums = "SELECT stored_count + lost_count FROM ledger_frontier";
    assert_eq!(site.number(sums).await, 40, "{at}");
    let stored = "SELECT object_key FROM media_objects WHERE status = 'stored'";
    for row in site.client.query(stored, &[]).await.unwrap() {
        assert!(site.bucket.head(row.get(0)).await.is_ok(), "{at}: a stored row has its object");
    }
}

#[tokio::test]
async fn a_kill_at_any_step_of_the_command_loses_nothing_undeclared() {
    let site = Site::new("retain_kills").await;
    // No disk has so much room, so everything that the limit may take has to go.
    site.write_config(
        "sync.cloud_url = \"http://127.0.0.1:1\"\nsync.token = \"t\"\nretention.share = 1.0\n\
         retention.min_free_bytes = \"900TiB\"\nretention.disk_path = \"/\"\n",
    );
    site.client.execute(EVENTS, &[&site.tenant.uuid()]).await.unwrap();
    site.client.batch_execute(FUNCTIONS).await.unwrap();
    let image = site.image(b"old").await;
    let old = "UPDATE media_objects SET captured_at = now() - interval '100 days', stored_at = now() - interval '100 days', cloud_copy = 'copied', cloud_copied_at = now()";
    site.client.execute(old, &[]).await.unwrap();
    conserved(&site, "before").await;
    let holder = site.connect().await;
    for Door { step, before, lock, after } in DOORS {
        site.client.batch_execute(before).await.unwrap();
        holder.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
        let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let mut command = tokio::process::Command::from(site.command(&["edge", "retain"]));
        command.kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = 'holdfast-retention' AND {pid} = ANY(pg_blocking_pids(pid))"
        );
        let came = eventually(LONG, step, async || site.number(&waits).await == 1).await;
        child.start_kill().unwrap();
        let said = child.wait_with_output().await.unwrap();
        assert!(came.is_ok(), "{step}: {}", String::from_utf8_lossy(&said.stderr));
        conserved(&site, step).await;
        // The server ends what the dead had begun, or takes it back.
        holder.batch_execute("ROLLBACK").await.unwrap();
        eventually(LONG, "the dead are gone", async || site.number(BACKENDS).await == 0)
            .await
            .unwrap();
        site.client.batch_execute(after).await.unwrap();
        conserved(&site, step).await;
    }
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'pending'").await, 15);
    let done = tokio::time::timeout(Duration::from_secs(120), site.run(&["edge", "retain"])).await;
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    conserved(&site, "after the last").await;
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 0);
    assert_eq!(site.number("SELECT lost_count FROM ledger_frontier").await, 15);
    assert_eq!(site.number("SELECT count(*) FROM outbox_archive").await, 7);
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 12, "14 to 25");
    assert!(site.bucket.head(&image).await.is_err());
}
