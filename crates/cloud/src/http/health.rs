//! Health, readiness and metrics.

use std::time::Duration;

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

/// The database answers, and every part that reports works.
pub(super) async fn ready(State(http): State<Http>) -> Response {
    let mut problems = http.service.readiness.problems();
    let asked = tokio::time::timeout(READY_WITHIN, async {
        let client = http.service.pool.get().await?;
        client.execute("SELECT 1 FROM api_tokens LIMIT 1", &[]).await?;
        Ok::<_, pg::Error>(())
    });
    match asked.await {
        Ok(Ok(())) => {}
        // The route is open: the server's words are for the log.
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            problems.push("database: does not work".to_owned());
        }
        Err(_) => problems.push("database: does not answer".to_owned()),
    }
    let (status, mut lines) = match problems.is_empty() {
        true => (StatusCode::OK, vec!["ready".to_owned()]),
        false => (StatusCode::SERVICE_UNAVAILABLE, problems),
    };
    lines.extend(http.service.readiness.notes());
    (status, lines.join("\n") + "\n").into_response()
}

/// What Prometheus reads.
pub(super) async fn metrics(State(http): State<Http>) -> Response {
    let text = http.service.metrics.render();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
