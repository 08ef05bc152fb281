//! Child processes and ports.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::{Process, free_port};

const LONG: Duration = Duration::from_secs(30);

fn sleeper() -> Process {
    let mut command = Command::new("sleep");
    command.arg("600");
    Process::spawn(command, None).unwrap()
}

fn state(pid: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn kill_ends_it() {
    let mut process = sleeper();
    assert!(process.is_running());
    assert_eq!(process.kill().await.unwrap().signal(), Some(9));
    assert!(!process.is_running());
    // Once more is no error, and reaches nobody.
    process.kill().await.unwrap();
}

#[tokio::test]
async fn term_asks_first_and_then_kills() {
    let mut process = sleeper();
    assert_eq!(process.term(LONG).await.unwrap().signal(), Some(15));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"]);
    let mut process = Process::spawn(command, Some(&log)).unwrap();
    wait_for("the trap", || std::fs::read_to_string(&log).is_ok_and(|t| t.contains("deaf"))).await;
    assert_eq!(process.term(Duration::from_millis(100)).await.unwrap().signal(), Some(9));
}

#[tokio::test]
async fn stop_halts_and_cont_goes_on() {
    let mut process = sleeper();
    let pid = process.pid();
    process.stop();
    wait_for("the halt", || state(pid) == Some('T')).await;
    process.cont();
    wait_for("the going on", || state(pid) == Some('S')).await;
}

#[tokio::test]
async fn drop_kills_it() {
    let process = sleeper();
    let pid = process.pid();
    drop(process);
    wait_for("the end", || matches!(state(pid), None | Some('Z'))).await;
}

#[tokio::test]
async fn output_and_environment_are_as_given() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "echo $WORD; echo error >&2; cat; exit 3"]).env("WORD", "given");
    let mut process = Process::spawn(command, Some(&log)).unwrap();
    assert_eq!(process.wait().await.unwrap().code(), Some(3));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "given\nerror\n");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let error = Process::spawn(Command::new("/no/such/program"), None).unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn a_free_port_can_be_listened_on_and_is_given_once() {
    let port = free_port().unwrap();
    drop(std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    // Nobody listens on any of them: what keeps them apart is that they were given.
    let mut given: Vec<u16> = (0..600).map(|_| free_port().unwrap()).chain([port]).collect();
    given.sort_unstable();
    assert!(given.windows(2).all(|two| two[0] != two[1]), "{given:?}");
}

#[tokio::test]
async fn an_orphan_is_ended_only_if_it_is_the_one_that_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let mut process = sleeper();
    std::fs::write(&note, process.pid().to_string()).unwrap();
    // A parent goes on while its child is still becoming the program, and has no arguments yet.
    let arguments = format!("/proc/{}/cmdline", process.pid());
    wait_for("its arguments", || std::fs::read(&arguments).is_ok_and(|line| !line.is_empty()))
        .await;

    Process::end_orphan(&note, "another".as_ref()).await.unwrap();
    assert!(process.is_running(), "its command line does not have the argument");
    Process::end_orphan(&folder.path().join("none"), "600".as_ref()).await.unwrap();
    assert!(process.is_running());

    // A halted one ends too.
    process.stop();
    Process::end_orphan(&note, "600".as_ref()).await.unwrap();
    assert!(!process.is_running());
}
