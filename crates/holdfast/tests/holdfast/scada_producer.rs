//! `holdfast scada producer` as a process: killed while its spool drains, and asked how it stands.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use jiff::Timestamp;
use rig::{Postgres, PostgresOptions, Process};
use scada::producer::config::Nodes;
use scada::producer::{Config, Source};
use testkit::eventually;

const LONG: Duration = Duration::from_secs(120);
const NODES: u16 = 4;

struct Site {
    folder: tempfile::TempDir,
    postgres: Postgres,
}

impl Site {
    /// A node's machine; its Postgres has an empty database and is stopped.
    async fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let options = PostgresOptions::default();
        let mut postgres = Postgres::start(&folder.path().join("postgres"), options).await.unwrap();
        let client = pg::connect(&pg::Options::new(postgres.url("postgres"))).await.unwrap();
        client.batch_execute("CREATE DATABASE node").await.unwrap();
        drop(client);
        postgres.stop().await.unwrap();
        // Nothing listens on the broker's port: the outbox keeps everything.
        let text = format!(
            "[producer]\ndatabase.url = {:?}\nspool.dir = {:?}\nspool.free_space_reserve = 0\nhttp.listen = \"127.0.0.1:0\"\n\
             rabbitmq_url = \"amqp://nobody:tulip@127.0.0.1:1/scada\"\nbus_declare = false\ninterval = \"5ms\"\n",
            postgres.url("node"),
            folder.path().join("spool"),
        );
        std::fs::write(folder.path().join("node.toml"), text).unwrap();
        Site { folder, postgres }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, seed: u64) -> Process {
        let mut command = holdfast(&["producer", "run", "--nodes", &NODES.to_string(), "--seed"]);
        command.arg(seed.to_string()).arg("--config").arg(self.path("node.toml"));
        Process::spawn(command, Some(&self.path("log"))).unwrap()
    }

    fn status(&self) -> (Output, serde_json::Value) {
        let mut command = holdfast(&["producer", "status", "--json", "--config"]);
        let out = command.arg(self.path("node.toml")).output().unwrap();
        let told = serde_json::from_slice(&out.stdout).unwrap_or_default();
        (out, told)
    }

    async fn wait_spooled(&self, cycles: u64) {
        eventually(LONG, &format!("{cycles} cycles are spooled"), async || {
            let (_, told) = self.status();
            let now = told["spool"]["cycles"].as_u64().unwrap_or_default();
            if now >= cycles { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
    }

    /// Key and value of everything in the outbox, in its order.
    async fn rows(&self) -> Option<Vec<(String, f64)>> {
        let client = pg::connect(&pg::Options::new(self.postgres.url("node"))).await.ok()?;
        let query = "SELECT aggregate_id, (payload->>'value')::float8 FROM outbox_events ORDER BY created_at, id";
        let rows = client.query(query, &[]).await.ok()?;
        Some(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    async fn wait_rows(&self, at_least: usize) {
        eventually(LONG, &format!("{at_least} rows"), async || {
            let rows = self.rows().await.map_or(0, |rows| rows.len());
            if rows >= at_least { Ok(()) } else { Err(rows) }
        })
        .await
        .unwrap();
    }
}

fn holdfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("scada").args(arguments);
    command
}

/// Takes from `rows` the whole cycles that a run with this seed has begun with, and says how many they were.
fn take_run(rows: &mut &[(String, f64)], seed: u64) -> usize {
    let nodes = Nodes {
        plant: "PLANT01".parse().unwrap(),
        first: 1,
        count: NODES,
        area: None,
        unit: None,
        seed: None,
    };
    let mut source = Source::generators(&nodes, seed).unwrap();
    let mut cycles = 0;
    loop {
        let made = source.cycle(Timestamp::UNIX_EPOCH).events;
        let made: Vec<_> = made.iter().map(|event| (event.partition_key(), event.value)).collect();
        match rows.strip_prefix(made.as_slice()) {
            Some(rest) => *rows = rest,
            None => return cycles,
        }
        cycles += 1;
    }
}

#[tokio::test]
async fn killed_while_its_spool_drains_a_node_loses_and_doubles_nothing() {
    let mut site = Site::new().await;
    let mut node = site.start(1);
    site.wait_spooled(200).await;
    let (out, told) = site.status();
    assert_eq!(out.status.code(), Some(1), "without its database it is critical");
    assert!(told["outbox"].is_null() && told["databaseProblem"].is_string(), "{told}");
    // Killed without the database: what was acknowledged is on the disk.
    node.kill().await.unwrap();
    let spooled = site.status().1["spool"]["cycles"].as_u64().unwrap();

    let mut node = site.start(2);
    site.wait_spooled(spooled + 200).await;
    site.postgres.restart().await.unwrap();
    // Somewhere in the middle of the drain; what was written and not acked is written again by the next one.
    site.wait_rows(200).await;
    node.kill().await.unwrap();
    let mut node = site.start(3);
    eventually(LONG, "the last run is in the outbox", async || {
        let rows = site.rows().await.unwrap_or_default();
        let mut left = rows.as_slice();
        take_run(&mut left, 1);
        take_run(&mut left, 2);
        take_run(&mut left, 3) > 50
    })
    .await
    .unwrap();
    assert!(node.term(LONG).await.unwrap().success());

    let rows = site.rows().await.unwrap();
    let mut left = rows.as_slice();
    let runs = [1, 2, 3].map(|seed| take_run(&mut left, seed));
    assert_eq!(left, [], "after {runs:?} cycles something else follows");
    assert!(u64::try_from(runs[0]).unwrap() >= spooled && runs[1] >= 200, "{runs:?}");
    let log = std::fs::read_to_string(site.path("log")).unwrap();
    assert!(!log.contains("tulip"), "{log}");

    let (_, told) = site.status();
    assert_eq!(told["spool"]["cycles"], 0);
    assert_eq!(told["givenUpCycles"], 0);
    // The one that was killed may have held a batch that it could not publish; its lock still stands.
    let waiting = |name: &str| told["outbox"][name].as_u64().unwrap();
    let unsent = waiting("pendingCount") + waiting("inProgressCount");
    assert_eq!(unsent, u64::try_from(rows.len()).unwrap(), "{told}");
    let mut command = holdfast(&["producer", "status", "--config"]);
    let text = command.arg(site.path("node.toml")).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("pendingCount") && text.contains("The spool is empty"), "{text}");

    // One that was given up goes again.
    let client = pg::connect(&pg::Options::new(site.postgres.url("node"))).await.unwrap();
    let give_up = "UPDATE outbox_events SET status = 'FAILED', failed_at = now(), failed_reason = 'x'
        WHERE id = (SELECT min(id::text)::uuid FROM outbox_events WHERE status = 'PENDING') RETURNING id::text";
    let id: String = client.query_one(give_up, &[]).await.unwrap().get(0);
    for (arguments, wanted) in [(["--id", id.as_str()].as_slice(), 1), (["--all"].as_slice(), 0)] {
        let mut command = holdfast(&["producer", "redrive", "--json", "--config"]);
        let out = command.arg(site.path("node.toml")).args(arguments).output().unwrap();
        let redriven: Vec<String> = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(redriven.len(), wanted, "{arguments:?}");
    }
    site.postgres.stop().await.unwrap();
}

#[test]
fn what_cannot_run_says_what_to_do() {
    let said = |text: &str, arguments: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let out = holdfast(arguments).arg("--config").arg(file.path()).output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let base = "[producer]\ndatabase.url = \"postgres:///x\"\n";
    assert!(said(base, &["producer", "run"]).contains("producer.rabbitmq_url"));
    let inline = format!("{base}bus = \"inline\"\n");
    assert!(said(&inline, &["producer", "run"]).contains("name a broker"));
    assert!(said(&inline, &["producer", "run", "--nodes", "1001"]).contains("1000"));
    let broker = "rabbitmq_url = \"amqp://a:b@c:1/d\"\n";
    let both = format!("{base}{broker}[historian]\ndatabase.url = \"postgres:///x\"\n{broker}");
    assert!(said(&both, &["line"]).contains("inline"));
    assert!(Config::load(Some(Path::new("/nowhere")), |_| None).is_err());
}
