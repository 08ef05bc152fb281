//! What the console tells Prometheus, and whom.

use reqwest::{Method, StatusCode};

use crate::ground::{Ground, LONG, token};
use api::tokens::{Role, Tenants};

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_whom_the_console_asks_and_who_looks() {
    let ground = Ground::new("console_metrics").await;
    let operator = ground.operator().await;
    let stream = operator.get("/api/v1/stream").await;
    let stranger = ground.stranger();
    let text = testkit::eventually(LONG, "every upstream is up", async || {
        let text = stranger.get("/metrics").await.text().await.unwrap();
        let up = ["site:north", "cloud", "historian"].into_iter().all(|of| {
            text.contains(&format!("holdfast_console_upstream_up{{upstream=\"{of}\"}} 1"))
        });
        up.then_some(text)
    });
    let text = text.await.unwrap();
    for line in [
        "holdfast_console_sessions 1",
        "holdfast_console_streams 1",
        "holdfast_console_alerts{severity=\"critical\"} 0",
        "holdfast_http_handshakes_failed_total 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let polls = "holdfast_console_polls_total{upstream=\"cloud\",outcome=\"answered\"}";
    assert!(text.lines().any(|line| line.starts_with(polls)), "{text}");
    drop(stream);
    // A request that a proxy brings from elsewhere wants a token, of any role.
    let from_afar =
        || stranger.bare(Method::GET, "/metrics").header("x-forwarded-for", "192.0.2.1");
    assert_eq!(from_afar().send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let viewer = token(&ground.cloud_database, "prometheus", Role::Viewer, Tenants::All).await;
    let answer = from_afar().bearer_auth(viewer).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}
