//! The worker on one session after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use schedule::noise;
use schedule::observation::Observation;
use schedule::worker::{ExtractError, Fixture, Settings, Worker, finalize, table};
use uuid::Uuid;

use crate::rota::{LONG, Rota, Script, day, settings};
use crate::site::{Site, USER};

async fn ends(site: &Site, session: Uuid, state: &str) -> Option<String> {
    testkit::eventually(LONG, state, async || {
        let (now, error) = site.state(session).await;
        if now == state { Ok(()) } else { Err(format!("{now}: {error:?}")) }
    })
    .await
    .unwrap();
    site.state(session).await.1
}

async fn texts(site: &Site, query: &str) -> Vec<String> {
    site.client.query(query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

const VERSIONS: &str = "SELECT count(*) FROM schedule_ingest.schedule_version";
const EVENTS: &str = "SELECT base_version || ' ' || event_type FROM schedule_ingest.schedule_event
    ORDER BY base_version, event_type";
const MESSAGES: &str = "SELECT notification_type || ': ' || message
    FROM schedule_ingest.schedule_notification ORDER BY created_at, notification_id";

#[tokio::test]
async fn captures_become_versions_events_and_messages() {
    let site = Site::new("worker_day").await;
    site.run(&format!("INSERT INTO schedule_ingest.user_setting VALUES ({USER}, 'de-AT')"))
        .await
        .unwrap();
    let (rota, first) = (Rota::default(), site.session(USER).await);
    let shown = day(&[("8-16", "Nurse", "Ward 3"), ("22-6", "Night watch", "")]);
    rota.show(first, shown.clone());
    site.image(first, 2).await.unwrap();
    site.image(first, 1).await.unwrap();
    let worker = Worker::start(&site.address, &settings("w"), rota.clone()).unwrap();
    ends(&site, first, "done").await;
    let key = |n: i32| format!("captures/{first}/{n}.jpg");
    assert_eq!(rota.asked()[0].images, [key(1), key(2)], "in their order");

    let same = shown_session(&site, &rota, &noise::disturb(&shown, 99)).await;
    ends(&site, same, "done").await;
    assert_eq!(site.number(VERSIONS).await, 1, "the same day again is no version");
    let source = "SELECT source_session_id::text FROM schedule_ingest.day_snapshot";
    assert_eq!(texts(&site, source).await, [same.to_string()], "but it was seen");

    let seen = day(&[("9:30-17:30", "Nurse", "Ward 3"), ("22-6", "Night watch", "")]);
    let moved = shown_session(&site, &rota, &seen).await;
    ends(&site, moved, "done").await;
    worker.stop().await;
    assert_eq!(site.number(VERSIONS).await, 2);
    assert_eq!(
        texts(&site, EVENTS).await,
        ["0 shift_added", "0 shift_added", "1 shift_time_changed"]
    );
    assert_eq!(
        texts(&site, MESSAGES).await,
        [
            "summary: Dein Dienstplan für Montag, 16. November:\n• 08:00–16:00 Nurse, Ward 3\n• 22:00–06:00 (Folgetag) Night Watch",
            "event: Montag, 16. November: Nurse – von 08:00–16:00 auf 09:30–17:30 verlegt.",
        ]
    );
}

#[tokio::test]
async fn a_change_that_comes_again_is_told_again() {
    let site = Site::new("worker_recurs").await;
    let (a, b) = (day(&[("8-16", "x", "a")]), day(&[("8-16", "x", "b")]));
    let rota = Rota::default();
    let worker = Worker::start(&site.address, &settings("w"), rota.clone()).unwrap();
    for seen in [&a, &b, &a, &b] {
        let session = shown_session(&site, &rota, seen).await;
        ends(&site, session, "done").await;
    }
    worker.stop().await;
    let events = texts(&site, EVENTS).await;
    let relocated = |base: i32| format!("{base} shift_relocated");
    assert_eq!(events, ["0 shift_added".to_owned(), relocated(1), relocated(2), relocated(3)]);
    assert_eq!(texts(&site, MESSAGES).await.len(), 4);
}

/// A session that the worker cannot find before what it shows is told.
async fn shown_session(site: &Site, rota: &Rota, seen: &Observation) -> Uuid {
    let id = Uuid::now_v7();
    rota.show(id, seen.clone());
    let insert =
        format!("INSERT INTO schedule_ingest.capture_session (id, user_id) VALUES ($1, {USER})");
    site.on(id, &insert).await.unwrap();
    id
}

#[tokio::test]
async fn what_cannot_be_read_fails_with_words_for_a_person() {
    let site = Site::new("worker_unreadable").await;
    let rota = Rota::default();
    let unsure = Observation { confidence: Some(0.41), ..day(&[("8-16", "x", "a")]) };
    let cases = [
        (day(&[("8-16", "x", "a"), ("soon", "x", "a")]), "entry 2: the end is missing"),
        (
            Observation { schedule_date: "5/6/2026".to_owned(), ..day(&[]) },
            "the date of the schedule could be two",
        ),
        (unsure, "41 % sure, 60 % needed"),
    ];
    let worker = Worker::start(&site.address, &settings("w"), rota.clone()).unwrap();
    for (seen, words) in cases {
        let session = shown_session(&site, &rota, &seen).await;
        let error = ends(&site, session, "failed").await.unwrap();
        assert!(error.contains(words) && !error.contains("soon"), "{error}");
    }
    worker.stop().await;
    assert_eq!(site.number(VERSIONS).await, 0);
}

#[tokio::test]
async fn an_extractor_that_fails_is_tried_up_to_the_limit_and_an_outage_costs_nothing() {
    let site = Site::new("worker_fails").await;
    let session = site.session(USER).await;
    let (tries, down) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (counted, away) = (tries.clone(), down.clone());
    let extract = Script(move |_| {
        let outage = away.swap(false, Ordering::SeqCst);
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match (outage, nth) {
                (true, _) => Err(ExtractError::Unreachable("no way there".to_owned())),
                (_, 1) => panic!("an extractor that panics"),
                _ => Err(ExtractError::Failed("out of ink".to_owned())),
            }
        }
    });
    let settings = Settings { max_attempts: 3, ..settings("w") };
    let worker = Worker::start(&site.address, &settings, extract).unwrap();
    assert_eq!(ends(&site, session, "failed").await.as_deref(), Some("out of ink"));
    worker.stop().await;
    assert_eq!(tries.load(Ordering::SeqCst), 4, "one in the outage, three that count");
    let attempts = site.number("SELECT attempts::int8 FROM schedule_ingest.capture_session").await;
    assert_eq!(attempts, 3);
}

#[tokio::test]
async fn a_fixture_with_noise_is_the_same_day_for_every_session() {
    let site = Site::new("worker_fixture").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.json");
    let seen = day(&[("8-16", "Nurse", "Ward 3"), ("18:00-22:30", "Desk", "Hall")]);
    std::fs::write(&path, serde_json::json!({ "payload": seen }).to_string()).unwrap();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(site.session(USER).await);
    }
    let fixture = Fixture { path, noise: Some(7) };
    let worker = Worker::start(&site.address, &settings("w"), fixture).unwrap();
    for session in sessions {
        ends(&site, session, "done").await;
    }
    worker.stop().await;
    assert_eq!(site.number(VERSIONS).await, 1);
    assert_eq!(texts(&site, MESSAGES).await.len(), 1);
}

#[tokio::test]
async fn a_session_is_complete_when_nothing_more_comes() {
    let site = Site::new("worker_idle").await;
    let session = site.session(USER).await;
    let hour = std::time::Duration::from_secs(3600);
    let age = "UPDATE schedule_ingest.capture_session SET active_at = now() - interval '2 hours' WHERE id = $1";
    assert_eq!(finalize(&site.client, hour).await.unwrap(), 0, "it is new");
    site.on(session, age).await.unwrap();
    assert_eq!(finalize(&site.client, hour).await.unwrap(), 1);
    assert_eq!(finalize(&site.client, hour).await.unwrap(), 0, "once");
    site.image(session, 1).await.unwrap();
    let complete =
        "SELECT count(*) FROM schedule_ingest.capture_session WHERE finalized_at IS NOT NULL";
    assert_eq!(site.number(complete).await, 0, "an image makes it collect again");
    assert_eq!(finalize(&site.client, hour).await.unwrap(), 0);
    site.on(session, age).await.unwrap();
    assert_eq!(finalize(&site.client, hour).await.unwrap(), 1);
}

#[tokio::test]
async fn the_lane_index_is_the_one_the_engine_asks_for() {
    let site = Site::new("worker_index").await;
    site.run(&table().lane_index("of_the_engine")).await.unwrap();
    let definitions = texts(
        &site,
        "SELECT regexp_replace(indexdef, 'INDEX \\S+', 'INDEX') FROM pg_indexes
         WHERE indexname IN ('of_the_engine', 'capture_session_lanes')",
    )
    .await;
    assert_eq!(definitions.len(), 2);
    assert_eq!(definitions[0], definitions[1]);
}
