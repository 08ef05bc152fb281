//! A worker process that is killed at each of its steps, or stopped there past its lease while another finishes.
//!
//! The step waits at a door in the database, a lock that the test holds, so nothing in the worker knows of it.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use schedule::observation::Observation;
use schedule::worker::{Settings, Worker};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::rota::{LONG, Rota, Script, day, settings};
use crate::site::{Site, USER};
use crate::steps::{done, rows};

/// Where the worker process finds its database. Without it there is nothing to do.
const DATABASE: &str = "HOLDFAST_TEST_SCHEDULE_DOOR";
const LEASE: Duration = Duration::from_millis(500);
/// Doors that are tried at the same time: most of a try is waiting.
const TOGETHER: usize = 3;

/// Shared, so that those who come through do not wait for each other.
const FUNCTION: &str = "CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END'";
const AT_THE_DOOR: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-schedule-worker'";

/// What is stored, as one text: whatever changes, changes it.
const EVERYTHING: &str = "SELECT concat_ws(E'\\n',
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.capture_session t),
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.day_schedule t),
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.schedule_version t),
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.day_snapshot t),
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.schedule_event t),
    (SELECT string_agg(t::text, ' ') FROM schedule_ingest.schedule_notification t))";

/// A step, and how it is held up.
struct Door {
    step: &'static str,
    /// The lock that the test holds.
    lock: &'static str,
    /// What makes the step wait for it; empty where the worker takes this lock itself.
    trigger: &'static str,
    /// How many rows each table has once the last statement of the dead has ended.
    left: i64,
    /// How often the session's lease is lost.
    lost: i64,
    /// What the process says it has done when it was stopped here and woke up.
    woken: &'static str,
}

const FENCED: &str = "done 0 fenced 1";

impl Door {
    const fn insert(step: &'static str, trigger: &'static str) -> Door {
        Door { step, lock: "42", trigger, left: 0, lost: 1, woken: FENCED }
    }
}

/// Every step from an open session to one that is done, in order.
const DOORS: [Door; 9] = [
    Door {
        // Nobody holds it yet: the other finds it complete, and there is no lease to lose.
        lost: 0,
        woken: "done 0 fenced 0",
        ..Door::insert(
            "finalized",
            "TRIGGER door_at_step BEFORE UPDATE ON schedule_ingest.capture_session FOR EACH ROW
             WHEN (OLD.finalized_at IS NULL AND NEW.finalized_at IS NOT NULL)",
        )
    },
    Door::insert(
        "claimed",
        "TRIGGER door_at_step BEFORE UPDATE ON schedule_ingest.capture_session FOR EACH ROW
         WHEN (OLD.lease_state = 'pending' AND NEW.lease_state = 'claimed')",
    ),
    Door {
        lock: "hashtextextended('schedule_ingest:4711:2026-11-16', 0)",
        ..Door::insert("waiting for its day", "")
    },
    Door::insert(
        "version",
        "TRIGGER door_at_step BEFORE INSERT ON schedule_ingest.schedule_version FOR EACH ROW",
    ),
    Door::insert(
        "events",
        "TRIGGER door_at_step BEFORE INSERT ON schedule_ingest.schedule_event FOR EACH ROW",
    ),
    Door::insert(
        "snapshot",
        "TRIGGER door_at_step BEFORE INSERT ON schedule_ingest.day_snapshot FOR EACH ROW",
    ),
    Door::insert(
        "notifications",
        "TRIGGER door_at_step BEFORE INSERT ON schedule_ingest.schedule_notification FOR EACH ROW",
    ),
    Door {
        left: 1,
        ..Door::insert(
            "commit",
            "CONSTRAINT TRIGGER door_at_step AFTER INSERT ON schedule_ingest.schedule_notification
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
        )
    },
    Door {
        left: 1,
        // The statement that ends the session is under way, and nobody can come between.
        lost: 0,
        woken: "done 1 fenced 0",
        ..Door::insert(
            "done",
            "TRIGGER door_at_step BEFORE UPDATE ON schedule_ingest.capture_session FOR EACH ROW
             WHEN (NEW.lease_state = 'done')",
        )
    },
];

/// What the session shows, to whoever reads it.
fn seen() -> Observation {
    day(&[("8-16", "Nurse", "Ward 3"), ("22-6", "Watch", "Gate")])
}

/// Version, events, snapshot, messages.
const ONCE: [i64; 4] = [1, 2, 1, 1];

/// The other process: this program again, with this one test. It works, and says what it has done whenever a line comes in.
#[tokio::test]
async fn door_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let settings = Settings { lease: LEASE, slots: 1, ..settings("victim") };
    let extract = Script(|_| async { Ok(seen()) });
    let worker = Worker::start(&pg::Options::new(url), &settings, extract).unwrap();
    let line = || std::io::stdin().read_line(&mut String::new());
    while tokio::task::spawn_blocking(line).await.unwrap().unwrap() > 0 {
        let counts = worker.counts();
        eprintln!("done {} fenced {}", counts.done, counts.fenced);
    }
}

/// A site where a worker process waits at a door.
struct Scene {
    site: Site,
    session: Uuid,
    child: Child,
    told: Lines<BufReader<ChildStderr>>,
}

impl Scene {
    async fn set(name: &str, door: &Door) -> Scene {
        let site = Site::new(name).await;
        site.run(FUNCTION).await.unwrap();
        if !door.trigger.is_empty() {
            let trigger = format!("CREATE {} EXECUTE FUNCTION door()", door.trigger);
            site.run(&trigger).await.unwrap();
        }
        site.run(&format!("SELECT pg_advisory_lock({})", door.lock)).await.unwrap();
        let session = site.session(USER).await;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "doors::door_process", "--nocapture"])
            .env(DATABASE, &site.address.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stderr.take().unwrap()).lines();
        testkit::eventually(LONG, door.step, async || site.number(AT_THE_DOOR).await == 1)
            .await
            .unwrap();
        Scene { site, session, child, told }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    async fn open_the_door(&self) {
        self.site.run("SELECT pg_advisory_unlock_all()").await.unwrap();
    }

    /// Another worker, until the session is done.
    async fn another_finishes(&self) {
        let rota = Rota::default();
        rota.show(self.session, seen());
        let heir = Worker::start(&self.site.address, &settings("heir"), rota).unwrap();
        done(&self.site, self.session).await;
        heir.stop().await;
    }

    async fn check_once(&self, door: &Door) {
        assert_eq!(rows(&self.site, USER).await, ONCE, "in the end, at {}", door.step);
        let lost = "SELECT attempts::int8 FROM schedule_ingest.capture_session";
        assert_eq!(self.site.number(lost).await, door.lost, "lost leases at {}", door.step);
    }

    async fn everything(&self) -> String {
        self.site.client.query_one(EVERYTHING, &[]).await.unwrap().get(0)
    }

    /// What the process says it has done.
    async fn says(&mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
        let line = async {
            loop {
                let line = self.told.next_line().await.unwrap().unwrap();
                if line.starts_with("done ") {
                    return line;
                }
            }
        };
        tokio::time::timeout(LONG, line).await.unwrap()
    }
}

async fn killed(n: usize, door: &Door) {
    let mut scene = Scene::set(&format!("door_killed_{n}"), door).await;
    scene.signal(Signal::KILL);
    scene.child.wait().await.unwrap();
    scene.open_the_door().await;
    // The server ends what the dead asked for last, and only then finds nobody there.
    let gone = async || scene.site.number(CONNECTIONS).await == 0;
    testkit::eventually(LONG, "its connections are gone", gone).await.unwrap();
    let left = ONCE.map(|count| count * door.left);
    assert_eq!(rows(&scene.site, USER).await, left, "after a death at {}", door.step);
    scene.another_finishes().await;
    scene.check_once(door).await;
}

async fn stopped(n: usize, door: &Door) {
    let mut scene = Scene::set(&format!("door_stopped_{n}"), door).await;
    scene.signal(Signal::STOP);
    scene.open_the_door().await;
    scene.another_finishes().await;
    scene.check_once(door).await;
    let settled = scene.everything().await;
    scene.signal(Signal::CONT);
    testkit::eventually(LONG, door.step, async || {
        let says = scene.says().await;
        if says == door.woken { Ok(()) } else { Err(says) }
    })
    .await
    .unwrap();
    assert_eq!(scene.everything().await, settled, "after it woke up at {}", door.step);
}

/// Tries every door, some at a time.
async fn at_each_door(what: impl AsyncFn(usize, &'static Door) + Copy + 'static) {
    for (chunk, doors) in DOORS.chunks(TOGETHER).enumerate() {
        let together = LocalSet::new();
        let tries = (chunk * TOGETHER..).zip(doors);
        let tries: Vec<_> = tries
            .map(|(n, door)| together.spawn_local(async move { what(n, door).await }))
            .collect();
        let all = async {
            for one in tries {
                one.await.unwrap();
            }
        };
        together.run_until(all).await;
    }
}

#[tokio::test]
async fn a_process_that_is_killed_at_any_step_leaves_all_or_nothing_and_then_everything_once() {
    at_each_door(killed).await;
}

#[tokio::test]
async fn a_process_that_sleeps_at_any_step_past_its_lease_changes_nothing_when_it_wakes() {
    at_each_door(stopped).await;
}
