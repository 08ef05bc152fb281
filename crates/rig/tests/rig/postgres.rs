//! A real private Postgres: started, stopped, killed, and started again.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rig::{Error, Postgres, PostgresOptions};

fn options() -> PostgresOptions {
    PostgresOptions { durable: false, max_connections: 20 }
}

/// A folder that the server's user can enter.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    folder
}

fn mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Asks with Postgres's own client, so that the address is checked against it too.
fn ask(server: &Postgres, statement: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-X", "-q", "-t", "-A", "-c", statement, &server.url("postgres")])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn running(pids: &[u32]) -> Vec<u32> {
    let alive = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    pids.iter().filter(alive).copied().collect()
}

#[tokio::test]
async fn what_was_committed_survives_stop_kill_and_a_lost_handle() {
    let folder = folder();
    let mut server = Postgres::start(folder.path(), options()).await.unwrap();
    ask(&server, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(ask(&server, "SHOW listen_addresses").unwrap(), "");

    server.stop().await.unwrap();
    assert!(server.pids().is_empty());
    assert!(ask(&server, "SELECT 1").is_err());
    server.restart().await.unwrap();
    ask(&server, "INSERT INTO t VALUES (2)").unwrap();

    let pids = server.pids();
    assert!(pids.len() > 1, "the server and its children: {pids:?}");
    server.kill().await.unwrap();
    assert_eq!(running(&pids), Vec::<u32>::new());
    server.restart().await.unwrap();
    ask(&server, "INSERT INTO t VALUES (3)").unwrap();

    // Whoever started it was killed: the server still runs when the folder is used again.
    server.detach();
    let server = Postgres::start(folder.path(), options()).await.unwrap();
    assert_eq!(ask(&server, "SELECT string_agg(n::text, ' ') FROM t").unwrap(), "1 2 3");

    let pids = server.pids();
    drop(server);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !running(&pids).is_empty() {
        assert!(Instant::now() < deadline, "a dropped server ends");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_lock_file_that_names_a_stranger_does_not_stop_it() {
    let folder = folder();
    let mut server = Postgres::start(folder.path(), options()).await.unwrap();
    server.kill().await.unwrap();
    let lock = folder.path().canonicalize().unwrap().join("data/postmaster.pid");
    let text = std::fs::read_to_string(&lock).unwrap();
    let stranger = text.replacen(text.lines().next().unwrap(), &std::process::id().to_string(), 1);
    std::fs::write(&lock, stranger).unwrap();
    server.restart().await.unwrap();
    assert_eq!(ask(&server, "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn a_deep_folder_with_a_strange_name_works() {
    let folder = folder();
    let mut deep: PathBuf = folder.path().join("a name with 'quotes' & blanks");
    for _ in 0..8 {
        deep.push("quite-a-long-name");
    }
    let server = Postgres::start(&deep, options()).await.unwrap();
    assert_eq!(ask(&server, "SELECT 1").unwrap(), "1");
    let sockets = ask(&server, "SHOW unix_socket_directories").unwrap();
    assert!(sockets.len() < 90, "{sockets}");
    drop(server);
    let short = folder.path().join("short 'name' & more");
    let server = Postgres::start(&short, options()).await.unwrap();
    assert_eq!(ask(&server, "SELECT 1").unwrap(), "1");
    std::fs::remove_dir_all(&sockets).unwrap();
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let folder = folder();
    let mut server = Postgres::start(folder.path(), options()).await.unwrap();
    server.stop().await.unwrap();
    std::fs::write(folder.path().join("data/postgresql.conf"), "no_such_setting = 1\n").unwrap();
    let error = server.restart().await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn a_folder_closed_to_the_servers_user_is_named() {
    if !rustix::process::geteuid().is_root() {
        return; // Without root the server runs as us, and nothing of ours is closed to it.
    }
    let folder = folder();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    mode(&closed, 0o700);
    let error = Postgres::start(&closed.join("inside"), options()).await.unwrap_err();
    assert!(matches!(&error, Error::Closed { closed: named, .. } if *named == closed), "{error}");
}

#[tokio::test]
async fn an_interrupted_first_start_is_begun_anew() {
    let folder = folder();
    let unfinished = folder.path().join("data.new");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("PG_VERSION"), "15").unwrap();
    let server = Postgres::start(folder.path(), options()).await.unwrap();
    assert_eq!(ask(&server, "SELECT 1").unwrap(), "1");
}
