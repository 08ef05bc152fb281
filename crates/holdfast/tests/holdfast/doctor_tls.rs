//! `doctor` and `status` of roles that serve TLS, and of the tokens that roles show each other.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use api::tokens::{NewToken, Role, Tenants};
use cloud::Cloud;
use serde_json::Value;
use testkit::rig::certificates::Authority;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn holdfast(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(arguments).current_dir(folder).env_remove("HOLDFAST_CONFIG");
    // The cloud of the test runs on this thread's runtime and has to answer meanwhile.
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The checks of a role by their names, each with its state and what was found.
async fn doctor(folder: &Path, role: &str, file: &str) -> Vec<Value> {
    let done = holdfast(folder, &["doctor", role, "--json", "--config", file]).await;
    serde_json::from_slice(&done.stdout).unwrap()
}

#[track_caller]
fn is(checks: &[Value], name: &str, state: &str, said: &str) {
    let found = checks.iter().find(|check| check["check"] == name);
    let check = found.ok_or_else(|| format!("{name} is not among {checks:#?}")).unwrap();
    let words = format!("{}: {}", check["found"], check["advice"]);
    assert!(check["state"] == state && words.contains(said), "{check:#}");
}

fn write(file: PathBuf, text: &str) -> PathBuf {
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

async fn token(database: &pg::Options, role: Role) -> String {
    let client = pg::connect(database).await.unwrap();
    let new =
        NewToken { name: "a token".to_owned(), role, tenants: Tenants::All, expires_at: None };
    api::tokens::create(&client, &new).await.unwrap().1.expose().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_tried_certificates_examined_and_roles_asked_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let authority = Authority::make(at, "ca").unwrap();
    let served = authority.issue("cloud", &[], SystemTime::now() + 90 * DAY + DAY / 2).unwrap();
    let ending = authority.issue("ending", &[], SystemTime::now() + 5 * DAY + DAY / 2).unwrap();
    let database = testkit::Database::empty("doctor_tls").await.unwrap();
    let port = testkit::rig::free_port().unwrap();
    let cloud_file = write(
        at.join("cloud.toml"),
        &format!(
            "[cloud]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{port}\"\ntls.cert = {:?}\ntls.key = {:?}\n",
            database.url(),
            served.certificate,
            served.key
        ),
    );
    let config = cloud::Config::load(Some(&cloud_file), |_| None).unwrap();
    let options = config.database.clone();
    let cloud = Cloud::start(config).await.unwrap();
    let ca = authority.certificate();
    let secret = write(at.join("site.token"), "hf_nobody-knows-this-one");
    let edge = |cert: &Path, key: &Path| {
        let text = format!(
            "[edge]\ndatabase.url = \"postgres://127.0.0.1:1/farm\"\nhttp.listen = \"127.0.0.1:{}\"\n\
             tls.cert = {cert:?}\ntls.key = {key:?}\n\
             sync.cloud_url = \"https://127.0.0.1:{port}\"\nsync.ca_file = {ca:?}\nsync.token_file = {secret:?}\n",
            testkit::rig::free_port().unwrap(),
        );
        write(at.join("edge.toml"), &text);
    };

    edge(&ending.certificate, &served.key);
    let checks = doctor(at, "edge", "edge.toml").await;
    is(&checks, "cloud", "ok", "is ready");
    is(&checks, "cloud token", "fail", "401");
    is(&checks, "certificate", "fail", "is not the key of tls.cert");
    write(secret.clone(), &token(&options, Role::Viewer).await);
    edge(&ending.certificate, &ending.key);
    let checks = doctor(at, "edge", "edge.toml").await;
    is(&checks, "cloud token", "fail", "403");
    is(&checks, "certificate", "warn", "ends in 5 days");
    write(secret.clone(), &token(&options, Role::Edge).await);
    let checks = doctor(at, "edge", "edge.toml").await;
    is(&checks, "cloud token", "ok", "takes batches with it");
    is(&checks, "private ending.key", "ok", "mode 600");

    let checks = doctor(at, "cloud", "cloud.toml").await;
    is(&checks, "certificate", "ok", "valid for 90 days");
    is(&checks, &format!("port {port}"), "ok", "the role answers");
    let done = holdfast(at, &["status", "--json", "--config", "cloud.toml"]).await;
    let seen: Value = serde_json::from_slice(&done.stdout).unwrap();
    let parts = seen["parts"].as_array().unwrap();
    assert!(parts.iter().any(|one| one["part"] == "cloud" && one["answers"] == true), "{seen:#}");

    let ask = write(at.join("ask.token"), "hf_nobody-knows-this-one-either");
    let text = format!(
        "[console]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\nca_file = {ca:?}\n\
         cloud.url = \"https://127.0.0.1:{port}\"\ncloud.token_file = {ask:?}\n",
        database.url(),
        testkit::rig::free_port().unwrap(),
    );
    write(at.join("console.toml"), &text);
    let checks = doctor(at, "console", "console.toml").await;
    is(&checks, "database tables", "ok", "all there");
    is(&checks, "database tokens", "ok", "1 that work");
    is(&checks, "upstream", "ok", "is ready");
    is(&checks, "token for cloud", "fail", "401");
    write(ask, &token(&options, Role::Operator).await);
    let checks = doctor(at, "console", "console.toml").await;
    is(&checks, "token for cloud", "ok", "lets us in");
    assert!(!format!("{checks:?}").contains("hf_"), "{checks:#?}");
    cloud.stop().await;
}
