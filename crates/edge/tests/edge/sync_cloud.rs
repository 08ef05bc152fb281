//! A cloud for tests: a real HTTP server that keeps what it gets and can be told to answer anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use edge::config::Sync;
use edge::metrics::Metrics;
use edge::sync::Forwarder;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::site::{Site, config};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn events(&self) -> &[Value] {
        self.body["events"].as_array().unwrap()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.events().iter().map(id).collect()
    }

    pub(crate) fn has(&self, event: &str) -> bool {
        self.ids().iter().any(|id| id == event)
    }

    pub(crate) fn telemetry(&self) -> bool {
        self.events().iter().any(|one| one["event"]["event_type"] == "telemetry.ingested")
    }
}

fn id(element: &Value) -> String {
    element["event"]["event_id"].as_str().unwrap().to_owned()
}

/// What to answer.
pub(crate) enum Say {
    /// Stores what is new and says so.
    Store,
    /// The same, except for these events.
    Reject(Vec<String>),
    /// A status with a body, and nothing is stored.
    Status(u16, Value),
    /// A status with `Retry-After`.
    RetryAfter(u16, &'static str),
    /// Stores, and cuts the connection in the middle of the reply.
    StoreAndCut,
    /// Waits until the door is open, then stores.
    Hold(watch::Receiver<bool>),
    /// A reply that lacks a result.
    Short,
    /// Rejects every tombstone with this code.
    RejectTombstones(&'static str),
}

type Rule = Arc<dyn Fn(&Request) -> Say + Send + std::marker::Sync>;

struct Inner {
    rule: Mutex<Rule>,
    requests: Mutex<Vec<Request>>,
    stored: Mutex<BTreeMap<String, usize>>,
    order: Mutex<Vec<Value>>,
}

#[derive(Clone)]
pub(crate) struct TestCloud {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

impl TestCloud {
    pub(crate) async fn start(
        rule: impl Fn(&Request) -> Say + Send + std::marker::Sync + 'static,
    ) -> TestCloud {
        let inner = Arc::new(Inner {
            rule: Mutex::new(Arc::new(rule)),
            requests: Mutex::default(),
            stored: Mutex::default(),
            order: Mutex::default(),
        });
        let router = axum::Router::new()
            .route("/api/v1/sync/batches", post(receive))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        TestCloud { url, inner }
    }

    pub(crate) fn tell(&self, rule: impl Fn(&Request) -> Say + Send + std::marker::Sync + 'static) {
        *self.inner.rule.lock().unwrap() = Arc::new(rule);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.inner.requests.lock().unwrap().clone()
    }

    /// How often each event was stored for the first time: always once.
    pub(crate) fn stored(&self) -> BTreeSet<String> {
        self.inner.stored.lock().unwrap().keys().cloned().collect()
    }

    /// How often any event came that was stored already.
    pub(crate) fn duplicates(&self) -> usize {
        self.inner.stored.lock().unwrap().values().map(|times| times - 1).sum()
    }

    /// The elements of `events`, in the order in which they were first stored.
    pub(crate) fn order(&self) -> Vec<Value> {
        self.inner.order.lock().unwrap().clone()
    }
}

async fn receive(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let json = zstd::decode_all(&body[..]).unwrap();
    let request = Request { headers, body: serde_json::from_slice(&json).unwrap() };
    inner.requests.lock().unwrap().push(request.clone());
    let rule = Arc::clone(&*inner.rule.lock().unwrap());
    match rule(&request) {
        Say::Store => reply(&request, inner.store(&request, &[])),
        Say::Reject(bad) => reply(&request, inner.store(&request, &bad)),
        Say::Status(status, body) => {
            (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
        }
        Say::RetryAfter(status, after) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", after)]).into_response()
        }
        Say::StoreAndCut => {
            inner.store(&request, &[]);
            let half = Ok::<_, std::io::Error>(Bytes::from_static(b"{\"v\":1,"));
            let cut = Err(std::io::Error::other("cut"));
            Response::new(Body::from_stream(futures_util::stream::iter([half, cut])))
        }
        Say::Hold(mut door) => {
            door.wait_for(|open| *open).await.unwrap();
            reply(&request, inner.store(&request, &[]))
        }
        Say::Short => {
            let mut results = inner.store(&request, &[]);
            results.pop();
            reply(&request, results)
        }
        Say::RejectTombstones(code) => {
            let count = request.body["tombstones"].as_array().unwrap().len();
            let refused: Vec<Value> = (0..count)
                .map(|index| json!({"index": index, "code": code, "field": null, "message": "no"}))
                .collect();
            axum::Json(json!({"v": 1, "batch_id": request.body["batch_id"],
                "results": inner.store(&request, &[]), "tombstones_accepted": 0,
                "tombstones_rejected": refused}))
            .into_response()
        }
    }
}

impl Inner {
    fn store(&self, request: &Request, bad: &[String]) -> Vec<Value> {
        let mut stored = self.stored.lock().unwrap();
        let mut order = self.order.lock().unwrap();
        let each = request.events().iter().enumerate().map(|(index, element)| {
            let id = id(element);
            if bad.contains(&id) {
                return json!({"event_id": id, "index": index, "status": "rejected",
                    "code": "invalid", "field": "payload", "message": "payload is not right"});
            }
            let times = stored.entry(id.clone()).or_default();
            *times += 1;
            if *times == 1 {
                order.push(element.clone());
            }
            let status = if *times == 1 { "accepted" } else { "duplicate" };
            json!({"event_id": id, "status": status})
        });
        each.collect()
    }
}

fn reply(request: &Request, results: Vec<Value>) -> Response {
    axum::Json(json!({"v": 1, "batch_id": request.body["batch_id"], "results": results,
        "tombstones_accepted": request.body["tombstones"].as_array().map_or(0, Vec::len)}))
    .into_response()
}

/// The token of every test; it must not show anywhere.
pub(crate) const TOKEN: &str = "canary-5c2f7c1e";

/// A configuration whose pauses are short.
pub(crate) fn sync_config(site: &Site, url: &str, more: &[(&str, &str)]) -> Sync {
    let mut pairs = vec![
        ("SYNC_CLOUD_URL", url),
        ("SYNC_TOKEN", TOKEN),
        ("SYNC_BACKOFF_BASE", "10ms"),
        ("SYNC_BACKOFF_CAP", "50ms"),
    ];
    pairs.splice(0..0, more.iter().copied());
    config(site.database.url(), &pairs).sync.unwrap()
}

pub(crate) fn forward(site: &Site, config: &Sync, replica: &str) -> Forwarder {
    let metrics = Arc::new(Metrics::new());
    Forwarder::start(&site.config.database, config, &replica.parse().unwrap(), metrics).unwrap()
}
