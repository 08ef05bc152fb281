//! The shared RabbitMQ: one for many processes, and nothing of it is left behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::eventually;

const LONG: Duration = Duration::from_secs(60);
/// Set for a process that plays a part in another test.
const PART: &str = "TESTKIT_PART";

/// Uses the shared broker when the environment says so, and ends at once.
#[tokio::test]
async fn part() {
    if std::env::var_os(PART).is_some() {
        let (one, two) = tokio::join!(testkit::rabbitmq(), testkit::rabbitmq());
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_ne!(one.name(), two.name());
    }
}

/// The command lines of processes that were started with `folder` as their home: the broker, its name service
/// and the tools.
fn processes_of(folder: &str) -> Vec<String> {
    let home = format!("HOME={folder}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let ours = environment.split(|byte| *byte == 0).any(|word| word == home.as_bytes());
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        ours.then(|| String::from_utf8_lossy(&line).replace('\0', " "))
    });
    processes.collect()
}

/// What listens on the port of the name service, which is started without that home.
fn listens(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn processes_share_it_and_nothing_is_left() {
    let run = tempfile::tempdir().unwrap();
    let play = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["part", "--exact"]).env(PART, "use").env("HOLDFAST_TEST_RUN", run.path());
        command
    };
    let note = run.path().join("rabbitmq").join("server");
    let players: Vec<_> = (0..2).map(|_| play().spawn().unwrap()).collect();
    for mut player in players {
        assert!(player.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(&note).unwrap();
    let folder = text.lines().next().unwrap().to_owned();
    let ports = std::fs::read_to_string(Path::new(&folder).join("ports")).unwrap();
    let epmd: u16 = ports.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!(listens(epmd) && !processes_of(&folder).is_empty());
    std::fs::write(run.path().join("rabbitmq").join("end"), "").unwrap();
    eventually(LONG, "the end of the broker", async || {
        let left = processes_of(&folder);
        if note.exists() || Path::new(&folder).exists() || listens(epmd) || !left.is_empty() {
            return Err(format!("note {}, epmd {}, {left:?}", note.exists(), listens(epmd)));
        }
        Ok(())
    })
    .await
    .unwrap();
}
