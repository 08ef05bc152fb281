//! Health, readiness and metrics.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::Http;

/// How long readiness waits for the database.
const READY_WITHIN: Duration = Duration::from_secs(3);

/// The process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Database and broker are there, and data moves.
pub(super) async fn ready(State(http): State<Http>) -> Response {
    let mut problems = Vec::new();
    if !http.health.connected() {
        problems.push("the broker is not connected".to_owned());
    }
    if let Some(stalled) = http.health.stalled(Instant::now())
        && stalled > http.stall_after
    {
        problems.push(format!("messages have waited {} s for their commit", stalled.as_secs()));
    }
    problems.extend(http.health.not_draining());
    let asked = tokio::time::timeout(READY_WITHIN, async {
        let client = http.pool.get().await?;
        client.execute("SELECT 1 FROM nodes LIMIT 1", &[]).await?;
        Ok::<_, pg::Error>(())
    });
    match asked.await {
        Ok(Ok(())) => {}
        // The route is open: the server's words are for the log.
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            problems.push("the database does not work".to_owned());
        }
        Err(_) => problems.push("the database does not answer".to_owned()),
    }
    if problems.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response()
}

/// What Prometheus reads.
pub(super) async fn metrics(State(http): State<Http>) -> Response {
    let text = http.metrics.render();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
