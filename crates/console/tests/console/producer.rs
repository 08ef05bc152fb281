//! A SCADA node on another machine, whose metrics want its token.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde_json::Value;

use crate::ground::{Ground, LONG, variables};

/// Asks the node for whoever asks here, and says so: to the node they come from elsewhere.
async fn pass_on(
    State(node): State<SocketAddr>,
    headers: HeaderMap,
) -> Result<String, (StatusCode, String)> {
    let mut request = reqwest::Client::new().get(format!("http://{node}/metrics"));
    request = request.header("x-forwarded-for", "192.0.2.7");
    if let Some(token) = headers.get("authorization") {
        request = request.header("authorization", token);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    if status.is_success() { Ok(text) } else { Err((status, text)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scada_node_elsewhere_is_read_with_its_token_and_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (its, ours) = (path("its.token"), path("ours.token"));
    std::fs::write(&its, "a-token-of-the-press").unwrap();
    std::fs::write(&ours, "a-token-of-another").unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let historian = testkit::database("console_press_h", "scada_historian", async |url| {
        scada::migrate_historian(&pg::Options::new(url)).await
    });
    let historian = historian.await.unwrap();
    let node = testkit::database("console_press", "scada_producer", async |url| {
        scada::migrate_producer(&pg::Options::new(url)).await
    });
    let node = node.await.unwrap();
    let pairs = [
        ("DATABASE_URL", node.url().to_owned()),
        ("SPOOL_DIR", path("spool")),
        ("SPOOL_FREE_SPACE_RESERVE", "0".to_owned()),
        ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("HTTP_METRICS_TOKEN_FILE", its.clone()),
        ("BUS", "inline".to_owned()),
        ("REPORT_EVERY", "50ms".to_owned()),
    ];
    let nodes = scada::producer::Config::load(None, variables("HOLDFAST_PRODUCER_", &pairs));
    let pairs = [
        ("DATABASE_URL", historian.url().to_owned()),
        ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("BUS", "inline".to_owned()),
    ];
    let keeps = scada::historian::Config::load(None, variables("HOLDFAST_HISTORIAN_", &pairs));
    let line = scada::line::Line::start(nodes.unwrap(), keeps.unwrap()).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let router = Router::new().route("/metrics", get(pass_on)).with_state(line.producer.http());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });

    let producers = format!("press=http://{proxy}={ours}");
    let ground = Ground::with("console_press", &[("PRODUCERS", &producers)]).await;
    let operator = ground.operator().await;
    let sees = async |what: &str, holds: &dyn Fn(&Value) -> bool| {
        testkit::eventually(LONG, what, async || {
            let picture = operator.see("/api/v1/picture").await;
            let all = picture["upstreams"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["id"] == "producer:press" && holds(one))
        })
        .await
        .unwrap()
    };
    let refused = sees("another's token is refused", &|one| one["state"] == "away").await;
    assert!(refused["error"].as_str().unwrap().contains("401"), "{refused}");
    // Both files get the next token, and nothing is started again.
    for file in [&its, &ours] {
        std::fs::write(file, "the-next-token-of-the-press").unwrap();
    }
    sees("the node is read", &|one| one["state"] == "here").await;
    let picture = operator.see("/api/v1/picture").await;
    let stages = picture["flow"]["stages"].as_array().unwrap();
    let press = stages.iter().find(|stage| stage["id"] == "producer:press").unwrap();
    assert!(press["held"].is_u64(), "what waits in its outbox: {press}");
    serving.abort();
    line.stop().await;
}
