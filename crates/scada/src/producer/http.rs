//! Health and metrics of a node. Nothing here writes, and nothing shows a payload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Refused;
use api::open::{Open, Route, is_open};
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::metrics::Metrics;
use super::vitals::Vitals;

/// Requests that are under way when the node stops get this long.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);

/// Every route, and whether it is open without a token. A node has no tokens: what is not open is closed.
pub const ROUTES: &[Route] = &[
    (Method::GET, "/metrics", Open::ToThisMachine),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
];

/// What the handlers share.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) metrics: Arc<Metrics>,
    pub(super) vitals: Arc<Vitals>,
    pub(super) stalled_after: Duration,
    pub(super) interval: Duration,
}

impl Http {
    /// The routes.
    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .layer(from_fn(guard))
            .with_state(self)
    }
}

async fn guard(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match is_open(ROUTES, &request, peer) {
        true => next.run(request).await,
        false => {
            Refused::forbidden("a node answers /healthz, /readyz and, to its own machine, /metrics")
                .into_response()
        }
    }
}

/// Data moves, and no alert is critical.
async fn ready(State(http): State<Http>) -> Response {
    let (problems, attention) =
        http.vitals.problems(Instant::now(), http.stalled_after, http.interval);
    let lines = |first: &[String], more: &[String]| [first, more].concat().join("\n") + "\n";
    match problems.is_empty() {
        true => lines(&["ready".to_owned()], &attention).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, lines(&problems, &attention)).into_response(),
    }
}

/// What Prometheus reads.
async fn metrics(State(http): State<Http>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], http.metrics.render()).into_response()
}
