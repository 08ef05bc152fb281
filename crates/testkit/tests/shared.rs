//! One server for many processes, one template for many databases, and an end to both.
//!
//! Some tests start this same executable again, with a run folder of their own, to be one more test
//! process among others.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Database, database, eventually, postgres};

const LONG: Duration = Duration::from_secs(60);
/// Set for a process that plays a part in another test.
const PART: &str = "TESTKIT_PART";

async fn migrate(url: String) -> Result<(), pg::Error> {
    let client = pg::connect(&pg::Options::new(url)).await?;
    // The pause makes sure that two that do not know of each other would meet.
    client
        .batch_execute(
            "CREATE TABLE made (at timestamptz); INSERT INTO made VALUES (clock_timestamp());
             SELECT pg_sleep(0.3)",
        )
        .await?;
    Ok(())
}

/// What tells one server, and one migration of its template, from another.
async fn identity() -> String {
    let database = database("identity", "shared", migrate).await.unwrap();
    let client = database.connect().await.unwrap();
    let row = client
        .query_one("SELECT pg_postmaster_start_time()::text || ' / ' || at::text FROM made", &[])
        .await
        .unwrap();
    row.get(0)
}

/// Plays the part that the environment names; without one there is nothing to do.
#[tokio::test]
async fn part() {
    match std::env::var(PART).as_deref() {
        Ok("identify") => println!("identity: {}", identity().await),
        Ok("linger") => {
            println!("identity: {}", identity().await);
            std::future::pending::<()>().await;
        }
        _ => {}
    }
}

fn player(part: &str, run: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["part", "--exact", "--nocapture"])
        .env(PART, part)
        .env("HOLDFAST_TEST_RUN", run)
        .stdout(Stdio::piped());
    command
}

fn identity_in(output: &str) -> String {
    let line = output.split_once("identity: ").map(|(_, rest)| rest.lines().next().unwrap());
    line.unwrap_or_else(|| panic!("no identity in {output}")).to_owned()
}

fn server_folder(run: &Path) -> Option<String> {
    let note = std::fs::read_to_string(run.join("server")).ok()?;
    note.lines().next().map(str::to_owned)
}

fn server_runs(folder: &str) -> bool {
    let data = format!("{folder}/data");
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == data.as_bytes()))
    })
}

/// Asks the keeper of a run to end it, and waits until it has.
async fn end(run: &Path, folder: &str) {
    std::fs::write(run.join("end"), "").unwrap();
    eventually(LONG, "the end of the server", async || {
        if run.join("server").exists() {
            return Err("the note is there");
        }
        if Path::new(folder).exists() {
            return Err("the data is there");
        }
        if server_runs(folder) { Err("it runs") } else { Ok(()) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn processes_that_start_together_share_server_and_template() {
    let run = tempfile::tempdir().unwrap();
    let players: Vec<_> = (0..3).map(|_| player("identify", run.path()).spawn().unwrap()).collect();
    let mut identities: Vec<String> = players
        .into_iter()
        .map(|player| {
            identity_in(&String::from_utf8_lossy(&player.wait_with_output().unwrap().stdout))
        })
        .collect();
    // The server is still there for the next test binary.
    let later = player("identify", run.path()).output().unwrap();
    identities.push(identity_in(&String::from_utf8_lossy(&later.stdout)));
    identities.dedup();
    assert_eq!(identities.len(), 1, "{identities:?}");
    let folder = server_folder(run.path()).unwrap();
    assert!(server_runs(&folder));
    end(run.path(), &folder).await;
}

#[tokio::test]
async fn a_killed_user_does_not_keep_the_server() {
    use std::io::{BufRead, BufReader};
    let run = tempfile::tempdir().unwrap();
    let mut lingering = player("linger", run.path()).spawn().unwrap();
    let mut lines = BufReader::new(lingering.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("identity: ")));
    let folder = server_folder(run.path()).unwrap();
    // While it lives the server stays, though the end was asked for.
    std::fs::write(run.path().join("end"), "").unwrap();
    let again = player("identify", run.path()).output().unwrap();
    assert!(again.status.success());
    assert_eq!(server_folder(run.path()).unwrap(), folder);
    lingering.kill().unwrap();
    lingering.wait().unwrap();
    end(run.path(), &folder).await;
}

#[tokio::test]
async fn databases_are_apart_and_go_when_dropped() {
    let one = database("one", "shared", migrate).await.unwrap();
    let two = database("two", "shared", migrate).await.unwrap();
    let client = one.connect().await.unwrap();
    client.batch_execute("CREATE TABLE only_here ()").await.unwrap();
    let missing = two.connect().await.unwrap().batch_execute("SELECT FROM only_here").await;
    assert!(missing.is_err());
    let name = one.name().to_owned();
    drop(one);
    let url = postgres().await.unwrap().maintenance_url();
    let maintenance = pg::connect(&pg::Options::new(url)).await.unwrap();
    eventually(LONG, "the drop of the database", async || {
        let found =
            maintenance.query("SELECT FROM pg_database WHERE datname = $1::text", &[&name]).await?;
        Ok::<bool, tokio_postgres::Error>(found.is_empty())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_migration_that_fails_is_told_and_tried_again() {
    // A key of this run: the server may still have the template of the run before.
    let key = format!("failing {}", uuid::Uuid::new_v4());
    let failing = async |_: String| Err::<(), &str>("on purpose");
    let error = database("failing", &key, failing).await.unwrap_err().to_string();
    assert!(error.contains("on purpose"), "{error}");
    let database = database("failing", &key, migrate).await.unwrap();
    database.connect().await.unwrap().batch_execute("SELECT FROM made").await.unwrap();
}

#[tokio::test]
async fn many_databases_at_once() {
    let made = (0..20).map(|_| tokio::spawn(Database::empty("many")));
    for database in made.collect::<Vec<_>>() {
        database.await.unwrap().unwrap().connect().await.unwrap();
    }
}

#[tokio::test]
async fn a_broker_of_its_own_leaves_nothing() {
    let mut broker = testkit::mosquitto().await.unwrap();
    let log = broker.log();
    let pid = broker.process().unwrap().pid();
    tokio::net::TcpStream::connect(broker.addr()).await.unwrap();
    drop(broker);
    assert!(!log.exists());
    eventually(LONG, "the end of the broker", async || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    })
    .await
    .unwrap();
}

#[test]
fn a_binary_that_cannot_be_built_is_named() {
    let error = testkit::bin("no-such-binary").unwrap_err().to_string();
    assert!(error.contains("no-such-binary"), "{error}");
}
