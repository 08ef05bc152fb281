//! A worker process that is stopped past its lease, for real.

use std::process::Stdio;
use std::time::Duration;

use lease::{Options, Verdict, Worker};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use crate::outbox;
use crate::site::{Delivered, LONG, Mode, Site, deliver, script};

/// Where the worker process finds its database. Without it there is nothing to do.
const DATABASE: &str = "HOLDFAST_TEST_WORKER_DATABASE";
/// Set where lanes have the leases.
const BY_LANE: &str = "HOLDFAST_TEST_WORKER_BY_LANE";
const LEASE: Duration = Duration::from_millis(500);

/// The other process: this program again, with this one test. It prints `holding ROWS` for a batch,
/// holds it until a line comes in, and prints `done ROWS fenced ROWS` when the outcome was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let mode = if std::env::var_os(BY_LANE).is_some() { Mode::Lane } else { Mode::Row };
    let address = pg::Options::new(url);
    let mut options = Options::new("zombie");
    (options.slots, options.lease) = (1, LEASE);
    let hold = script(async |batch| {
        eprintln!("holding {}", batch.items.len());
        let line = || std::io::stdin().read_line(&mut String::new());
        tokio::task::spawn_blocking(line).await.unwrap().unwrap();
        Verdict::all_done(&batch)
    });
    let worker = Worker::start(&address, outbox::queue(mode, "worker"), hold, options).unwrap();
    testkit::eventually(LONG, "an outcome", async || {
        worker.counts().done + worker.counts().fenced > 0
    })
    .await
    .unwrap();
    eprintln!("done {} fenced {}", worker.counts().done, worker.counts().fenced);
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    told: tokio::io::Lines<BufReader<ChildStderr>>,
}

impl Process {
    fn start(site: &Site) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if site.mode == Mode::Lane {
            command.env(BY_LANE, "1");
        }
        let mut child = command
            .args(["--exact", "zombie::worker_process", "--nocapture"])
            .env(DATABASE, &site.address.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, told) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
        Process { child, stdin, told: BufReader::new(told).lines() }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    async fn says(&mut self, wanted: &str) {
        let line = tokio::time::timeout(LONG, self.told.next_line()).await.unwrap();
        assert_eq!(line.unwrap().as_deref(), Some(wanted));
    }
}

const ROWS: &str = "SELECT jsonb_agg(o ORDER BY seq)::text FROM sync_outbox o";

async fn a_process_stopped_past_its_lease_changes_nothing_and_is_counted(mode: Mode) {
    let site = Site::new(mode, "sigstop").await;
    site.add("t", "d", 0..5).await;
    let mut zombie = Process::start(&site);
    zombie.says("holding 5").await;
    zombie.signal(Signal::STOP);
    // Its heart stands still: the lease runs out by the database's clock, and another takes over.
    let delivered = Delivered::default();
    let other = site.start(deliver(&delivered), site.options("other"));
    site.until_acked(5).await;
    assert_eq!(other.counts().reclaimed, 5);
    let before: String = site.client.query_one(ROWS, &[]).await.unwrap().get(0);
    zombie.stdin.write_all(b"\n").await.unwrap();
    zombie.signal(Signal::CONT);
    zombie.says("done 0 fenced 5").await;
    let after: String = site.client.query_one(ROWS, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "the zombie changed something");
    assert_eq!((other.counts().done, delivered.len()), (5, 5));
    other.stop().await;
}

crate::both! {
    a_process_stopped_past_its_lease_changes_nothing_and_is_counted,
}
