//! `holdfast schedule …` as an operator meets it: captures go in, days come out, and all of it can be made again.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rig::Process;
use testkit::{EmbeddedStore, eventually};

const SOON: Duration = Duration::from_secs(120);

fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("schedule").args(arguments).arg("--config").arg(config);
    command
}

/// Not on the thread that the object store runs on.
async fn holdfast(config: &Path, arguments: &[&str]) -> Output {
    let mut command = command(config, arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

async fn said(config: &Path, arguments: &[&str]) -> String {
    let out = holdfast(config, arguments).await;
    assert!(out.status.success(), "{arguments:?}: {}", text(&out));
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_go_in_and_days_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("schedule_cli").await.unwrap();
    let store = EmbeddedStore::start().await.unwrap();
    let address = store.address();
    let config = folder.path().join("schedule.toml");
    let section = format!(
        "[schedule]\ndatabase.url = {:?}\nworker.idle_timeout = \"1s\"\nextract.noise_seed = 3\n\
         store.s3_endpoint = {:?}\nstore.s3_bucket = {:?}\nstore.s3_access_key = {:?}\nstore.s3_secret_key = {:?}\n\
         http.listen = \"127.0.0.1:{}\"\n",
        database.url(),
        address.url.as_str(),
        address.bucket,
        address.access_key,
        address.secret_key,
        rig::free_port().unwrap(),
    );
    std::fs::write(&config, section).unwrap();
    let mut worker = command(&config, &["run"]);
    worker.env("WORKER_POLL_SECONDS", "0.05");
    let log = folder.path().join("worker.log");
    let mut worker = Process::spawn(worker, Some(&log)).unwrap();

    let file = folder.path().join("day.json");
    let path = file.to_str().unwrap();
    let day = |times: &str| {
        format!(
            r#"{{"schedule_date": "2026-11-16", "timezone": "Europe/Berlin",
                "entries": [{{"start": "{times}", "title": "Nurse", "location": "Ward 3"}}]}}"#
        )
    };
    std::fs::write(&file, day("8-16")).unwrap();
    let submit = ["submit", "--user", "4711", path, "--wait"];
    let first = said(&config, &submit).await;
    assert!(first.contains("2026-11-16 has version 1"), "{first}");
    let known = said(&config, &submit).await;
    assert!(known.contains("was known so"), "{known}");
    std::fs::write(&file, day("9:30 to 17")).unwrap();
    let json = said(&config, &["submit", "--user", "4711", path, "--wait", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["result"]["version"], 2, "{json}");
    let session = json["session_id"].as_str().unwrap().to_owned();

    let days = said(&config, &["show", "--user", "4711"]).await;
    assert!(days.contains("2026-11-16") && days.contains("Monday"), "{days}");
    let of_day = ["--user", "4711", "--date", "2026-11-16"];
    let with = |word: &'static str, more: &[&'static str]| [&[word][..], &of_day, more].concat();
    let shown = said(&config, &with("show", &[])).await;
    assert!(
        shown.contains("09:30") && shown.contains("ward 3") && shown.contains(&session),
        "{shown}"
    );
    let words = said(&config, &with("diff", &[])).await;
    assert!(words.contains("shift_time_changed") && words.contains("08:00–16:00"), "{words}");
    assert!(words.contains("version 1 to 2"), "{words}");
    let german = said(&config, &with("diff", &["--language", "de", "--json"])).await;
    let german: serde_json::Value = serde_json::from_str(&german).unwrap();
    assert_eq!(german["changes"][0]["types"], serde_json::json!(["shift_time_changed"]));
    assert!(german["changes"][0]["words"].as_str().unwrap().contains("November"), "{german}");

    let again = said(&config, &with("replay", &[])).await;
    assert_eq!(again.matches("the same").count(), 2, "{again}");
    let again = said(&config, &["replay", "--session", &session]).await;
    assert!(again.contains("the same: version 2 of 2026-11-16"), "{again}");

    // What cannot be read says what to do, and the command says that it failed.
    std::fs::write(&file, day("soon")).unwrap();
    let unread = holdfast(&config, &submit).await;
    assert_eq!(unread.status.code(), Some(1));
    assert!(text(&unread).contains("entry 1: the end is missing"), "{}", text(&unread));

    // Somebody changes what is stored: replay says so, and exits with 1.
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            "SET session_replication_role = replica;
             UPDATE schedule_ingest.schedule_version SET payload_hash = 'x' WHERE version = 2",
        )
        .await
        .unwrap();
    let differs = holdfast(&config, &with("replay", &[])).await;
    assert_eq!(differs.status.code(), Some(1), "{}", text(&differs));
    assert!(text(&differs).contains("1 of 2 versions are not the same"), "{}", text(&differs));

    for wrong in [&["replay"][..], &["show"], &["diff", "--user", "1", "--date", "soon"]] {
        assert_eq!(holdfast(&config, wrong).await.status.code(), Some(2), "{wrong:?}");
    }
    let nobody = holdfast(&config, &["diff", "--user", "1", "--date", "2026-11-16"]).await;
    assert!(text(&nobody).contains("user 1 has no version of 2026-11-16"), "{}", text(&nobody));
    worker.term(SOON).await.unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("worker stopped"), "{log}");
    store.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_logs_its_iterations_to_standard_output_and_shows_that_it_is_alive() {
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("schedule_log").await.unwrap();
    let (config, day, beat) = (
        folder.path().join("schedule.toml"),
        folder.path().join("day.json"),
        folder.path().join("alive"),
    );
    let section = format!(
        "[schedule]\ndatabase.url = {:?}\nworker.idle_timeout = \"0s\"\nworker.poll_seconds = 0.05\n\
         worker.heartbeat_file = {beat:?}\nextract.method = \"fixture\"\nextract.fixture_file = {day:?}\n",
        database.url(),
    );
    std::fs::write(&config, section).unwrap();
    let shown = r#"{"schedule_date": "2026-11-16", "entries": [{"start": "8-16", "title": "Nurse"}, {"start": "22-6"}]}"#;
    std::fs::write(&day, shown).unwrap();
    let unseen = holdfast(&config, &["alive"]).await;
    assert_eq!(unseen.status.code(), Some(1));
    assert!(text(&unseen).contains("is a worker started with this file?"), "{}", text(&unseen));

    let (out, errors) = (folder.path().join("out"), folder.path().join("errors"));
    // By a shell, which parts the two; it becomes the worker.
    let mut worker = Command::new("sh");
    worker.args(["-c", "exec \"$0\" schedule run --config \"$1\" >\"$2\" 2>\"$3\""]);
    worker.arg(env!("CARGO_BIN_EXE_holdfast")).arg(&config).arg(&out).arg(&errors);
    let mut worker = Process::spawn(worker, None).unwrap();
    let read = || std::fs::read_to_string(&out).unwrap_or_default();
    let says = async |words: &[&str]| {
        eventually(SOON, "the log says so", async || {
            let text = read();
            let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
            if found { Ok(()) } else { Err(text) }
        })
        .await
        .unwrap();
    };
    says(&["worker started"]).await;
    eventually(SOON, "alive", async || holdfast(&config, &["alive"]).await.status.success())
        .await
        .unwrap();
    let client = database.connect().await.unwrap();
    let open = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
        VALUES (gen_random_uuid(), 4711, 'pending', now())";
    client.batch_execute(open).await.unwrap();
    says(&["INFO", "iteration started", "complete=1"]).await;
    says(&["INFO", "iteration ended", "done=1", "versions=1", "events=2", "notifications=1"]).await;
    // Tens of iterations have passed by now; those that had nothing to do are not told.
    assert_eq!(read().matches("iteration started").count(), 1, "{}", read());

    std::fs::write(&day, "no observation").unwrap();
    client.batch_execute(open).await.unwrap();
    says(&["WARN", "a capture session failed", "UNREADABLE_CAPTURE"]).await;
    says(&["iteration ended", "done=0", "failed=1"]).await;
    client.batch_execute("ALTER SCHEMA schedule_ingest RENAME TO away").await.unwrap();
    says(&["WARN", "iteration failed"]).await;
    client.batch_execute("ALTER SCHEMA away RENAME TO schedule_ingest").await.unwrap();

    // One that hangs is told from one that goes on by the age of its file.
    worker.stop();
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::options().write(true).open(&beat).unwrap().set_modified(old).unwrap();
    let late = holdfast(&config, &["alive"]).await;
    assert!(
        !late.status.success() && text(&late).contains("last looked for work"),
        "{}",
        text(&late)
    );
    worker.cont();
    eventually(SOON, "alive again", async || holdfast(&config, &["alive"]).await.status.success())
        .await
        .unwrap();
    worker.term(SOON).await.unwrap();
    assert!(read().contains("worker stopped"), "{}", read());
    assert_eq!(std::fs::read_to_string(&errors).unwrap(), "", "nothing goes elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intake_is_served_to_whoever_has_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("schedule_serve").await.unwrap();
    let port = rig::free_port().unwrap();
    let config = folder.path().join("schedule.toml");
    let section = format!(
        "[schedule]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{port}\"\n",
        database.url()
    );
    std::fs::write(&config, &section).unwrap();
    let without = holdfast(&config, &["serve"]).await;
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without).contains("schedule.store.s3_endpoint"), "{}", text(&without));

    let store = "store.s3_endpoint = \"http://127.0.0.1:9\"\nstore.s3_access_key = \"a\"\nstore.s3_secret_key = \"b\"\n";
    std::fs::write(&config, section + store).unwrap();
    let log = folder.path().join("serve.log");
    let mut serve = Process::spawn(command(&config, &["serve"]), Some(&log)).unwrap();
    let http = reqwest::Client::new();
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    eventually(SOON, "ready", async || {
        http.get(at("/readyz")).send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await
    .unwrap();
    let mut create = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    create.args(["token", "create", "bot", "--schedule", "--role", "edge", "--all-tenants"]);
    let made = create.arg("--config").arg(&config).output().unwrap();
    let token = String::from_utf8(made.stdout).unwrap();
    let open = |token: &str| {
        http.post(at("/api/v1/sessions")).bearer_auth(token.trim()).body(r#"{"user_id": 7}"#).send()
    };
    assert_eq!(open("hf_wrong").await.unwrap().status(), 401);
    let opened = open(&token).await.unwrap();
    assert_eq!(opened.status(), 201);
    let opened: serde_json::Value = serde_json::from_slice(&opened.bytes().await.unwrap()).unwrap();
    assert_eq!(opened["phase"], "collecting", "{opened}");
    let metrics = http.get(at("/metrics")).send().await.unwrap().text().await.unwrap();
    for line in [
        "holdfast_schedule_requests_total{route=\"open\",outcome=\"ok\"} 1",
        "holdfast_schedule_requests_total{route=\"open\",outcome=\"unauthorized\"} 1",
        "holdfast_schedule_opened_total 1",
        "holdfast_schedule_sessions{state=\"collecting\"} 1",
        "holdfast_http_handshakes_failed_total 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    serve.term(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn photographs_are_read_by_a_command_of_the_operator() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("schedule_command").await.unwrap();
    let store = EmbeddedStore::start().await.unwrap();
    let address = store.address();
    let program = folder.path().join("read");
    // It answers only if it was given the picture that was sent.
    let script = r#"#!/bin/sh
path=$(sed 's/.*"path":"\([^"]*\)".*/\1/')
[ "$(cat "$path")" = "a picture" ] || exit 1
echo '{"schedule_date": "2026-11-17", "confidence": 0.9, "entries": [{"start": "22-6", "title": "Watch"}]}'
"#;
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.path().join("schedule.toml");
    let section = format!(
        "[schedule]\ndatabase.url = {:?}\nworker.idle_timeout = \"1s\"\nworker.poll_seconds = 0.05\n\
         extract.method = \"command\"\nextract.command = [{program:?}]\n\
         store.s3_endpoint = {:?}\nstore.s3_bucket = {:?}\nstore.s3_access_key = {:?}\nstore.s3_secret_key = {:?}\n",
        database.url(),
        address.url.as_str(),
        address.bucket,
        address.access_key,
        address.secret_key,
    );
    std::fs::write(&config, section).unwrap();
    let log = folder.path().join("worker.log");
    let mut worker = Process::spawn(command(&config, &["run"]), Some(&log)).unwrap();
    let picture = folder.path().join("rota.png");
    std::fs::write(&picture, "a picture").unwrap();
    let submit = ["submit", "--user", "-7", picture.to_str().unwrap(), "--wait", "--within", "30s"];
    let read = said(&config, &submit).await;
    assert!(read.contains("2026-11-17 has version 1"), "{read}");
    let shown = said(&config, &["show", "--user", "-7", "--date", "2026-11-17"]).await;
    assert!(shown.contains("06:00 (next day)"), "{shown}");
    worker.term(SOON).await.unwrap();
    store.stop().await.unwrap();
}
