//! Doing it again without writing, and noticing when somebody has changed what is stored.

use schedule::history;
use schedule::replay::{self, SessionAgain};
use schedule::worker::Worker;
use uuid::Uuid;

use crate::rota::{LONG, Rota, day, settings};
use crate::site::{Site, USER};

const DATE: jiff::civil::Date = jiff::civil::date(2026, 11, 16);

/// Sessions one after the other, each done before the next.
async fn processed(site: &Site, rota: &Rota, days: &[&[(&str, &str, &str)]]) -> Vec<Uuid> {
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
    let version = async |session| replay::session(&site.client, &rota, session).await.unwrap();
    let schedule_date = DATE;
    assert_eq!(version(sessions[1]).await, SessionAgain::Same { schedule_date, version: 2 });
    assert_eq!(version(sessions[2]).await, SessionAgain::Known { schedule_date, version: 2 });
    rota.show(sessions[1], day(&[("10-18", "Nurse", "Ward 3")]));
    assert!(matches!(version(sessions[1]).await, SessionAgain::Differs { .. }));
    let missing = replay::session(&site.client, &rota, Uuid::nil()).await;
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
