//! Clocks that are wrong by hours: a backend's, which writes `locked_at`, and that of the worker's own machine. Only the database's counts.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schedule::worker::{Settings, Worker};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::rota::{LONG, Rota, Script, day, settings};
use crate::site::{Site, USER};
use crate::steps::{done, rows};

/// Where the worker process finds its database. Without it there is nothing to do.
const DATABASE: &str = "HOLDFAST_TEST_SCHEDULE_CLOCK";
const LEASE: Duration = Duration::from_secs(1);
const HOURS: i64 = 6 * 3600;

/// The wall's clock as a process reads it, off by the seconds that a file says at the moment. Other clocks are as they are: when somebody sets a
/// clock, the time that has passed stays what it is.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    long answer = syscall(SYS_clock_gettime, clock, at);
    const char *file = getenv("HOLDFAST_TEST_CLOCK_FILE");
    if (answer != 0 || clock != CLOCK_REALTIME || file == NULL) return (int)answer;
    char text[32] = {0};
    int opened = open(file, O_RDONLY);
    if (opened < 0) return 0;
    if (read(opened, text, sizeof text - 1) > 0) at->tv_sec += atol(text);
    close(opened);
    return 0;
}
"#;
/// The linker that Rust itself needs makes it.
fn wrong_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, WRONG_CLOCK).unwrap();
    let mut make = std::process::Command::new("cc");
    let made = make.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// The other process: this program again, with this one test. It says what its clock shows, and holds a session until it is told to go on.
#[tokio::test]
async fn clock_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let extract = Script(|_| async {
        eprintln!("holding");
        loop {
            let mut line = String::new();
            let read = move || std::io::stdin().read_line(&mut line).map(|_| line);
            match tokio::task::spawn_blocking(read).await.unwrap().unwrap().trim() {
                "clock" => eprintln!("clock {}", wall()),
                _ => return Ok(day(&[("8-16", "Nurse", "Ward 3")])),
            }
        }
    });
    let settings = Settings { lease: LEASE, slots: 1, ..settings("wrong") };
    let _worker = Worker::start(&pg::Options::new(url), &settings, extract).unwrap();
    std::future::pending::<()>().await;
}

/// A worker process whose clock is set by the test.
struct Machine {
    folder: tempfile::TempDir,
    child: Child,
    told: Lines<BufReader<ChildStderr>>,
}

impl Machine {
    async fn start(site: &Site, off: i64) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let library = wrong_clock(folder.path());
        let file = folder.path().join("off");
        std::fs::write(&file, off.to_string()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "clock::clock_process", "--nocapture"])
            .env(DATABASE, &site.address.url)
            .env("LD_PRELOAD", library)
            .env("HOLDFAST_TEST_CLOCK_FILE", file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stderr.take().unwrap()).lines();
        Machine { folder, child, told }
    }

    /// Waits until the process says something that begins so.
    async fn hears(&mut self, start: &str) -> String {
        let line = async {
            loop {
                let line = self.told.next_line().await.unwrap().unwrap();
                if let Some(rest) = line.strip_prefix(start) {
                    return rest.trim().to_owned();
                }
            }
        };
        tokio::time::timeout(LONG, line).await.unwrap()
    }

    async fn tell(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    /// Sets its clock, by writing aside and renaming: the process never reads half of it.
    #[expect(clippy::disallowed_methods, reason = "whole or not at all is enough here")]
    async fn set(&mut self, off: i64) {
        let (new, file) = (self.folder.path().join("new"), self.folder.path().join("off"));
        std::fs::write(&new, off.to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
        self.check(off).await;
    }

    /// The process, which holds a session, sees the clock that it was given: without this nothing would be tested.
    async fn check(&mut self, off: i64) {
        self.tell("clock\n").await;
        let shows: i64 = self.hears("clock ").await.parse().unwrap();
        assert!((shows - wall() - off).abs() < 60, "its clock is off by {}", shows - wall());
    }
}

#[tokio::test]
async fn a_lock_of_a_backend_whose_clock_runs_ahead_holds_no_longer_than_others() {
    let site = Site::new("clock_backend").await;
    let session = site.session(USER).await;
    let in_time = "SELECT count(*) FROM schedule_ingest.capture_session
        WHERE locked_at <= now() AND lease_expires_at <= now() + schedule_ingest.stale_after()
          AND lease_expires_at > now()";
    for ahead in [
        "SET state = 'processing', locked_at = now() + interval '6 hours', locked_by = 'python-1' WHERE id = $1",
        "SET locked_at = now() + interval '1 year' WHERE id = $1 AND locked_by = 'python-1'",
    ] {
        let ahead = format!("UPDATE schedule_ingest.capture_session {ahead}");
        assert_eq!(site.on(session, &ahead).await, Ok(1), "{ahead}");
        assert_eq!(site.number(in_time).await, 1, "{ahead}");
    }
    // One that runs behind is believed: its lock is stale, and whoever finds it so takes it over, ahead or not.
    for statement in [
        "SET locked_at = now() - interval '6 hours' WHERE id = $1 AND locked_by = 'python-1'",
        "SET locked_at = now() + interval '6 hours', locked_by = 'python-2' WHERE id = $1",
    ] {
        let statement = format!("UPDATE schedule_ingest.capture_session {statement}");
        assert_eq!(site.on(session, &statement).await, Ok(1), "{statement}");
    }
    assert_eq!(site.number(in_time).await, 1);
}

#[tokio::test]
async fn a_clock_that_jumps_while_a_session_is_held_changes_nothing() {
    let site = Site::new("clock_jumps").await;
    let session = site.session(USER).await;
    let mut machine = Machine::start(&site, 0).await;
    machine.hears("holding").await;
    let heir = Worker::start(&site.address, &settings("heir"), Rota::default()).unwrap();
    for off in [HOURS, -HOURS, 0] {
        machine.set(off).await;
        let beat = "SELECT (extract(epoch FROM locked_at) * 1000)::int8 FROM schedule_ingest.capture_session";
        let before = site.number(beat).await;
        // Two heartbeats under this clock, each of the database's time.
        let beats = async || site.number(beat).await > before + 1_000;
        testkit::eventually(LONG, "heartbeats", beats).await.unwrap();
        let ours = "SELECT count(*) FROM schedule_ingest.capture_session WHERE locked_by = 'wrong'
            AND locked_at BETWEEN now() - interval '1 minute' AND now()
            AND lease_expires_at <= now() + interval '1 second'";
        assert_eq!(site.number(ours).await, 1, "off by {off}");
    }
    machine.set(HOURS).await;
    machine.tell("go\n").await;
    done(&site, session).await;
    assert_eq!((heir.counts().claimed, rows(&site, USER).await), (0, vec![1; 4]));
    heir.stop().await;
    let of_now = "SELECT count(*) FROM schedule_ingest.schedule_version v
        JOIN schedule_ingest.day_snapshot p USING (user_id) JOIN schedule_ingest.schedule_event e USING (user_id)
        JOIN schedule_ingest.schedule_notification n USING (user_id)
        WHERE least(v.created_at, p.updated_at, e.detected_at, n.created_at) > now() - interval '5 minutes'
          AND greatest(v.created_at, p.updated_at, e.detected_at, n.created_at) <= now()";
    assert_eq!(site.number(of_now).await, 1, "what is stored has the time of the database");
}

#[tokio::test]
async fn a_worker_whose_clock_is_wrong_takes_over_neither_early_nor_late() {
    for off in [HOURS, -HOURS] {
        let site = Site::new(if off > 0 { "clock_ahead" } else { "clock_behind" }).await;
        let held = site.session(USER).await;
        let claim = "UPDATE schedule_ingest.capture_session
            SET state = 'processing', locked_at = now(), locked_by = 'python-1' WHERE id = $1";
        assert_eq!(site.on(held, claim).await, Ok(1));
        let mut machine = Machine::start(&site, off).await;
        // It looks around, as others that are free show, and leaves this one alone.
        for _ in 0..3 {
            let free = site.session(USER).await;
            machine.hears("holding").await;
            machine.check(off).await;
            machine.tell("go\n").await;
            done(&site, free).await;
        }
        let theirs = "SELECT count(*) FROM schedule_ingest.capture_session
            WHERE state = 'processing' AND locked_by = 'python-1' AND attempts = 0";
        assert_eq!(site.number(theirs).await, 1, "off by {off}");
        let age = "UPDATE schedule_ingest.capture_session
            SET locked_at = now() - interval '6 minutes' WHERE id = $1 AND locked_by = 'python-1'";
        assert_eq!(site.on(held, age).await, Ok(1));
        machine.hears("holding").await;
        machine.tell("go\n").await;
        done(&site, held).await;
    }
}
