//! The picture: what it shows, that it comes by itself, and that one upstream's absence breaks nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use event::wire::{Clock, Report};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use crate::ground::{Browser, Ground, LONG, code};

/// Reads server-sent events.
struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    async fn open(browser: &Browser) -> Events {
        let response = browser.request(Method::GET, "/api/v1/stream").send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { response, text: String::new() }
    }

    /// The next event: its name and its data. None at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
                };
                if let (Some(name), Some(data)) = (field("event:"), field("data:")) {
                    return Some((name, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let part = tokio::time::timeout(LONG, self.response.chunk()).await.unwrap().ok()??;
            self.text.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    async fn until(&mut self, holds: impl Fn(&str, &Value) -> bool) -> Value {
        let found = async {
            while let Some((name, data)) = self.next().await {
                if holds(&name, &data) {
                    return Some(data);
                }
            }
            None
        };
        tokio::time::timeout(LONG, found).await.expect("it does not come").expect("it ended")
    }
}

fn stage<'a>(picture: &'a Value, id: &str) -> &'a Value {
    let stages = picture["flow"]["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["id"] == id).unwrap()
}

/// A node's clock may show anything: only what it says about itself counts, and what has passed here since.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_s_oldest_record_has_an_age_that_grows_while_it_is_silent() {
    let ground = Ground::new("console_oldest").await;
    let operator = ground.operator().await;
    let report = |backlog: u64, oldest_at: Option<&str>| Report {
        head: 12,
        acked: 12 - backlog,
        oldest: 1,
        bytes: 4096,
        backlog,
        drops: 0,
        gaps: 0,
        clock: Clock::Unset,
        at: "1970-01-01T00:10:00Z".parse().unwrap(),
        free_bytes: None,
        oldest_at: oldest_at.map(|at| at.parse().unwrap()),
        version: "0.1.0".to_owned(),
        written_bytes_per_day: None,
        ignored_acks: Default::default(),
        ignored_commands: Default::default(),
    };
    ground.says(&ground.hill, report(0, None)).await;
    ground.says(&ground.barn, report(12, Some("1970-01-01T00:05:00Z"))).await;
    let look = async || {
        let nodes = operator.see("/api/v1/nodes").await;
        let picture = operator.see("/api/v1/picture").await;
        let rows = nodes["items"].as_array().unwrap().clone();
        let age = |name: &str| {
            let row = rows.iter().find(|row| row["node_id"] == name);
            row.and_then(|row| row["oldest_age_s"].as_f64())
        };
        let stage = stage(&picture, "node:north").clone();
        (age("barn-1"), age("hill-1"), stage)
    };
    let first = testkit::eventually(LONG, "the node is heard", async || {
        let (barn, hill, stage) = look().await;
        assert_eq!(hill, None, "it holds nothing");
        assert!(!stage["detail"].as_str().unwrap().contains("at least"), "{stage}");
        // The two are asked for one after the other.
        let both = stage["oldest_age_s"].as_f64().zip(barn);
        both.filter(|(stage, barn)| (stage - barn).abs() < 5.0).map(|(_, barn)| barn)
    });
    let first = first.await.unwrap();
    assert!((300.0..360.0).contains(&first), "five minutes by its own clock: {first}");
    // The node falls silent: what it holds is what it said then, and it waits on.
    let client = ground.edge_database.connect().await.unwrap();
    let silent = "UPDATE nodes SET last_rx_at = last_rx_at - interval '1 h',
        status_at = status_at - interval '1 h' WHERE node_id = 'barn-1'";
    assert_eq!(client.execute(silent, &[]).await.unwrap(), 1);
    let stage = testkit::eventually(LONG, "its silence is seen", async || {
        let (barn, _, stage) = look().await;
        barn.is_some_and(|age| age > first + 3_599.0).then_some(stage)
    });
    let stage = stage.await.unwrap();
    let detail = stage["detail"].as_str().unwrap();
    assert!(detail.ends_with("hold at least 12, as of 60 min ago"), "{detail}");
    let then = stage["oldest_age_s"].as_f64().unwrap();
    testkit::eventually(LONG, "the age grows", async || {
        look().await.0.is_some_and(|age| age > then)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_follows_is_told_and_an_absence_breaks_nothing() {
    let ground = Ground::new("console_stream").await;
    let operator = ground.operator().await;
    let mut events = Events::open(&operator).await;
    let (first, picture) = events.next().await.unwrap();
    assert_eq!(first, "picture", "at once");
    assert_eq!(picture["upstreams"].as_array().unwrap().len(), 3);
    ground.ingest(&ground.barn, 1..=50).await;
    let change = events
        .until(|name, data| name == "nodes" && data["changed"].to_string().contains("\"online\""));
    assert_eq!(change.await["changed"][0]["node_id"], "barn-1");
    let picture =
        events.until(|name, data| name == "picture" && data["totals"]["in_cloud"] == 50).await;
    assert_eq!(picture["nodes"]["total"], 2);
    assert!(picture["node_list"].is_null(), "nodes are listed by their own route");
    assert_eq!(stage(&picture, "edge:north")["state"], "ok");
    for id in ["node:north", "cloud", "bus", "store", "historian"] {
        assert_ne!(stage(&picture, id)["state"], "broken", "{id}");
    }
    let uplink = picture["flow"]["links"].as_array().unwrap();
    let uplink = uplink.iter().find(|link| link["id"] == "uplink:north").unwrap();
    assert_eq!((&uplink["state"], &uplink["breaker"]), (&json!("up"), &json!("closed")));
    assert_eq!(uplink["cuttable"], false);

    let Ground { edge, cloud, historian, console: _console, .. } = ground;
    edge.stop().await;
    let away = events
        .until(|name, data| {
            let away = |one: &Value| one["id"] == "site:north" && one["state"] == "away";
            name == "picture" && data["upstreams"].as_array().unwrap().iter().any(away)
        })
        .await;
    assert_eq!(stage(&away, "edge:north")["state"], "unknown");
    assert_eq!(away["nodes"]["unknown"], 2, "nobody knows how they are");
    assert_eq!(away["totals"]["in_cloud"], 50, "the cloud is still there");
    for path in ["/api/v1/nodes", "/api/v1/queues", "/api/v1/alerts", "/api/v1/explore/series"] {
        operator.see(path).await;
    }
    let account = operator.see("/api/v1/conservation").await;
    assert!(account["notes"][0].as_str().unwrap().starts_with("north was not asked"));
    cloud.stop().await;
    historian.stop().await;
    assert_eq!(code(operator.get("/api/v1/alarms").await).await, (503, "away".to_owned()));
    testkit::eventually(LONG, "all are away", async || {
        let picture = operator.see("/api/v1/picture").await;
        picture["upstreams"].as_array().unwrap().iter().all(|one| one["state"] == "away")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_session() {
    let ground = Ground::new("console_bye").await;
    let operator = ground.operator().await;
    let mut events = Events::open(&operator).await;
    assert_eq!(events.next().await.unwrap().0, "picture");
    assert_eq!(operator.post("/api/v1/sign-out", json!({})).await.status(), 204);
    events.until(|name, _| name == "bye").await;
    assert!(events.next().await.is_none(), "nothing comes after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_listed_ordered_and_remembered() {
    let ground = Ground::new("console_nodes").await;
    ground.ingest(&ground.barn, 1..=10).await;
    let operator = ground.operator().await;
    testkit::eventually(LONG, "the node is online", async || {
        operator.see("/api/v1/nodes?liveness=online").await["total"] == 1
    })
    .await
    .unwrap();
    let ids = async |query: &str| -> Vec<String> {
        let list = operator.see(&format!("/api/v1/nodes?{query}")).await;
        let items = list["items"].as_array().unwrap().iter();
        items.map(|row| row["node_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("").await, ["barn-1", "hill-1"]);
    assert_eq!(ids("order=desc&limit=1").await, ["hill-1"]);
    assert_eq!(ids("q=HILL").await, ["hill-1"], "by its label");
    assert_eq!(ids("sort=rx_age_s").await, ["barn-1", "hill-1"], "what is not known is last");
    assert!(ids("site=south").await.is_empty());
    for wrong in ["sort=nothing", "limit=0", "limit=2000", "more=1", "liveness=dead", "order=up"] {
        let refused = operator.get(&format!("/api/v1/nodes?{wrong}")).await;
        assert_eq!(code(refused).await, (400, "malformed".to_owned()), "{wrong}");
    }
    let page = testkit::eventually(LONG, "it is remembered", async || {
        let page = operator.see("/api/v1/nodes/north/barn-1").await;
        (!page["history"]["at"].as_array().unwrap().is_empty()).then_some(page)
    });
    let page = page.await.unwrap();
    assert_eq!((&page["received"], &page["epoch"]), (&json!(10), &json!(ground.barn.epoch)));
    assert_eq!(page["node"]["stored"], 10);
    let history = operator.see("/api/v1/flow/history?seconds=30").await;
    let ticks = history["at"].as_array().unwrap().len();
    assert!(ticks > 0 && ticks <= 30);
    for series in history["series"].as_array().unwrap() {
        assert_eq!(series["held"].as_array().unwrap().len(), ticks, "{series}");
    }
}

/// The control socket of an `up`, as docs/spec/console.md has it.
fn control(path: &std::path::Path) -> Arc<Mutex<BTreeMap<String, String>>> {
    let names = ["barn-1", "hill-1", "cloud"].map(|name| (name.to_owned(), "ok".to_owned()));
    let states = Arc::new(Mutex::new(BTreeMap::from(names)));
    let (listener, shared) = (UnixListener::bind(path).unwrap(), Arc::clone(&states));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, mut writer) = stream.into_split();
            let mut line = String::new();
            BufReader::new(reader).read_line(&mut line).await.unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let reply = {
                let mut states = shared.lock().unwrap();
                if request["states"] == true {
                    json!({"states": *states})
                } else {
                    let word = if request["set"] == "cut" { "CUT" } else { "ok" };
                    for name in request["nodes"].as_array().unwrap() {
                        states.insert(name.as_str().unwrap().to_owned(), word.to_owned());
                    }
                    json!({"changed": request["nodes"]})
                }
            };
            writer.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
        }
    });
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_cut_and_restored_where_they_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("up.sock");
    let states = control(&socket);
    let settings = [("UP_CONTROL", socket.to_str().unwrap())];
    let ground = Ground::with("console_links", &settings).await;
    let operator = ground.operator().await;
    testkit::eventually(LONG, "the cables are known", async || {
        let list = operator.see("/api/v1/nodes").await;
        list["items"].as_array().unwrap().iter().filter(|row| row["cuttable"] == true).count() == 2
    })
    .await
    .unwrap();
    let act = async |path: &str| operator.post(&format!("/api/v1/links/{path}"), json!({})).await;
    let cut = act("uplink:north/cut").await;
    assert_eq!(cut.json::<Value>().await.unwrap()["changed"], json!(["cloud"]));
    assert_eq!(act("node:north:barn-1/cut").await.status(), 200);
    testkit::eventually(LONG, "the cut is seen", async || {
        let picture = operator.see("/api/v1/picture").await;
        let links = picture["flow"]["links"].as_array().unwrap();
        let nodes = operator.see("/api/v1/nodes").await;
        links.iter().any(|link| link["id"] == "uplink:north" && link["cut"] == true)
            && nodes["items"][0]["cut"] == true
    })
    .await
    .unwrap();
    assert_eq!(act("nodes:north/restore").await.status(), 200);
    assert_eq!(act("uplink:north/restore").await.status(), 200);
    assert!(states.lock().unwrap().values().all(|state| state == "ok"));
    for path in ["relay/cut", "uplink:south/cut", "node:north:nobody/cut", "nodes:north/burn"] {
        assert_eq!(act(path).await.status().as_u16(), 404, "{path}");
    }
}
