//! The schema as a contract: a backend, a bot and another worker, all with plain SQL and the documented columns alone.

use uuid::Uuid;

use crate::site::{Site, USER};

/// SQLSTATE of what a CHECK or one of our triggers refuses.
const REFUSED: &str = "23514";
const CLAIM: &str = "UPDATE schedule_ingest.capture_session
    SET state = 'processing', locked_at = now(), locked_by = 'python-1'
    WHERE id = (SELECT id FROM schedule_ingest.capture_session
        WHERE id = $1 AND (state = 'pending'
            OR (state = 'processing' AND locked_at < now() - interval '5 minutes'))
        ORDER BY (state = 'pending') DESC, created_at FOR UPDATE SKIP LOCKED LIMIT 1)";
const STEAL: &str = "UPDATE schedule_ingest.capture_session
    SET locked_at = now(), locked_by = 'python-2' WHERE id = $1";
const DONE: &str = "UPDATE schedule_ingest.capture_session
    SET state = 'done', locked_at = NULL, locked_by = NULL WHERE id = $1 AND locked_by = 'python-1'";
const FAILED: &str = "UPDATE schedule_ingest.capture_session
    SET state = 'failed', error = 'unreadable', locked_at = NULL, locked_by = NULL WHERE id = $1";
const HEARTBEAT: &str = "UPDATE schedule_ingest.capture_session
    SET locked_at = now() WHERE id = $1 AND locked_by = 'python-1'";
/// The worker was away for an hour.
const AGE: &str = "UPDATE schedule_ingest.capture_session
    SET locked_at = now() - interval '1 hour' WHERE id = $1 AND locked_by = 'python-1'";

fn refused<T>() -> Result<T, String> {
    Err(REFUSED.to_owned())
}

#[tokio::test]
async fn another_worker_lives_by_the_documented_columns() {
    let site = Site::new("contract_worker").await;
    let session = site.session(USER).await;
    site.image(session, 1).await.unwrap();
    assert_eq!(site.on(session, CLAIM).await, Ok(1));
    assert_eq!(site.on(session, CLAIM).await, Ok(0), "a held session is not claimed again");
    assert_eq!(site.on(session, STEAL).await, refused(), "nor taken away from its worker");
    assert_eq!(site.on(session, HEARTBEAT).await, Ok(1));
    assert_eq!(site.on(session, AGE).await, Ok(1));
    assert_eq!(site.on(session, STEAL).await, Ok(1), "a stale lock is taken over");
    assert_eq!(site.on(session, DONE).await, Ok(0), "and the first worker changes nothing");
    let attempts = site.number("SELECT attempts::int8 FROM schedule_ingest.capture_session").await;
    assert_eq!(attempts, 1, "a lost lock counts");
    assert_eq!(site.on(session, FAILED).await, Ok(1));
    assert_eq!(site.state(session).await, ("failed".to_owned(), Some("unreadable".to_owned())));

    let second = site.session(USER).await;
    site.on(second, CLAIM).await.unwrap();
    assert_eq!(site.on(second, DONE).await, Ok(1));
    assert_eq!(site.state(second).await, ("done".to_owned(), None));
    let left = "SELECT count(*) FROM schedule_ingest.capture_session
        WHERE num_nonnulls(locked_at, locked_by, lease_token, lease_expires_at) > 0";
    assert_eq!(site.number(left).await, 0, "lease columns are cleared");
}

#[tokio::test]
async fn every_transition_of_a_session_is_in_the_table_or_refused() {
    let site = Site::new("contract_states").await;
    let states = ["pending", "processing", "done", "failed"];
    for from in states {
        for to in states {
            let session = site.session(USER).await;
            match from {
                "processing" => site.on(session, CLAIM).await.unwrap(),
                "failed" => site.on(session, FAILED).await.unwrap(),
                "done" => {
                    site.on(session, CLAIM).await.unwrap();
                    site.on(session, DONE).await.unwrap()
                }
                _ => 0,
            };
            // As a backend would write it: with a lock where the new state needs one and none elsewhere.
            let lock = match to {
                "processing" => "now(), locked_by = 'python-9'",
                _ => "NULL, locked_by = NULL",
            };
            let error = if to == "failed" { "'x'" } else { "NULL" };
            let change = format!(
                "UPDATE schedule_ingest.capture_session SET state = '{to}', error = {error}, locked_at = {lock}
                 WHERE id = $1"
            );
            let allowed = matches!(
                (from, to),
                ("pending", "pending" | "processing" | "failed")
                    | ("processing", "done" | "failed")
            ) || (from == to && from == "done");
            let expected = if allowed { Ok(1) } else { refused() };
            assert_eq!(site.on(session, &change).await, expected, "{from} to {to}");
            let state = if allowed { to } else { from };
            assert_eq!(site.state(session).await.0, state, "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn what_a_session_is_does_not_change_and_an_error_is_only_for_failures() {
    let site = Site::new("contract_session").await;
    let session = site.session(USER).await;
    let update =
        |set: &str| format!("UPDATE schedule_ingest.capture_session SET {set} WHERE id = $1");
    for set in [
        "error = 'x'",
        "user_id = 1",
        "created_at = now() - interval '1 day'",
        "locked_by = 'x'",
        "state = 'processing'",
        "state = 'processing', locked_by = 'x'",
        "state = 'done'",
        "lease_state = 'done'",
        "lease_state = 'claimed'",
        "lease_token = gen_random_uuid()",
        "attempts = -1",
    ] {
        assert_eq!(site.on(session, &update(set)).await, refused(), "{set}");
    }
    let start = |columns: &str, values: &str| {
        format!(
            "INSERT INTO schedule_ingest.capture_session (id, user_id, {columns}) VALUES ($1, 1, {values})"
        )
    };
    for (columns, values) in [
        ("state", "'processing'"),
        ("state", "'done'"),
        ("state", "'failed'"),
        ("error", "'x'"),
        ("locked_by", "'x'"),
    ] {
        let insert = start(columns, values);
        assert_eq!(site.on(Uuid::now_v7(), &insert).await, refused(), "{columns} {values}");
    }
    assert_eq!(site.on(Uuid::now_v7(), &start("state", "'gone'")).await, Err("22P02".to_owned()));
    site.on(session, CLAIM).await.unwrap();
    for set in
        ["error = 'x'", "locked_by = NULL", "locked_at = NULL", "lease_token = gen_random_uuid()"]
    {
        assert_eq!(site.on(session, &update(set)).await, refused(), "{set}");
    }
}

#[tokio::test]
async fn images_are_ordered_immutable_and_in_time() {
    let site = Site::new("contract_images").await;
    let session = site.session(USER).await;
    site.image(session, 1).await.unwrap();
    site.image(session, 2).await.unwrap();
    assert_eq!(site.image(session, 2).await, Err("23505".to_owned()), "one place, one image");
    assert_eq!(site.image(session, 0).await, refused());
    assert_eq!(site.image(Uuid::now_v7(), 1).await, Err("23503".to_owned()), "no such session");
    let same_key = "INSERT INTO schedule_ingest.capture_image (id, session_id, sequence, r2_key)
        SELECT gen_random_uuid(), session_id, 9, r2_key FROM schedule_ingest.capture_image LIMIT 1";
    assert_eq!(site.run(same_key).await, Err("23505".to_owned()));
    for statement in [
        "UPDATE schedule_ingest.capture_image SET sequence = 7",
        "DELETE FROM schedule_ingest.capture_image",
        "TRUNCATE schedule_ingest.capture_image",
    ] {
        assert_eq!(site.run(statement).await, refused(), "{statement}");
    }
    site.on(session, CLAIM).await.unwrap();
    assert_eq!(site.image(session, 3).await, refused(), "too late");
}

#[tokio::test]
async fn versions_are_in_order_and_the_day_follows() {
    let site = Site::new("contract_versions").await;
    let (first, second, third) =
        (site.session(USER).await, site.session(USER).await, site.session(USER).await);
    let insert = |version: i32, payload: &str| {
        format!(
            "INSERT INTO schedule_ingest.schedule_version
                (user_id, schedule_date, version, session_id, payload, payload_hash, created_at)
             VALUES ({USER}, '2026-11-16', {version}, $1, '{payload}', 'h', now()) ON CONFLICT DO NOTHING"
        )
    };
    let current = "SELECT current_version::int8 FROM schedule_ingest.day_schedule";
    assert_eq!(site.on(first, &insert(2, "{}")).await, refused(), "a gap");
    assert_eq!(site.on(first, &insert(1, "[]")).await, refused(), "not an object");
    assert_eq!(site.on(first, &insert(0, "{}")).await, refused());
    assert_eq!(site.on(first, &insert(1, "{}")).await, Ok(1));
    assert_eq!(site.on(first, &insert(2, "{}")).await, Ok(0), "one version a session");
    assert_eq!(site.on(second, &insert(1, "{}")).await, Ok(0), "a version that is there");
    assert_eq!(site.number(current).await, 1);
    assert_eq!(site.on(second, &insert(2, "{}")).await, Ok(1));
    assert_eq!(site.on(third, &insert(4, "{}")).await, refused());
    assert_eq!(site.number(current).await, 2);
    let stranger = site.session(USER + 1).await;
    assert_eq!(site.on(stranger, &insert(3, "{}")).await, refused(), "somebody else's session");
    for statement in [
        "UPDATE schedule_ingest.schedule_version SET payload_hash = 'x'",
        "DELETE FROM schedule_ingest.schedule_version",
        "TRUNCATE schedule_ingest.schedule_version",
        "UPDATE schedule_ingest.day_schedule SET current_version = 9",
        "DELETE FROM schedule_ingest.day_schedule",
        "TRUNCATE schedule_ingest.day_schedule",
        "INSERT INTO schedule_ingest.day_schedule VALUES (1, '2026-11-16', 1)",
    ] {
        assert_eq!(site.run(statement).await, refused(), "{statement}");
    }
}

#[tokio::test]
async fn events_are_immutable_and_recur_only_against_another_version() {
    let site = Site::new("contract_events").await;
    let session = site.session(USER).await;
    let insert = |kind: &str, customer: &str, base: &str| {
        let (column, value) = if base.is_empty() { ("", "") } else { (", base_version", base) };
        format!(
            "INSERT INTO schedule_ingest.schedule_event (event_id, user_id, schedule_date, event_type,
                location_fingerprint, customer_fingerprint, old_value_hash, new_value_hash, old_value,
                new_value, detected_at, source_session_id{column})
             VALUES (gen_random_uuid(), {USER}, '2026-11-16', '{kind}', 'l', '{customer}', 'o', 'n',
                NULL, '{{}}', now(), $1{value}) ON CONFLICT DO NOTHING"
        )
    };
    assert_eq!(site.on(session, &insert("shift_added", "c", "")).await, Ok(1));
    assert_eq!(site.on(session, &insert("shift_added", "c", "")).await, Ok(0), "a retry");
    assert_eq!(site.on(session, &insert("shift_added", "c", ", 2")).await, Ok(1), "a recurrence");
    assert_eq!(site.on(session, &insert("shift_added", "c", ", 2")).await, Ok(0));
    assert_eq!(site.on(session, &insert("shift_added", "d", ", 2")).await, Ok(1), "a customer");
    for kind in [
        "shift_removed",
        "shift_time_changed",
        "shift_relocated",
        "shift_retitled",
        "shift_reclassified",
    ] {
        assert_eq!(site.on(session, &insert(kind, "c", "")).await, Ok(1), "{kind}");
    }
    assert_eq!(site.on(session, &insert("shift_eaten", "c", "")).await, refused());
    for statement in [
        "UPDATE schedule_ingest.schedule_event SET new_value = NULL",
        "DELETE FROM schedule_ingest.schedule_event",
        "TRUNCATE schedule_ingest.schedule_event",
    ] {
        assert_eq!(site.run(statement).await, refused(), "{statement}");
    }
    let snapshot =
        "INSERT INTO schedule_ingest.day_snapshot VALUES (1, '2026-11-16', '{}', $1, now())";
    assert_eq!(site.on(session, snapshot).await, refused(), "a snapshot is an array");
}

#[tokio::test]
async fn a_bot_delivers_notifications() {
    let site = Site::new("contract_bot").await;
    let session = site.session(USER).await;
    let insert = |id: &str, status: &str, kind: &str, events: &str| {
        format!(
            "INSERT INTO schedule_ingest.schedule_notification (notification_id, user_id, schedule_date,
                source_session_id, status, notification_type, message, event_ids, created_at)
             VALUES ('{id}', {USER}, '2026-11-16', $1, '{status}', '{kind}', 'hello', '{events}', now())
             ON CONFLICT (notification_id) DO NOTHING"
        )
    };
    for (id, inserted) in [("a", 1), ("b", 1), ("a", 0)] {
        assert_eq!(site.on(session, &insert(id, "pending", "event", "[]")).await, Ok(inserted));
    }
    for (status, kind, events) in [
        ("sent", "event", "[]"),
        ("failed", "event", "[]"),
        ("lost", "event", "[]"),
        ("pending", "poem", "[]"),
        ("pending", "event", "{}"),
    ] {
        assert_eq!(site.on(session, &insert("c", status, kind, events)).await, refused());
    }
    let set = |id: &str, set: &str| {
        format!(
            "UPDATE schedule_ingest.schedule_notification SET {set} WHERE notification_id = '{id}'"
        )
    };
    let sent = "status = 'sent', sent_at = now()";
    for wrong in [
        "status = 'sent'",
        "status = 'failed', sent_at = now()",
        "sent_at = now()",
        "message = 'x'",
    ] {
        assert_eq!(site.run(&set("a", wrong)).await, refused(), "{wrong}");
    }
    let gone = "DELETE FROM schedule_ingest.schedule_notification WHERE status = 'pending'";
    assert_eq!(site.run(gone).await, refused());
    site.run(&set("a", sent)).await.unwrap();
    site.run(&set("b", "status = 'failed'")).await.unwrap();
    for (id, change) in [
        ("a", "status = 'pending', sent_at = NULL"),
        ("a", "status = 'failed', sent_at = NULL"),
        ("a", "sent_at = now() + interval '1 s'"),
        ("b", "status = 'pending'"),
        ("b", sent),
        ("b", "message = 'x'"),
    ] {
        assert_eq!(site.run(&set(id, change)).await, refused(), "{id}: {change}");
    }
}
