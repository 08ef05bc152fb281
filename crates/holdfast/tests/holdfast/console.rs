//! The console of `holdfast up`, as a person uses it: sign in, watch a cut link fill the spool, put it back and see it drain.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use rig::Process;
use serde_json::{Value, json};
use testkit::eventually;

const SOON: Duration = Duration::from_secs(120);

struct Person {
    client: Client,
    base: String,
    cookie: String,
}

impl Person {
    /// Signs in with the token in a file of the data folder, once the console is there.
    async fn arrive(data: &Path, role: &str) -> Person {
        let file = data.join("console/console.toml");
        let base = eventually(SOON, "the console is configured", async || {
            let config = console::Config::load(Some(&file), |_| None).ok()?;
            Some(format!("http://{}", config.listen))
        });
        let base = base.await.unwrap();
        let token = std::fs::read_to_string(data.join(format!("console/{role}.token"))).unwrap();
        let client = Client::new();
        let cookie = eventually(SOON, "the console lets somebody in", async || {
            let request = client.post(format!("{base}/api/v1/sign-in"));
            let request = request.header("x-holdfast-csrf", "1").header("origin", &base);
            let answer = request.json(&json!({"token": token.trim()})).send().await.ok()?;
            let set = answer.headers().get("set-cookie")?.to_str().ok()?.to_owned();
            Some(set.split(';').next()?.to_owned())
        });
        Person { cookie: cookie.await.unwrap(), client, base }
    }

    async fn ask(&self, method: Method, path: &str) -> (StatusCode, Value) {
        let request = self.client.request(method, format!("{}/api/v1{path}", self.base));
        let request = request.header("cookie", &self.cookie).header("origin", &self.base);
        let answer = request.header("x-holdfast-csrf", "1").send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    async fn see(&self, path: &str) -> Value {
        let (status, seen) = self.ask(Method::GET, path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {seen}");
        seen
    }

    /// Waits until the picture is so.
    async fn wait(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, async || {
            let picture = self.see("/picture").await;
            if holds(&picture) { Ok(Some(picture)) } else { Err(picture["totals"].to_string()) }
        })
        .await
        .unwrap()
    }
}

fn link<'a>(picture: &'a Value, id: &str) -> &'a Value {
    let links = picture["flow"]["links"].as_array().unwrap();
    links.iter().find(|link| link["id"] == id).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_cuts_a_link_and_watches_nothing_get_lost() {
    // The client wants a provider, also where no TLS is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    // The server's own user must be able to enter.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["up", "--nodes", "2", "--every", "100ms", "--data"]).arg(&data);
    let log = data.join("up.log");
    let mut up = Process::spawn(command, Some(&log)).unwrap();
    let operator = Person::arrive(&data, "operator").await;
    let viewer = Person::arrive(&data, "viewer").await;
    operator
        .wait("everything is there and moves", |picture| {
            let here = |one: &Value| one["state"] == "here";
            picture["upstreams"].as_array().unwrap().iter().all(here)
                && picture["nodes"]["online"] == 2
                && picture["totals"]["in_cloud"].as_u64() > Some(20)
        })
        .await;
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains(&format!("The console: {}/", operator.base)), "{said}");

    let (status, _) = viewer.ask(Method::POST, "/links/uplink:up/cut").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, cut) = operator.ask(Method::POST, "/links/uplink:up/cut").await;
    assert_eq!((status, &cut["changed"]), (StatusCode::OK, &json!(["cloud"])));
    let (status, _) = operator.ask(Method::POST, "/links/node:up:barn-1/cut").await;
    assert_eq!(status, StatusCode::OK);
    let full = viewer
        .wait("the outbox fills and the node falls silent", |picture| {
            let uplink = link(picture, "uplink:up");
            uplink["cut"] == true
                && uplink["state"] == "down"
                && uplink["held"].as_u64() > Some(20)
                && picture["nodes"]["late"] == 1
        })
        .await;
    let nodes = viewer.see("/nodes?liveness=late").await;
    let late = &nodes["items"][0];
    assert_eq!((&late["node_id"], &late["cut"]), (&json!("barn-1"), &json!(true)), "{nodes}");
    for rule in ["breaker_open", "node_silent"] {
        eventually(SOON, rule, async || viewer.see("/alerts").await.to_string().contains(rule))
            .await
            .unwrap();
    }
    for path in ["/links/uplink:up/restore", "/links/nodes:up/restore"] {
        assert_eq!(operator.ask(Method::POST, path).await.0, StatusCode::OK, "{path}");
    }
    let made = full["totals"]["produced"].as_u64();
    operator
        .wait("everything that was held arrives", |picture| {
            link(picture, "uplink:up")["state"] == "up"
                && picture["nodes"]["online"] == 2
                && picture["totals"]["in_cloud"].as_u64() >= made
        })
        .await;
    let account = operator.see("/conservation").await;
    assert_eq!((&account["totals"]["lost"], &account["totals"]["missing"]), (&json!(0), &json!(0)));
    assert!(account["total"].as_u64() >= Some(2), "{account}");
    up.term(SOON).await.unwrap();
}
