//! A worker that is dropped at each step of recording, and a process that sleeps through its lease while it reads. Processes that are killed or
//! stopped at each step are in `doors.rs`.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use schedule::worker::{Settings, Worker};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use uuid::Uuid;

use crate::rota::{LONG, Rota, Script, day, settings};
use crate::site::{Site, USER};

const SHORT: Duration = Duration::from_millis(400);
/// Where the worker process finds its database. Without it there is nothing to do.
const DATABASE: &str = "HOLDFAST_TEST_SCHEDULE_SLEEPER";

/// A door in the database: whoever writes at this step waits until the test opens it.
const DOOR: &str = "CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END'";
const AT_THE_DOOR: &str = "SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The step, what triggers it, and whether what came before it is committed by then.
const STEPS: [(&str, &str, bool); 5] = [
    ("schedule_version", "BEFORE INSERT", false),
    ("schedule_event", "BEFORE INSERT", false),
    ("day_snapshot", "BEFORE INSERT", false),
    ("schedule_notification", "BEFORE INSERT", false),
    ("capture_session", "BEFORE UPDATE", true),
];

pub(crate) async fn rows(site: &Site, user: i64) -> Vec<i64> {
    let mut rows = Vec::new();
    for (table, _, _) in &STEPS[..4] {
        let count = format!("SELECT count(*) FROM schedule_ingest.{table} WHERE user_id = {user}");
        rows.push(site.number(&count).await);
    }
    rows
}

pub(crate) async fn done(site: &Site, session: Uuid) {
    testkit::eventually(LONG, "done", async || {
        let now = site.state(session).await;
        if now.0 == "done" { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_death_at_any_step_leaves_all_or_nothing_and_then_everything_once() {
    let site = Site::new("steps").await;
    site.run(DOOR).await.unwrap();
    let rota = Rota::default();
    for (user, (table, when, committed)) in (1..).zip(STEPS) {
        let only = if committed { "WHEN (NEW.lease_state = 'done')" } else { "" };
        let door = format!(
            "CREATE TRIGGER zz_door {when} ON schedule_ingest.{table} FOR EACH ROW {only} EXECUTE FUNCTION door()"
        );
        site.run(&door).await.unwrap();
        site.run("SELECT pg_advisory_lock(42)").await.unwrap();
        let session = site.session(user).await;
        rota.show(session, day(&[("8-16", "Nurse", "Ward 3")]));
        let victim = Settings { lease: SHORT, slots: 1, ..settings("victim") };
        let victim = Worker::start(&site.address, &victim, rota.clone()).unwrap();
        testkit::eventually(LONG, table, async || site.number(AT_THE_DOOR).await == 1)
            .await
            .unwrap();
        drop(victim);
        site.run("SELECT pg_advisory_unlock(42)").await.unwrap();
        // This waits for the transaction of the dead to end.
        site.run(&format!("DROP TRIGGER zz_door ON schedule_ingest.{table}")).await.unwrap();
        let expected = if committed { [1; 4] } else { [0; 4] };
        assert_eq!(rows(&site, user).await, expected, "after a death at {table}");
        let heir = Worker::start(&site.address, &settings("heir"), rota.clone()).unwrap();
        done(&site, session).await;
        heir.stop().await;
        assert_eq!(rows(&site, user).await, [1; 4], "in the end, at {table}");
    }
}

/// The other process: this program again, with this one test. It holds a session until a line comes in, and says what became of it.
#[tokio::test]
async fn sleeper_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let extract = Script(|_| async {
        eprintln!("holding");
        let line = || std::io::stdin().read_line(&mut String::new());
        tokio::task::spawn_blocking(line).await.unwrap().unwrap();
        Ok(day(&[("10-18", "Sleeper", "Ward 9")]))
    });
    let settings = Settings { lease: SHORT, slots: 1, ..settings("sleeper") };
    let worker = Worker::start(&pg::Options::new(url), &settings, extract).unwrap();
    let ended = async || worker.counts().done + worker.counts().fenced > 0;
    testkit::eventually(LONG, "an outcome", ended).await.unwrap();
    eprintln!("done {} fenced {}", worker.counts().done, worker.counts().fenced);
}

#[tokio::test]
async fn a_process_that_sleeps_through_its_lease_changes_nothing() {
    let site = Site::new("steps_sleeper").await;
    let session = site.session(USER).await;
    let mut sleeper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "steps::sleeper_process", "--nocapture"])
        .env(DATABASE, &site.address.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(sleeper.stderr.take().unwrap()).lines();
    let mut says = async |wanted: &str| {
        let line = async { while told.next_line().await.unwrap().unwrap() != wanted {} };
        tokio::time::timeout(LONG, line).await.unwrap();
    };
    let pid = Pid::from_raw(i32::try_from(sleeper.id().unwrap()).unwrap()).unwrap();
    says("holding").await;
    kill_process(pid, Signal::STOP).unwrap();
    let rota = Rota::default();
    rota.show(session, day(&[("8-16", "Nurse", "Ward 3")]));
    let heir = Worker::start(&site.address, &settings("heir"), rota).unwrap();
    done(&site, session).await;
    heir.stop().await;
    sleeper.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    says("done 0 fenced 1").await;
    assert_eq!(rows(&site, USER).await, [1; 4]);
    let title = "SELECT count(*) FROM schedule_ingest.day_snapshot WHERE snapshot_payload->0->>'title' = 'nurse'";
    assert_eq!(site.number(title).await, 1, "what the heir saw stays");
}
