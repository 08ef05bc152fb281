//! What an operator's commands say of a system that is well, and of one that is not: status, doctor, completions and the manual.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs it in a folder in which nothing is configured.
fn holdfast(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("HOLDFAST_CONFIG")
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A private file, as a role's configuration should be.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    testkit::rig::free_port().unwrap()
}

fn doctor(folder: &Path, arguments: &[&str]) -> (Output, Vec<Value>) {
    let done = holdfast(folder, &[&["doctor", "--json"], arguments].concat());
    let checks = serde_json::from_slice(&done.stdout).unwrap();
    (done, checks)
}

/// The check of this name; there must be one.
fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let found = checks.iter().find(|check| check["check"] == name);
    found.ok_or_else(|| format!("{name} is not among {checks:#?}")).unwrap()
}

#[test]
fn the_page_of_the_command_line_is_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    let now = out(&holdfast(folder.path(), &["manual", "--markdown"]));
    assert!(now.contains("## Exit codes") && now.contains("`holdfast edge nodes`"), "{now}");
    assert!(page == now, "run: holdfast manual --markdown > docs/reference/cli.md");
}

#[test]
fn the_page_of_the_apis_is_what_the_roles_documents_say() {
    let folder = tempfile::tempdir().unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let now = out(&holdfast(folder.path(), &["manual", "--api"]));
    assert!(now.contains("| GET | `/api/v1/ledger/streams` | viewer, operator, admin |"), "{now}");
    assert!(page == now, "run: holdfast manual --api > docs/reference/api.md");
}

#[test]
fn every_command_has_a_man_page_and_every_shell_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    let done = holdfast(folder.path(), &["manual", "--out", "man"]);
    assert!(done.status.success(), "{done:?}");
    let page = std::fs::read_to_string(folder.path().join("man/holdfast-edge-nodes.1")).unwrap();
    assert!(page.contains(".TH holdfast-edge-nodes 1"), "{page}");
    assert!(page.contains("\\-\\-json") && page.contains("Examples"), "{page}");
    let pages = std::fs::read_dir(folder.path().join("man")).unwrap().count();
    let page = out(&holdfast(folder.path(), &["manual", "--markdown"]));
    let headings =
        page.lines().filter(|line| line.starts_with('#') && line.contains(" `holdfast "));
    assert_eq!(pages, headings.count() + 1, "a page each, and one for the program");

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = holdfast(folder.path(), &["completions", shell]);
        assert!(done.status.success(), "{shell}");
        assert!(out(&done).contains("doctor"), "{shell}");
    }
}

#[test]
fn what_is_typed_wrong_is_2_and_what_cannot_be_done_is_1() {
    let folder = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 6] = [
        &["status", "--nope"],
        &["status", "--watch", "0"],
        &["doctor", "barn"],
        &["manual"],
        &["manual", "--markdown", "--out", "x"],
        &["completions", "cmd"],
    ];
    for arguments in wrong {
        let done = holdfast(folder.path(), arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", err(&done));
        assert_eq!(out(&done), "", "{arguments:?}");
    }
    let done = holdfast(folder.path(), &["status"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(err(&done).contains("start one with `holdfast up`"), "{}", err(&done));
    let done = holdfast(folder.path(), &["status", "--data", "."]);
    assert!(err(&done).contains("no `up` has run in ."), "{}", err(&done));
}

#[test]
fn status_shows_what_is_away_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = write(
        folder.path(),
        "edge.toml",
        &format!(
            "[edge]\ndatabase.url = \"postgres://u:tulip@127.0.0.1:1/farm\"\nhttp.listen = \"127.0.0.1:{port}\"\n\
             [cloud]\ndatabase.urll = \"x\"\n"
        ),
    );
    let config = config.to_str().unwrap();
    let done = holdfast(folder.path(), &["status", "--json", "--config", config]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let seen: Value = serde_json::from_slice(&done.stdout).unwrap();
    let away: Vec<_> = seen["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["answers"] == false)
        .map(|part| part["part"].as_str().unwrap())
        .collect();
    assert_eq!(away, ["[cloud]", "edge", "edge database"]);
    let needs = seen["needs"].as_array().unwrap();
    assert_eq!(needs.len(), 3, "{needs:#?}");
    for need in needs {
        assert!(!need["next"].as_str().unwrap().is_empty(), "{need}");
    }
    assert!(needs[0].to_string().contains("did you mean cloud.database.url"), "{}", needs[0]);
    assert!(needs[1].to_string().contains("holdfast edge run --config"), "{}", needs[1]);

    let done = holdfast(folder.path(), &["status", "--config", config]);
    assert_eq!(done.status.code(), Some(1));
    assert!(out(&done).contains("3 things need a person"), "{}", out(&done));
    assert!(!format!("{done:?}{seen}").contains("tulip"), "no secret is shown");
}

#[test]
fn watching_says_since_when_something_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "[edge]\ndatabase.url = \"postgres://127.0.0.1:1/farm\"\nhttp.listen = {listen:?}\n"
    );
    write(folder.path(), "edge.toml", &text);
    let mut watching = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["status", "--watch", "1", "--json", "--config", "edge.toml"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let looks: Vec<Value> =
        lines.take(2).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    watching.kill().unwrap();
    watching.wait().unwrap();
    let since = |look: usize| looks[look]["parts"][0]["away_since"].clone();
    assert_eq!(since(0), Value::Null, "one look cannot know");
    assert_eq!(since(1), looks[0]["at"]);
}

#[tokio::test]
async fn status_names_dead_letters_and_how_they_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("status").await.unwrap();
    let text = format!(
        "[cloud]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\n",
        database.url(),
        free_port()
    );
    let config = write(folder.path(), "cloud.toml", &text);
    let config = config.to_str().unwrap();
    let options = pg::Options::new(database.url());
    cloud::migrate(&options).await.unwrap();
    let client = pg::connect(&options).await.unwrap();
    let look = || {
        let done = holdfast(folder.path(), &["status", "--json", "--config", config]);
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let seen = look();
    assert_eq!((&seen["relay"]["waiting"], &seen["relay"]["dead_letters"]), (&0.into(), &0.into()));
    // Nobody serves the API; that is the one need.
    assert_eq!(seen["needs"].as_array().unwrap().len(), 1, "{seen:#}");

    let insert = "INSERT INTO relay_outbox
            (tenant_id, event_id, event_type, occurred_at, routing_key, envelope, status, failed_at, dlq_reason)
        SELECT gen_random_uuid(), gen_random_uuid(), 'telemetry.reading', now(), 'telemetry.reading', '',
            status, now(), 'unroutable' FROM unnest(ARRAY['dlq', 'dlq', 'pending']) AS status";
    client.execute(insert, &[]).await.unwrap();
    let seen = look();
    assert_eq!((&seen["relay"]["waiting"], &seen["relay"]["dead_letters"]), (&1.into(), &2.into()));
    assert_eq!(seen["dead_letters"]["relay"], 2);
    let need = &seen["needs"][1];
    assert_eq!(need["what"], "the relay gave up 2 events");
    assert!(need["next"].as_str().unwrap().contains("holdfast relay redrive --config"), "{need}");
}

#[test]
fn doctor_names_unknown_keys_open_files_taken_ports_and_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let spool = folder.path().join("nowhere/deep/spool");
    let text = format!(
        "[edge]\ndatabase.url = \"postgres://u:tulip@127.0.0.1:1/farm\"\nhttp.listen = \"127.0.0.1:{port}\"\n\
         mqtt.address = \"mqtt://127.0.0.1:1\"\nmqtt.password = \"daffodil\"\n\
         sync.cloud_url = \"http://127.0.0.1:1\"\nsync.token = \"crocus\"\n\
         [node]\nnode_id = \"barn-7\"\nspool.dir = {spool:?}\n\
         [cloud]\ndatabase.urll = \"x\"\n[egde]\n"
    );
    let file = write(folder.path(), "holdfast.toml", &text);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (done, checks) = doctor(folder.path(), &["--config", "holdfast.toml"]);
    assert_eq!(done.status.code(), Some(1));
    let failed = |name: &str| {
        let check = check(&checks, name);
        assert_eq!(check["state"], "fail", "{check}");
        assert!(!check["advice"].as_str().unwrap().is_empty(), "{check}");
        check["found"].as_str().unwrap().to_owned()
    };
    assert!(failed("section [cloud]").contains("did you mean cloud.database.url"));
    assert!(failed("private holdfast.toml").contains("644"));
    assert!(failed(&format!("port {port}")).contains("what is there is not this role"));
    assert!(failed("database").starts_with("Postgres: "));
    assert!(failed("broker").contains("mqtt://127.0.0.1:1"));
    assert!(failed("cloud").contains("http://127.0.0.1:1"));
    assert!(failed("spool").contains("is not there"));
    let sections = check(&checks, "configuration");
    assert_eq!(sections["state"], "warn");
    assert!(sections["found"].as_str().unwrap().contains("[egde]"), "{sections}");

    let table = holdfast(folder.path(), &["doctor", "--config", "holdfast.toml"]);
    assert!(out(&table).contains("chmod 640"), "{}", out(&table));
    let all = format!("{}{}{}{}", out(&done), err(&done), out(&table), err(&table));
    for secret in ["tulip", "daffodil", "crocus"] {
        assert!(!all.contains(secret), "{all}");
    }
}

#[test]
fn doctor_looks_at_one_role_and_says_when_the_file_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    let text = format!(
        "[node]\nnode_id = \"barn-7\"\nspool.dir = {spool:?}\n[cloud]\ndatabase.urll = \"x\"\n"
    );
    write(folder.path(), "holdfast.toml", &text);
    let (_, checks) = doctor(folder.path(), &["node", "--config", "holdfast.toml"]);
    assert!(checks.iter().all(|check| check["role"] == "node" || check["role"] == "all"));
    assert_eq!(check(&checks, "spool")["state"], "ok");
    assert!(check(&checks, "spool")["found"].as_str().unwrap().contains("a sync takes"));
    assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 0, "nothing is left behind");
    assert!(!checks.iter().any(|check| check["check"] == "section [cloud]"), "{checks:#?}");

    write(folder.path(), "broken.toml", "[edge\n");
    let (done, checks) = doctor(folder.path(), &["--config", "broken.toml"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(check(&checks, "configuration")["found"].as_str().unwrap().contains("is not TOML"));
}

#[tokio::test]
async fn doctor_tells_tables_that_are_missing_there_and_from_the_future() {
    let folder = tempfile::tempdir().unwrap();
    let database = testkit::Database::empty("doctor").await.unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let text = format!("[cloud]\ndatabase.url = {:?}\nhttp.listen = {listen:?}\n", database.url());
    write(folder.path(), "cloud.toml", &text);
    let look = || doctor(folder.path(), &["cloud", "--config", "cloud.toml"]);

    let (done, checks) = look();
    assert!(done.status.success(), "warnings are no failure: {done:?}");
    assert_eq!(check(&checks, "database")["state"], "ok");
    assert_eq!(check(&checks, "database clock")["state"], "ok");
    assert_eq!(check(&checks, "database tables")["found"], "there are none yet");

    let options = pg::Options::new(database.url());
    cloud::migrate(&options).await.unwrap();
    let (_, checks) = look();
    assert_eq!(check(&checks, "database tables")["state"], "ok");
    assert_eq!(check(&checks, "database tokens")["state"], "warn");
    assert!(check(&checks, "database tokens")["advice"].as_str().unwrap().contains("token create"));

    let client = pg::connect(&options).await.unwrap();
    client
        .batch_execute("INSERT INTO cloud_migrations VALUES (9999, 'later', now()::text, '1')")
        .await
        .unwrap();
    let (done, checks) = look();
    assert_eq!(done.status.code(), Some(1));
    let tables = check(&checks, "database tables");
    assert!(tables["found"].as_str().unwrap().contains("does not know"), "{tables}");
}

#[test]
fn doctor_counts_the_days_of_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let made = holdfast(folder.path(), &["scada", "certs", "--out", "certs", "--days", "10"]);
    assert!(made.status.success(), "{made:?}");
    // The days are those of the certificates, and not of the authority that signs them.
    let ending = std::fs::read_dir(folder.path().join("certs"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(|file| {
            file.file_stem().unwrap() != "ca" && file.extension().is_some_and(|end| end == "pem")
        })
        .unwrap();
    let garbage = write(folder.path(), "garbage.pem", "no certificate");
    let text = format!(
        "[node]\nnode_id = \"barn-7\"\nspool.dir = \"spool\"\nmqtt.ca_file = {ending:?}\nmqtt.client_cert = {garbage:?}\n"
    );
    write(folder.path(), "node.toml", &text);
    let (_, checks) = doctor(folder.path(), &["--config", "node.toml"]);
    let days = check(&checks, "certificate node.mqtt.ca_file");
    assert_eq!(days["state"], "warn", "{days}");
    assert!(days["found"].as_str().unwrap().contains("more days"), "{days}");
    assert_eq!(check(&checks, "certificate node.mqtt.client_cert")["state"], "fail");
}
