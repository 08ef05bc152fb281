//! Workers that die, hang, or wake up too late.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use schedule::worker::{Settings, Worker};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::rota::{LONG, Rota, Script, day, settings};
use crate::site::{Site, USER};

/// Where the worker process finds its database. Without it there is nothing to do.
const DATABASE: &str = "HOLDFAST_TEST_SCHEDULE_DATABASE";
const SHORT: Duration = Duration::from_millis(400);

/// The other process: this program again, with this one test. It claims a session, says so, and never ends it.
#[tokio::test]
async fn worker_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let extract = Script(|_| async {
        eprintln!("holding");
        std::future::pending().await
    });
    let settings = Settings { lease: SHORT, slots: 1, ..settings("victim") };
    let _worker = Worker::start(&pg::Options::new(url), &settings, extract).unwrap();
    std::future::pending::<()>().await;
}

async fn victim(site: &Site) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::worker_process", "--nocapture"])
        .env(DATABASE, &site.address.url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let holding = async { while told.next_line().await.unwrap().as_deref() != Some("holding") {} };
    tokio::time::timeout(LONG, holding).await.unwrap();
    child
}

async fn attempts(site: &Site) -> i64 {
    site.number("SELECT attempts::int8 FROM schedule_ingest.capture_session").await
}

async fn state(site: &Site, session: Uuid, state: &str) {
    testkit::eventually(LONG, state, async || {
        let now = site.state(session).await;
        if now.0 == state { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_killed_worker_is_followed_by_another() {
    let site = Site::new("crash_killed").await;
    let session = site.session(USER).await;
    let mut victim = victim(&site).await;
    victim.kill().await.unwrap();
    assert_eq!(site.state(session).await.0, "processing");
    let rota = Rota::default();
    rota.show(session, day(&[("8-16", "Nurse", "Ward 3")]));
    let worker = Worker::start(&site.address, &settings("heir"), rota).unwrap();
    state(&site, session, "done").await;
    assert_eq!(attempts(&site).await, 1, "a crash counts");
    worker.stop().await;
}

#[tokio::test]
async fn a_session_that_kills_its_workers_is_given_up() {
    let site = Site::new("crash_limit").await;
    let session = site.session(USER).await;
    for _ in 0..2 {
        victim(&site).await.kill().await.unwrap();
    }
    // Two have died; with a limit of two the next claim gives it up without another try.
    let rota = Rota::default();
    let settings = Settings { max_attempts: 2, ..settings("heir") };
    let worker = Worker::start(&site.address, &settings, rota.clone()).unwrap();
    state(&site, session, "failed").await;
    worker.stop().await;
    assert!(rota.asked().is_empty());
    let error = site.state(session).await.1.unwrap();
    assert_eq!(error, "given up after 2 attempts: the lease of victim expired");
}

#[tokio::test]
async fn a_worker_that_wakes_up_too_late_changes_nothing() {
    let site = Site::new("crash_zombie").await;
    let session = site.session(USER).await;
    let (reached, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (says, waits) = (reached.clone(), gate.clone());
    let extract = Script(move |_| {
        let (says, waits) = (says.clone(), waits.clone());
        async move {
            says.add_permits(1);
            waits.acquire().await.unwrap().forget();
            Ok(day(&[("8-16", "Nurse", "Ward 3")]))
        }
    });
    let sleeper = Worker::start(&site.address, &settings("sleeper"), extract).unwrap();
    reached.acquire().await.unwrap().forget();
    // Its lease runs out, and a worker that knows only the documented columns takes over and ends it.
    for statement in [
        "SET locked_at = now() - interval '1 hour' WHERE locked_by = 'sleeper' AND id = $1",
        "SET locked_at = now(), locked_by = 'python-2' WHERE id = $1",
        "SET state = 'failed', error = 'by hand', locked_at = NULL, locked_by = NULL
            WHERE locked_by = 'python-2' AND id = $1",
    ] {
        let statement = format!("UPDATE schedule_ingest.capture_session {statement}");
        assert_eq!(site.on(session, &statement).await, Ok(1), "{statement}");
    }
    gate.add_permits(1);
    testkit::eventually(LONG, "the fence", async || sleeper.counts().fenced == 1).await.unwrap();
    sleeper.stop().await;
    assert_eq!(site.state(session).await, ("failed".to_owned(), Some("by hand".to_owned())));
    assert_eq!(site.number("SELECT count(*) FROM schedule_ingest.schedule_version").await, 0);
}

#[tokio::test]
async fn a_long_session_keeps_its_lease_and_a_stop_gives_it_back() {
    let site = Site::new("crash_heartbeat").await;
    let session = site.session(USER).await;
    let extract = Script(|_| async { std::future::pending().await });
    // One slot, which is busy: on a slow machine it cannot take over from itself.
    let slow = Settings { lease: SHORT, slots: 1, ..settings("slow") };
    let worker = Worker::start(&site.address, &slow, extract).unwrap();
    state(&site, session, "processing").await;
    let beats = "SELECT count(*) FROM schedule_ingest.capture_session
        WHERE locked_at - created_at > interval '1 second' AND lease_expires_at > now()";
    testkit::eventually(LONG, "heartbeats", async || site.number(beats).await == 1).await.unwrap();
    assert_eq!(attempts(&site).await, 0);
    worker.stop().await;
    let given_back = "SELECT count(*) FROM schedule_ingest.capture_session
        WHERE state = 'processing' AND locked_by IS NULL AND locked_at = 'epoch' AND lease_token IS NULL";
    assert_eq!(site.number(given_back).await, 1);
    let rota = Rota::default();
    rota.show(session, day(&[("8-16", "Nurse", "Ward 3")]));
    let heir = Worker::start(&site.address, &settings("heir"), rota).unwrap();
    state(&site, session, "done").await;
    assert_eq!(attempts(&site).await, 0, "a stop costs nothing");
    heir.stop().await;
}

#[tokio::test]
async fn a_worker_whose_connection_is_cut_writes_nothing_and_tries_again() {
    let site = Site::new("crash_cut").await;
    let session = site.session(USER).await;
    let rota = Rota::default();
    rota.show(session, day(&[("8-16", "Nurse", "Ward 3")]));
    // Somebody else is writing this day, so the worker waits in the middle of its transaction.
    let lock = format!(
        "SELECT pg_advisory_lock(hashtextextended('schedule_ingest:{USER}:2026-11-16', 0))"
    );
    site.run(&lock).await.unwrap();
    let worker = Worker::start(&site.address, &settings("cut"), rota.clone()).unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'";
    testkit::eventually(LONG, "a wait to cut", async || site.number(cut).await == 1).await.unwrap();
    let unlock = lock.replace("pg_advisory_lock", "pg_advisory_unlock");
    testkit::eventually(LONG, "given back", async || worker.counts().released == 1).await.unwrap();
    assert_eq!(site.number("SELECT count(*) FROM schedule_ingest.schedule_version").await, 0);
    site.run(&unlock).await.unwrap();
    state(&site, session, "done").await;
    worker.stop().await;
    assert_eq!(attempts(&site).await, 0, "an outage of the database costs nothing");
    assert_eq!(site.number("SELECT count(*) FROM schedule_ingest.schedule_version").await, 1);
}
