//! Several workers, several sessions, one user and day.

use schedule::canonical::{Shift, canonicalize};
use schedule::diff::diff;
use schedule::observation::Observation;
use schedule::worker::{Claimed, RecordError, Recorded, Worker, finalize, record};
use uuid::Uuid;

use crate::rota::{LONG, Rota, day, settings};
use crate::site::{Site, USER};

const CLAIM: &str = "UPDATE schedule_ingest.capture_session
    SET state = 'processing', locked_at = now(), locked_by = 'by-hand' WHERE id = $1";

/// Claims with plain SQL, and says what a worker would hold.
async fn claim(site: &Site, session: Uuid) -> (Claimed, Uuid) {
    site.on(session, CLAIM).await.unwrap();
    let select = "SELECT user_id, opened_seq, lease_token FROM schedule_ingest.capture_session WHERE id = $1";
    let row = site.client.query_one(select, &[&session]).await.unwrap();
    (Claimed { session, user_id: row.get(0), opened: row.get(1) }, row.get(2))
}

async fn shifts(site: &Site, version: i32) -> Vec<Shift> {
    let select =
        "SELECT payload->'shifts' FROM schedule_ingest.schedule_version WHERE version = $1";
    let row = site.client.query_one(select, &[&version]).await.unwrap();
    serde_json::from_value(row.get(0)).unwrap()
}

fn seen(number: usize) -> Observation {
    let start = format!("{}-{}", 6 + number % 5, 14 + number % 7);
    day(&[(start.as_str(), "Nurse", ["a", "b", "c"][number % 3]), ("22-6", "Watch", "d")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_on_one_day_make_one_history() {
    let site = Site::new("together").await;
    let rota = Rota::default();
    let mut sessions = Vec::new();
    for number in 0..24 {
        let session = site.session(USER).await;
        rota.show(session, seen(number));
        sessions.push(session);
    }
    let start = |name: &str| Worker::start(&site.address, &settings(name), rota.clone()).unwrap();
    let (one, two) = (start("one"), start("two"));
    let done = "SELECT count(*) FROM schedule_ingest.capture_session WHERE state = 'done'";
    testkit::eventually(LONG, "all are done", async || {
        let done = site.number(done).await;
        if done == 24 { Ok(()) } else { Err(done) }
    })
    .await
    .unwrap();
    assert_eq!(one.counts().done + two.counts().done, 24);
    one.stop().await;
    two.stop().await;

    let versions = site.number("SELECT count(*) FROM schedule_ingest.schedule_version").await;
    let current =
        site.number("SELECT current_version::int8 FROM schedule_ingest.day_schedule").await;
    assert_eq!(versions, current, "numbers without gaps");
    let last = canonicalize(&seen(23)).unwrap();
    let current = i32::try_from(current).unwrap();
    assert_eq!(shifts(&site, current).await, last.shifts, "the last capture is the day");
    let mut before = Vec::new();
    for version in 1..=current {
        let after = shifts(&site, version).await;
        let expected: usize = diff(&before, &after).iter().map(|change| change.types.len()).sum();
        let base = version - 1;
        let select = format!(
            "SELECT count(*) FROM schedule_ingest.schedule_event WHERE base_version = {base}"
        );
        assert_eq!(
            site.number(&select).await,
            i64::try_from(expected).unwrap(),
            "version {version}"
        );
        before = after;
    }
    let untold = "SELECT count(*) FROM schedule_ingest.schedule_event e WHERE NOT EXISTS (
        SELECT FROM schedule_ingest.schedule_notification n WHERE n.event_ids ? e.event_id::text)";
    assert_eq!(site.number(untold).await, 0, "every event is told");
}

#[tokio::test]
async fn recording_twice_is_recording_once() {
    let site = Site::new("twice").await;
    let day = canonicalize(&seen(0)).unwrap();
    let session = site.session(USER).await;
    let (claimed, token) = claim(&site, session).await;
    let mut client = pg::connect(&site.address).await.unwrap();
    let first = record(&mut client, &claimed, token, &day).await.unwrap();
    assert_eq!(first, Recorded::Created { version: 1, events: 2, notifications: 1 });
    // The worker died before it could say so; the next one does it again.
    let all = "SELECT jsonb_build_array(
        (SELECT jsonb_agg(v) FROM schedule_ingest.schedule_version v),
        (SELECT jsonb_agg(e ORDER BY event_id) FROM schedule_ingest.schedule_event e),
        (SELECT jsonb_agg(n) FROM schedule_ingest.schedule_notification n),
        (SELECT jsonb_agg(d) FROM schedule_ingest.day_schedule d))::text";
    let before: String = site.client.query_one(all, &[]).await.unwrap().get(0);
    assert_eq!(record(&mut client, &claimed, token, &day).await.unwrap(), Recorded::Unchanged);
    let other = canonicalize(&seen(1)).unwrap();
    // Even an extractor that sees something else the second time makes no second version.
    assert_eq!(record(&mut client, &claimed, token, &other).await.unwrap(), Recorded::Existing);
    assert_eq!(
        record(&mut client, &claimed, Uuid::new_v4(), &other).await.unwrap(),
        Recorded::Fenced
    );
    let after: String = site.client.query_one(all, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
}

#[tokio::test]
async fn an_old_capture_does_not_undo_a_newer_one() {
    let site = Site::new("superseded").await;
    let (old, new) = (site.session(USER).await, site.session(USER).await);
    let mut client = pg::connect(&site.address).await.unwrap();
    let (claimed, token) = claim(&site, new).await;
    let day = canonicalize(&seen(0)).unwrap();
    record(&mut client, &claimed, token, &day).await.unwrap();
    let (claimed, token) = claim(&site, old).await;
    let other = canonicalize(&seen(1)).unwrap();
    assert_eq!(record(&mut client, &claimed, token, &other).await.unwrap(), Recorded::Superseded);
    assert_eq!(site.number("SELECT count(*) FROM schedule_ingest.schedule_version").await, 1);
}

#[tokio::test]
async fn a_backend_whose_clock_jumps_changes_no_order() {
    let site = Site::new("clocks").await;
    let rota = Rota::default();
    let worker = Worker::start(&site.address, &settings("one"), rota.clone()).unwrap();
    // The clock of whoever opens sessions is ahead, then mended, then far behind.
    for (number, clock) in
        ["interval '3 days'", "interval '0'", "interval '-40 days'"].iter().enumerate()
    {
        let session = Uuid::now_v7();
        rota.show(session, seen(number));
        let insert = format!(
            "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
             VALUES ($1, {USER}, 'pending', clock_timestamp() + {clock})"
        );
        site.on(session, &insert).await.unwrap();
        testkit::eventually(LONG, "done", async || site.state(session).await.0 == "done")
            .await
            .unwrap();
        let version = i32::try_from(number).unwrap() + 1;
        assert_eq!(shifts(&site, version).await, canonicalize(&seen(number)).unwrap().shifts);
    }
    worker.stop().await;
}

#[tokio::test]
async fn pending_goes_before_stale() {
    let site = Site::new("priority").await;
    let rota = Rota::default();
    let mut sessions = Vec::new();
    for number in 0..4 {
        let session = site.session(USER + i64::try_from(number).unwrap()).await;
        rota.show(session, seen(number));
        sessions.push(session);
    }
    // The oldest was claimed by a worker that is gone.
    site.on(sessions[0], CLAIM).await.unwrap();
    let stale = "UPDATE schedule_ingest.capture_session SET locked_at = now() - interval '1 hour' WHERE id = $1";
    site.on(sessions[0], stale).await.unwrap();
    finalize(&site.client, std::time::Duration::ZERO).await.unwrap();
    let settings = schedule::worker::Settings { slots: 1, ..settings("one") };
    let worker = Worker::start(&site.address, &settings, rota.clone()).unwrap();
    testkit::eventually(LONG, "all are done", async || worker.counts().done == 4).await.unwrap();
    assert_eq!(worker.counts().reclaimed, 1);
    worker.stop().await;
    let asked: Vec<Uuid> = rota.asked().iter().map(|session| session.id).collect();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[3], sessions[0], "the stale one is last: {asked:?}");
}

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn sessions_of_a_day_wait_for_each_other_and_those_of_another_do_not() {
    let site = Site::new("day_lock").await;
    let lock = format!(
        "SELECT pg_advisory_lock(hashtextextended('schedule_ingest:{USER}:2026-11-16', 0))"
    );
    site.run(&lock).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..2 {
        let session = site.session(USER).await;
        let (claimed, token) = claim(&site, session).await;
        let (address, day) = (site.address.clone(), canonicalize(&seen(number)).unwrap());
        waiting.spawn(async move {
            let mut client = pg::connect(&address).await.unwrap();
            record(&mut client, &claimed, token, &day).await.unwrap()
        });
    }
    testkit::eventually(LONG, "both wait", async || site.number(WAITING).await == 2).await.unwrap();
    let session = site.session(USER + 1).await;
    let (claimed, token) = claim(&site, session).await;
    let mut client = pg::connect(&site.address).await.unwrap();
    let other =
        record(&mut client, &claimed, token, &canonicalize(&seen(0)).unwrap()).await.unwrap();
    assert!(matches!(other, Recorded::Created { version: 1, .. }), "{other:?}");
    site.run(&lock.replace("pg_advisory_lock", "pg_advisory_unlock")).await.unwrap();
    let recorded = waiting.join_all().await;
    let created = |result: &&Recorded| matches!(result, Recorded::Created { .. });
    // The older one is a version of its own if it came first, and is superseded if not.
    assert!(recorded.iter().filter(created).count() >= 1, "{recorded:?}");
    let rest = recorded.iter().find(|result| !created(result));
    assert!(rest.is_none_or(|result| *result == Recorded::Superseded), "{recorded:?}");
}

#[tokio::test]
async fn a_version_that_somebody_else_made_in_between_is_seen_and_not_lost() {
    let site = Site::new("overtaken").await;
    let (theirs, mine) = (site.session(USER).await, site.session(USER).await);
    let (claimed, token) = claim(&site, mine).await;
    let day = canonicalize(&seen(0)).unwrap();
    // Another worker that does not know our lock has made version 1 and not committed yet.
    // On a connection of its own: inside a transaction Postgres shows who waits as it was at the first look.
    let their_client = pg::connect(&site.address).await.unwrap();
    their_client.batch_execute("BEGIN").await.unwrap();
    let insert = format!(
        "INSERT INTO schedule_ingest.schedule_version (user_id, schedule_date, version, session_id, payload, payload_hash)
         VALUES ({USER}, '2026-11-16', 1, $1, '{{}}', 'h')"
    );
    their_client.execute(insert.as_str(), &[&theirs]).await.unwrap();
    let (address, again) = (site.address.clone(), (claimed.clone(), day.clone()));
    let ours = tokio::spawn(async move {
        let mut client = pg::connect(&address).await.unwrap();
        record(&mut client, &claimed, token, &day).await
    });
    testkit::eventually(LONG, "ours waits", async || site.number(WAITING).await == 1)
        .await
        .unwrap();
    their_client.batch_execute("COMMIT").await.unwrap();
    let overtaken = ours.await.unwrap();
    assert!(matches!(overtaken, Err(RecordError::Overtaken)), "{overtaken:?}");
    let mut client = pg::connect(&site.address).await.unwrap();
    let recorded = record(&mut client, &again.0, token, &again.1).await.unwrap();
    assert!(matches!(recorded, Recorded::Created { version: 2, .. }), "{recorded:?}");
}
