//! A site that has been filled for long: readings of old months, rows in every state, an object store that can misbehave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use edge::Config;
use edge::retention::{Error, Report, Retention};
use event::id::EventId;
use jiff::{SignedDuration, Timestamp};
use objects::{Address, Bucket, Style};
use serde_json::json;
use testkit::EmbeddedStore;

use crate::site::{Sender, Site, config};

/// The configuration of a site with a cloud, and a retention that does not rest.
pub(crate) fn delivering(site: &Site) -> Config {
    let pairs = [("SYNC_CLOUD_URL", "http://127.0.0.1:1"), ("SYNC_TOKEN", "t")];
    let mut config = config(site.database.url(), &pairs);
    config.retention.share = 1.0;
    config
}

pub(crate) async fn turn(config: &Config, store: Option<&Bucket>) -> Report {
    take_turn(&Retention::new(config, store.cloned())).await.unwrap()
}

/// A turn, once the lock of the turn before is gone: it goes with its connection, which the server closes in its own time.
pub(crate) async fn take_turn(retention: &Retention) -> Result<Report, Error> {
    loop {
        if let Some(report) = retention.turn().await? {
            return Ok(report);
        }
    }
}

pub(crate) fn days_ago(days: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(24 * days)
}

/// An event of a node as it spools it.
pub(crate) fn event(node: &Sender, kind: &str, at: Timestamp) -> String {
    let payload = match kind {
        "telemetry.ingested" => {
            json!({"metric_type": "temperature", "metric_value": 26.4, "unit": "C"})
        }
        _ => json!({"code": "NH3_HIGH"}),
    };
    json!({"event_id": EventId::mint(), "event_type": kind, "device_id": node.enrolled.device_id,
        "occurred_at": at, "trace_id": "trace-1", "payload": payload})
    .to_string()
}

/// Ingests readings of about one time under these sequences.
pub(crate) async fn fill(
    site: &Site,
    node: &Sender,
    seqs: impl IntoIterator<Item = u64>,
    at: Timestamp,
) {
    let records: Vec<_> = seqs
        .into_iter()
        .map(|seq| {
            let at = at + SignedDuration::from_micros(seq.cast_signed());
            (seq, event(node, "telemetry.ingested", at))
        })
        .collect();
    for part in records.chunks(1_000) {
        site.ingest(&[node.batch(part, &[])]).await;
    }
}

/// As if the aggregates of all readings had been made.
pub(crate) async fn aggregated(site: &Site) {
    site.client().await.execute("DELETE FROM telemetry_dirty", &[]).await.unwrap();
}

/// Puts rows into a state that they came to some days ago.
pub(crate) async fn set_state(site: &Site, state: &str, days: i32, which: &str) -> u64 {
    let also = match state {
        "dlq" => ", failed_at = now(), dlq_reason = 'invalid', lease_token = NULL",
        "failed" => ", failed_at = now(), lease_token = NULL",
        "claimed" | "sending" => {
            ", claimed_by = 'a', claimed_at = now(), lease_expires_at = now(), lease_token = gen_random_uuid()"
        }
        _ => ", failed_at = NULL, dlq_reason = NULL, lease_token = NULL",
    };
    let text = format!(
        "UPDATE sync_outbox SET status = $1, updated_at = now() - make_interval(days => $2){also} WHERE {which}"
    );
    site.client().await.execute(&text, &[&state, &days]).await.unwrap()
}

/// An object store of the kinds that sites have.
pub(crate) struct Store {
    pub(crate) bucket: Bucket,
    _embedded: Option<EmbeddedStore>,
}

/// The embedded store, and one that is not ours.
pub(crate) async fn stores() -> [Store; 2] {
    let foreign = testkit::foreign_bucket().await.unwrap();
    let foreign = Store { bucket: Bucket::new(&foreign).unwrap(), _embedded: None };
    [embedded(EmbeddedStore::start().await.unwrap()), foreign]
}

/// The embedded store with its bucket.
pub(crate) fn embedded(store: EmbeddedStore) -> Store {
    Store { bucket: Bucket::new(store.address()).unwrap(), _embedded: Some(store) }
}

/// The names of all objects.
pub(crate) async fn keys(bucket: &Bucket) -> Vec<String> {
    let page = bucket.list("", None, 1_000).await.unwrap();
    page.objects.into_iter().map(|object| object.key).collect()
}

/// A bucket of this name in a store that nobody serves.
pub(crate) fn away(bucket: &Bucket) -> Bucket {
    Bucket::new(&address("http://127.0.0.1:1", bucket.name())).unwrap()
}

fn address(url: &str, bucket: &str) -> Address {
    Address {
        url: url.parse().unwrap(),
        bucket: bucket.to_owned(),
        region: "us-east-1".to_owned(),
        access_key: "access".to_owned(),
        secret_key: "canary".to_owned(),
        style: Style::Path,
    }
}

#[derive(Default)]
struct Kept {
    objects: Mutex<BTreeMap<String, Bytes>>,
    away: Mutex<bool>,
    corrupts: Mutex<bool>,
    locked: Mutex<Vec<String>>,
}

/// An object store that misbehaves when told, as no real one can be made to. It keeps everything in memory.
pub(crate) struct TestStore {
    pub(crate) bucket: Bucket,
    kept: Arc<Kept>,
}

impl TestStore {
    pub(crate) async fn start() -> TestStore {
        let kept = Arc::new(Kept::default());
        let router =
            axum::Router::new().route("/media/{*key}", any(serve)).with_state(Arc::clone(&kept));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        TestStore { bucket: Bucket::new(&address(&url, "media")).unwrap(), kept }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.kept.objects.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn away(&self, away: bool) {
        *self.kept.away.lock().unwrap() = away;
    }

    /// Refuses to delete this object too, as a store with object locks does; with no name it deletes all again.
    pub(crate) fn keep(&self, key: &str) {
        let mut locked = self.kept.locked.lock().unwrap();
        locked.push(key.to_owned());
        if key.is_empty() {
            locked.clear();
        }
    }

    /// Gives back something else than it was given.
    pub(crate) fn corrupts(&self, corrupts: bool) {
        *self.kept.corrupts.lock().unwrap() = corrupts;
    }
}

async fn serve(
    State(kept): State<Arc<Kept>>,
    Path(key): Path<String>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if *kept.away.lock().unwrap() {
        return StatusCode::FORBIDDEN.into_response();
    }
    let mut objects = kept.objects.lock().unwrap();
    match method {
        Method::PUT if headers.contains_key("if-none-match") && objects.contains_key(&key) => {
            StatusCode::PRECONDITION_FAILED.into_response()
        }
        Method::PUT => {
            objects.insert(key, body);
            StatusCode::OK.into_response()
        }
        Method::GET => match objects.get(&key) {
            Some(_) if *kept.corrupts.lock().unwrap() => "something else".into_response(),
            Some(body) => body.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Method::DELETE if kept.locked.lock().unwrap().contains(&key) => {
            StatusCode::FORBIDDEN.into_response()
        }
        Method::DELETE => {
            objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}
