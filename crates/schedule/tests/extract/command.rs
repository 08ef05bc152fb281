//! The command: its protocol, its limits, and that nothing of it goes on.

use std::path::Path;
use std::time::Duration;

use schedule::extract::command::Command;
use schedule::extract::{Blame, Error, Extractor};
use schedule::observation::Observation;

use crate::request;

/// Long enough on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn shell(script: &str, timeout: Duration) -> Extractor {
    let command = ["sh", "-c", script].map(str::to_owned);
    Extractor::Command(Command::new(&command, timeout, 0.7).unwrap())
}

async fn run(script: &str) -> Result<Observation, Error> {
    shell(script, PATIENCE).extract(&request(Path::new("/pictures"), &["1.jpg", "2.jpg"])).await
}

/// Waits until a process has ended; one that nobody has asked for yet has ended, too.
async fn gone(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    testkit::eventually(PATIENCE, "the process has ended", async || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_question_and_the_answer_are_those_of_the_spec() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let script = format!(
        r#"cat > {0}; env > {0}.env; pwd > {0}.pwd; cat <<END
{{"schedule_date": "2026-11-16", "confidence": 0.93, "more": 1,
 "entries": [{{"start": "8.00", "end": "16:30", "title": "Cleaning", "customer": null}}]}}
END"#,
        asked.display()
    );
    let observation = run(&script).await.unwrap();
    assert_eq!(observation.schedule_date, "2026-11-16");
    assert_eq!(observation.timezone, "Europe/Berlin");
    assert_eq!(observation.confidence, Some(0.93));
    let entry = &observation.entries[0];
    assert_eq!((entry.start.as_str(), entry.title.as_str()), ("8.00", "Cleaning"));
    assert_eq!((entry.location.as_str(), entry.customer.as_str()), ("", ""));

    let question = std::fs::read_to_string(&asked).unwrap();
    let question: serde_json::Value = serde_json::from_str(&question).unwrap();
    let expected = serde_json::json!({
        "session_id": "00000000-0000-0000-0000-000000000000",
        "user_id": 42,
        "timezone": "Europe/Berlin",
        "images": [{"sequence": 1, "path": "/pictures/1.jpg"}, {"sequence": 2, "path": "/pictures/2.jpg"}],
    });
    assert_eq!(question, expected);
    // Cargo sets this for its tests: it stands for a secret of ours.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let environment = std::fs::read_to_string(asked.with_extension("env")).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("CARGO"), "{environment}");
    let place = std::fs::read_to_string(asked.with_extension("pwd")).unwrap();
    assert!(!Path::new(place.trim()).exists(), "its directory is removed");
}

#[tokio::test]
async fn one_that_hangs_is_killed_with_its_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("sleep 600 & echo $$ $! > {}; wait", pids.display());
    let limit = Duration::from_secs(2);
    let error = shell(&script, limit).extract(&request(folder.path(), &["1"])).await.unwrap_err();
    assert_eq!(error.blame(), Blame::Run);
    assert!(error.to_string().contains("took longer than 2s and was killed"), "{error}");
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        gone(pid).await;
    }
}

#[tokio::test]
async fn one_that_is_given_up_goes_too() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("sleep 600 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", pids.display());
    let asked = request(folder.path(), &["1"]);
    let running =
        tokio::spawn(async move { shell(&script, PATIENCE).extract(&asked).await.is_ok() });
    testkit::eventually(PATIENCE, "it has started", async || pids.exists()).await.unwrap();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_failure_says_whose_it_is_and_nothing_of_what_was_written() {
    let answer = r#"{"schedule_date":"2026-11-16","entries":[],"confidence":0.4}"#;
    for (script, blame, says) in [
        ("yes secret", Blame::Run, "wrote more than 1048576 bytes"),
        ("echo secret; echo secret >&2; exit 3", Blame::Run, "exit status: 3"),
        ("kill -9 $$", Blame::Run, "signal: 9"),
        ("echo secret", Blame::Run, "is no JSON object"),
        ("true", Blame::Run, "is no JSON object"),
        (&format!("echo '{answer}'"), Blame::Images, "confidence of 0.40, and 0.70 is needed"),
    ] {
        let error = run(script).await.unwrap_err();
        assert_eq!(error.blame(), blame, "{script}: {error}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains("secret"), "{script}: {text}");
        if let Error::Failed { stderr, .. } = &error {
            assert_eq!(stderr.contains("secret"), script.contains(">&2"), "{script}");
        }
    }
    let missing = Command::new(&["/no/such/program".to_owned()], PATIENCE, 0.7).unwrap();
    let asked = request(Path::new("/pictures"), &["1.jpg"]);
    let error = Extractor::Command(missing).extract(&asked).await.unwrap_err();
    assert_eq!(error.blame(), Blame::Setup);
    assert!(error.to_string().contains("Check its path"), "{error}");
    assert_eq!(Command::new(&[], PATIENCE, 0.7).unwrap_err().blame(), Blame::Setup);
}

#[tokio::test]
async fn a_session_without_images_is_refused() {
    let asked = request(Path::new("/pictures"), &[]);
    assert!(matches!(shell("true", PATIENCE).extract(&asked).await, Err(Error::NoImages)));
}
