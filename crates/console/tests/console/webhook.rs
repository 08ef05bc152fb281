//! Alerts to a webhook: a real listener that first fails, then takes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use api::signature::sign;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use console::Console;
use serde_json::Value;
use settings::Secret;
use tokio::net::TcpListener;

use crate::ground::LONG;

const SECRET: &str = "daffodil";

#[derive(Clone, Default)]
struct Receiver {
    /// Answers before the first that is good.
    failing: Arc<Mutex<Vec<StatusCode>>>,
    heard: Arc<Mutex<Vec<(StatusCode, HeaderMap, Bytes)>>>,
}

impl Receiver {
    async fn start(failing: &[StatusCode]) -> (Receiver, String) {
        let receiver = Receiver::default();
        receiver.failing.lock().unwrap().extend(failing.iter().rev());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks/tulip", listener.local_addr().unwrap());
        let router = Router::new().route("/hooks/tulip", post(hear)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, url)
    }

    /// What was taken, in order: state, rule and id.
    fn taken(&self) -> Vec<(String, String, String)> {
        let heard = self.heard.lock().unwrap();
        let taken = heard.iter().filter(|(status, _, _)| status.is_success());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        taken
            .map(|(_, _, body)| {
                let news: Value = serde_json::from_slice(body).unwrap();
                (text(&news["state"]), text(&news["alert"]["rule"]), text(&news["id"]))
            })
            .collect()
    }
}

async fn hear(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let status = receiver.failing.lock().unwrap().pop().unwrap_or(StatusCode::NO_CONTENT);
    receiver.heard.lock().unwrap().push((status, headers, body));
    status
}

/// A console of one historian, which is there or not.
async fn console(historian: &str, webhook: &str, state_file: &std::path::Path) -> Console {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pairs = [
        ("DATABASE_URL", "postgres://127.0.0.1:9/nowhere".to_owned()),
        ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("HISTORIAN_URL", historian.to_owned()),
        ("HISTORIAN_TOKEN", "hf_nothing".to_owned()),
        ("POLL_EVERY", "100ms".to_owned()),
        ("ALERTS_WEBHOOK_URL", webhook.to_owned()),
        ("ALERTS_WEBHOOK_SECRET", SECRET.to_owned()),
        ("ALERTS_STATE_FILE", state_file.display().to_string()),
    ];
    let config = console::Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_CONSOLE_")?;
        pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| value.clone())
    });
    let config = config.unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains(SECRET) && !shown.contains("tulip"), "{shown}");
    Console::start(config).await.unwrap()
}

/// A historian that works or does not, and has nothing else to say. Returns its address.
async fn historian(works: Arc<AtomicBool>) -> String {
    let summary = move || async move {
        if !works.load(Ordering::Relaxed) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        axum::Json(serde_json::json!({
            "stored_per_second": 0.0, "newest_at": null, "dead_letters": 0, "problems": [], "floods": [],
            "alarms": {"active_unacknowledged": 0, "active_acknowledged": 0, "cleared_unacknowledged": 0, "shelved": 0}
        }))
        .into_response()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/api/v1/summary", get(summary));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_told_once_it_begins_and_once_it_ends_through_failures_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alerts.json");
    let failing = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::UNAUTHORIZED];
    let (receiver, url) = Receiver::start(&failing).await;
    let works = Arc::new(AtomicBool::new(false));
    let upstream = historian(Arc::clone(&works)).await;
    let running = console(&upstream, &url, &file).await;
    testkit::eventually(LONG, "the alert to be told", async || receiver.taken().len() == 1)
        .await
        .unwrap();
    let [(state, rule, began)] = &receiver.taken()[..] else { panic!("one") };
    assert_eq!((state.as_str(), rule.as_str()), ("began", "upstream_away"));
    {
        let heard = receiver.heard.lock().unwrap();
        assert_eq!(heard.len(), 3, "two failures, then it was taken");
        for (_, headers, body) in &*heard {
            assert_eq!(headers["idempotency-key"], began.as_str());
            let signature = headers["holdfast-signature"].to_str().unwrap();
            let seconds = signature.strip_prefix("t=").unwrap().split_once(',').unwrap().0;
            let right = sign(&Secret::new(SECRET), seconds.parse().unwrap(), body);
            assert_eq!(signature, right);
        }
        assert!(heard.iter().all(|(_, _, body)| *body == heard[0].2), "the same each time");
    }
    running.stop().await;

    // The next console finds the historian back, and knows what the one before has told.
    works.store(true, Ordering::Relaxed);
    let running = console(&upstream, &url, &file).await;
    testkit::eventually(LONG, "the end to be told", async || receiver.taken().len() >= 2)
        .await
        .unwrap();
    running.stop().await;
    let taken = receiver.taken();
    let [_, (state, rule, ended)] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((state.as_str(), rule.as_str()), ("ended", "upstream_away"));
    assert_eq!(ended.split_once(':').unwrap().1, began.split_once(':').unwrap().1);
}
