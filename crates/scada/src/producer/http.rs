//! Health and metrics of a node. Nothing here writes, and nothing shows a payload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Refused;
use api::open::{Open, Route, is_open};
use api::tokens::bears;
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use settings::LiveSecret;

use super::metrics::Metrics;
use super::vitals::Vitals;

/// Requests that are under way when the node stops get this long.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);

const METRICS: &str = "/metrics";

/// Every route, and whether it is open without a token. A node has no tokens but one for its metrics, where it was told one: what is not open is closed.
pub const ROUTES: &[Route] = &[
    (Method::GET, METRICS, Open::ToThisMachine),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
];

/// What the handlers share.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) metrics: Arc<Metrics>,
    pub(super) vitals: Arc<Vitals>,
    pub(super) metrics_token: Option<LiveSecret>,
    pub(super) stalled_after: Duration,
    pub(super) interval: Duration,
}

impl Http {
    /// The routes.
    pub(super) fn router(self) -> Router {
        Router::new()
            .route(METRICS, get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self)
    }
}

async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if is_open(ROUTES, &request, peer) {
        return next.run(request).await;
    }
    match &http.metrics_token {
        Some(_) if request.uri().path() != METRICS => {
            Refused::forbidden("a node answers /healthz, /readyz and /metrics").into_response()
        }
        Some(token) if bears(request.headers(), &token.current()) => next.run(request).await,
        Some(_) => {
            Refused::unauthorized("expected Authorization: Bearer with the node's metrics_token")
                .into_response()
        }
        None => {
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
