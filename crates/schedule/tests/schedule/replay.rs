//! Doing it again: noticing when somebody has changed what is stored, and writing what a session shows now.

use schedule::history;
use schedule::replay::{self, Applied, SessionAgain};
use schedule::worker::Worker;
use uuid::Uuid;

use crate::rota::{LONG, Rota, day, settings};
use crate::site::{Site, USER};

/// How sure an observation must be.
const SURE: f64 = 0.6;
const DATE: jiff::civil::Date = jiff::civil::date(2026, 11, 16);

/// Sessions one after the other, each done before the next.
pub(crate) async fn processed(
    site: &Site,
    rota: &Rota,
    days: &[&[(&str, &str, &str)]],
) -> Vec<Uuid> {
    let worker = Worker::start(&site.address, &settings("one"), rota.clone()).unwrap();
    let mut sessions = Vec::new();
    for shifts in days {
        let session = Uuid::now_v7();
        rota.show(session, day(shifts));
        let insert = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
            VALUES ($1, $2, 'pending', clock_timestamp())";
        site.client.execute(insert, &[&session, &USER]).await.unwrap();
        testkit::eventually(LONG, "done", async || site.state(session).await.0 == "done")
            .await
            .unwrap();
        sessions.push(session);
    }
    worker.stop().await;
    sessions
}

#[tokio::test]
async fn a_day_and_its_sessions_come_to_the_same_again() {
    let site = Site::new("replay_same").await;
    let rota = Rota::default();
    let sessions = processed(
        &site,
        &rota,
        &[
            &[("8-16", "Nurse", "Ward 3")],
            &[("9:30-17", "Nurse", "Ward 3"), ("22-6", "Watch", "Gate")],
            &[("9:30-17", "Nurse", "Ward 3"), ("22-6", "Watch", "Gate")],
            &[("8-16", "Nurse", "Ward 3")],
        ],
    )
    .await;
    let again = replay::day(&site.client, USER, DATE).await.unwrap();
    assert_eq!(again.len(), 3, "{again:?}");
    assert!(again.iter().all(|version| version.differs.is_empty()), "{again:?}");
    assert_eq!(again.iter().map(|version| version.events).sum::<usize>(), 5);
    let lines = history::days(&site.client, USER).await.unwrap();
    assert_eq!((lines.len(), lines[0].version, lines[0].shifts), (1, 3, Some(1)));
    let version =
        async |session| replay::session(&site.client, &rota, SURE, session).await.unwrap();
    let schedule_date = DATE;
    assert_eq!(version(sessions[1]).await, SessionAgain::Same { schedule_date, version: 2 });
    assert_eq!(version(sessions[2]).await, SessionAgain::Known { schedule_date, version: 2 });
    rota.show(sessions[1], day(&[("10-18", "Nurse", "Ward 3")]));
    assert!(matches!(version(sessions[1]).await, SessionAgain::Differs { .. }));
    let missing = replay::session(&site.client, &rota, SURE, Uuid::nil()).await;
    assert!(matches!(missing, Err(replay::SessionError::Missing)));
}

#[tokio::test]
async fn what_somebody_has_changed_is_noticed() {
    let site = Site::new("replay_changed").await;
    let rota = Rota::default();
    processed(&site, &rota, &[&[("8-16", "Nurse", "Ward 3")], &[("9-17", "Nurse", "Ward 3")]])
        .await;
    // A superuser can do what the schema refuses.
    site.run(
        "SET session_replication_role = replica;
         UPDATE schedule_ingest.schedule_version SET payload = jsonb_set(payload, '{shifts,0,title}', '\"Cook\"')
            WHERE version = 1;
         DELETE FROM schedule_ingest.schedule_event WHERE base_version = 1;
         SET session_replication_role = origin",
    )
    .await
    .unwrap();
    let again = replay::day(&site.client, USER, DATE).await.unwrap();
    assert!(again[0].differs.iter().any(|why| why.contains("hash")), "{again:?}");
    assert!(again[0].differs.iter().any(|why| why.contains("canonical")), "{again:?}");
    assert!(again[1].differs.iter().any(|why| why.contains("events")), "{again:?}");
}

#[tokio::test]
async fn what_a_session_shows_now_becomes_a_version_once_and_undoes_nothing_later() {
    let site = Site::new("replay_apply").await;
    let rota = Rota::default();
    let days: [&[(&str, &str, &str)]; 2] =
        [&[("8-16", "Nurse", "Ward 3")], &[("9-17", "Nurse", "Ward 3")]];
    let sessions = processed(&site, &rota, &days).await;
    let mut client = site.another().await;
    let mut apply = async |session| replay::apply(&mut client, &rota, SURE, session).await.unwrap();
    assert!(matches!(apply(sessions[1]).await, Applied::Nothing { .. }), "nothing is new");

    // A better reader sees that the place was another.
    rota.show(sessions[0], day(&[("8-16", "Nurse", "Ward 8")]));
    rota.show(sessions[1], day(&[("9-17", "Nurse", "Ward 8")]));
    let old = apply(sessions[0]).await;
    assert_eq!(old, Applied::Superseded { schedule_date: DATE }, "a later capture stays");
    let written = apply(sessions[1]).await;
    let Applied::Written { session_id, version: 3, events: 1, messages: 1, .. } = written else {
        panic!("{written:?}");
    };
    assert_eq!(site.state(session_id).await.0, "done");
    let again = apply(sessions[1]).await;
    let known = SessionAgain::Known { schedule_date: DATE, version: 3 };
    assert_eq!(again, Applied::Nothing { again: known }, "once");
    let last = replay::last_seen(&site.client, USER, DATE).await.unwrap();
    assert_eq!(last, Some(session_id));
    let again = replay::day(&site.client, USER, DATE).await.unwrap();
    assert!(again.len() == 3 && again.iter().all(|v| v.differs.is_empty()), "{again:?}");

    // A capture that came after the one that was read again wins, as if nobody had read it again.
    let later = processed(&site, &rota, &[&[("10-18", "Nurse", "Ward 8")]]).await;
    let made = replay::session(&site.client, &rota, SURE, later[0]).await.unwrap();
    assert_eq!(made, SessionAgain::Same { schedule_date: DATE, version: 4 });
    let count = "SELECT count(*) FROM schedule_ingest.capture_session WHERE replay_of IS NOT NULL";
    assert_eq!(site.number(count).await, 2, "the one that was superseded ended without a version");
}

#[tokio::test]
async fn a_capture_that_was_opened_before_a_replay_and_comes_after_it_still_wins() {
    let site = Site::new("replay_between").await;
    let rota = Rota::default();
    let first = processed(&site, &rota, &[&[("8-16", "Nurse", "Ward 3")]]).await[0];
    // It is being collected while the first is read again.
    let collecting = site.session(USER).await;
    rota.show(first, day(&[("8-16", "Nurse", "Ward 8")]));
    let mut client = site.another().await;
    let applied = replay::apply(&mut client, &rota, SURE, first).await.unwrap();
    assert!(matches!(applied, Applied::Written { version: 2, .. }), "{applied:?}");
    rota.show(collecting, day(&[("12-20", "Nurse", "Ward 8")]));
    let worker = Worker::start(&site.address, &settings("one"), rota.clone()).unwrap();
    testkit::eventually(LONG, "done", async || site.state(collecting).await.0 == "done")
        .await
        .unwrap();
    worker.stop().await;
    let made = replay::session(&site.client, &rota, SURE, collecting).await.unwrap();
    assert_eq!(made, SessionAgain::Same { schedule_date: DATE, version: 3 });
}

#[tokio::test]
async fn a_replay_that_dies_is_finished_by_a_worker_and_what_is_not_sure_is_not_believed() {
    let site = Site::new("replay_dies").await;
    let rota = Rota::default();
    let first = processed(&site, &rota, &[&[("8-16", "Nurse", "Ward 3")]]).await[0];
    // What a replay leaves that died after it had opened its session, long ago.
    let left = Uuid::now_v7();
    let opens = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at, replay_of, opened_seq)
        OVERRIDING SYSTEM VALUE SELECT $2, user_id, 'pending', now(), id, opened_seq
        FROM schedule_ingest.capture_session WHERE id = $1";
    site.client.execute(opens, &[&first, &left]).await.unwrap();
    let claims = "UPDATE schedule_ingest.capture_session
        SET state = 'processing', locked_at = now() - interval '1 h', locked_by = 'replay' WHERE id = $1";
    site.on(left, claims).await.unwrap();
    rota.show(left, day(&[("9-17", "Nurse", "Ward 3")]));
    let worker = Worker::start(&site.address, &settings("one"), rota.clone()).unwrap();
    testkit::eventually(LONG, "done", async || site.state(left).await.0 == "done").await.unwrap();
    worker.stop().await;
    let versions = history::versions(&site.client, USER, DATE).await.unwrap();
    assert_eq!((versions.len(), versions[1].session_id), (2, left));

    let unsure = schedule::observation::Observation {
        confidence: Some(0.2),
        ..day(&[("10-18", "Nurse", "Ward 3")])
    };
    rota.show(left, unsure);
    let mut client = site.another().await;
    let applied = replay::apply(&mut client, &rota, SURE, left).await.unwrap();
    assert!(matches!(applied, Applied::Nothing { .. }), "{applied:?}");
    assert_eq!(history::versions(&site.client, USER, DATE).await.unwrap().len(), 2);
}
