//! `holdfast doctor console` asks everybody whom the page asks: here a real SCADA node and real schedules.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::net::SocketAddr;
use std::path::Path;

use api::tokens::{NewToken, Role, Tenants};
use schedule::intake::{Intake, Limits, serve};
use serde_json::Value;
use testkit::{Database, EmbeddedStore};

async fn doctor(folder: &Path) -> Vec<Value> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.current_dir(folder).env_clear().args([
        "doctor",
        "console",
        "--json",
        "--config",
        "console.toml",
    ]);
    // Those that it asks run on this thread's runtime and have to answer meanwhile.
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    serde_json::from_slice(&done.stdout).unwrap()
}

#[track_caller]
fn is(checks: &[Value], name: &str, state: &str, said: &str) {
    let named = |check: &&Value| check["check"] == name && check.to_string().contains(said);
    let check = checks.iter().find(named);
    assert!(check.is_some_and(|check| check["state"] == state), "{name} {said}: {checks:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scada_nodes_and_schedules_of_the_console_are_asked_as_well() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let path = |name: &str| at.join(name).to_str().unwrap().to_owned();
    let databases = ["doctor_press", "doctor_plant", "doctor_rota", "doctor_page"];
    let [press, plant, rota, page] =
        databases.map(async |name| Database::empty(name).await.unwrap());
    let (press, plant, rota, page) = tokio::join!(press, plant, rota, page);
    let options = |database: &Database| pg::Options::new(database.url());
    schedule::migration::migrate(&options(&rota)).await.unwrap();
    cloud::migrate(&options(&page)).await.unwrap();

    let of = |database: &Database, more: &[(&'static str, String)]| {
        let own = [
            ("DATABASE_URL", database.url().to_owned()),
            ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
            ("BUS", "inline".to_owned()),
        ];
        own.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>()
    };
    let find = |prefix: &'static str, pairs: Vec<(&'static str, String)>| {
        move |name: &str| {
            let key = name.strip_prefix(prefix)?;
            Some(pairs.iter().find(|(known, _)| *known == key)?.1.clone())
        }
    };
    let spool = [("SPOOL_DIR", path("spool")), ("SPOOL_FREE_SPACE_RESERVE", "0".to_owned())];
    let nodes = find("HOLDFAST_PRODUCER_", of(&press, &spool));
    let nodes = scada::producer::Config::load(None, nodes).unwrap();
    let keeps = find("HOLDFAST_HISTORIAN_", of(&plant, &[]));
    let keeps = scada::historian::Config::load(None, keeps).unwrap();
    let line = scada::line::Line::start(nodes, keeps).await.unwrap();

    let store = EmbeddedStore::start().await.unwrap();
    let pool = pg::Pool::new(&options(&rota)).unwrap();
    let intake = Intake::new(pool, store.address(), store.address(), Limits::default()).unwrap();
    let listener = api::serve::Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
    let schedules = listener.address();
    let metrics = schedule::metrics::Metrics::new(&options(&rota)).unwrap();
    tokio::spawn(serve(listener, intake, metrics, std::future::pending()));

    let file = path("rota.token");
    std::fs::write(&file, "hf_nobody-knows-this-one").unwrap();
    let text = format!(
        "[console]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\n\
         producers = [\"press=http://{}\"]\nschedule.url = \"http://{schedules}\"\nschedule.token_file = {file:?}\n",
        page.url(),
        testkit::rig::free_port().unwrap(),
        line.producer.http(),
    );
    std::fs::write(at.join("console.toml"), text).unwrap();
    let checks = doctor(at).await;
    let node = format!("http://{}", line.producer.http());
    is(&checks, "upstream", "ok", &node);
    is(&checks, "upstream", "ok", &format!("http://{schedules}"));
    is(&checks, "token for press", "ok", "lets us in");
    is(&checks, "token for schedule", "fail", "--role viewer");

    let new = NewToken {
        name: "console".to_owned(),
        role: Role::Viewer,
        tenants: Tenants::All,
        expires_at: None,
    };
    let client = pg::connect(&options(&rota)).await.unwrap();
    let token = api::tokens::create(&client, &new).await.unwrap().1;
    std::fs::write(&file, token.expose()).unwrap();
    line.stop().await;
    let checks = doctor(at).await;
    is(&checks, "token for schedule", "ok", "lets us in");
    is(&checks, "upstream", "fail", &node);
    is(&checks, "token for press", "warn", "no connection");
}
