//! The edge's HTTP: backfill for nodes, the outbox for operators, health, metrics, documentation.
//!
//! Promises: a route is closed unless it is in the list of open ones; a token sees its tenants only;
//! whoever may only look cannot act. Backfill knows its senders by the nodes' secrets, everything else
//! by tokens. Tokens and payloads are never logged.

mod ask;
mod docs;
mod health;
mod outbox;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use api::Refused;
pub use api::open::Open;
use api::open::{Route, is_open};
use api::rate::Bucket;
use api::tokens::Tokens;
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;

use crate::health::Health;
use crate::metrics::Metrics;

/// Every route that knows its senders by tokens, and whether it is open without one.
pub const ROUTES: &[Route] = &[
    (Method::GET, "/api/v1/sync/outbox", Open::Never),
    (Method::GET, "/api/v1/sync/outbox/{id}", Open::Never),
    (Method::GET, "/api/v1/sync/stats", Open::Never),
    (Method::POST, "/api/v1/sync/redrive", Open::Never),
    (Method::POST, "/api/v1/sync/unclaim-stuck", Open::Never),
    (Method::GET, "/metrics", Open::ToThisMachine),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
    (Method::GET, "/api/v1/openapi.json", Open::ToAll),
    (Method::GET, "/api/docs", Open::ToAll),
];

/// Rows a second that operators may put back, all of them together.
const ROWS_A_SECOND: f64 = 2_000.0;
/// Rows that may be put back at once.
const ROWS_IN_HAND: f64 = 10_000.0;

/// The OpenAPI document.
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        // A test reads the document, so that one that cannot be read is never built in.
        serde_json::from_str(include_str!("openapi.json")).unwrap_or_default()
    });
    &DOCUMENT
}

/// What the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pool: pg::Pool,
    tokens: Arc<Tokens>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stall_after: Duration,
    acts: Arc<Mutex<Bucket>>,
}

impl Http {
    pub(crate) fn new(
        pool: pg::Pool,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        stall_after: Duration,
    ) -> Http {
        let acts = Bucket::new(ROWS_A_SECOND, ROWS_IN_HAND, Instant::now());
        let tokens = Arc::new(Tokens::new(pool.clone()));
        Http { pool, tokens, health, metrics, stall_after, acts: Arc::new(Mutex::new(acts)) }
    }

    /// Every route, with backfill beside it.
    pub(crate) fn router(self, backfill: Router) -> Router {
        Router::new()
            .route("/api/v1/sync/outbox", get(outbox::list))
            .route("/api/v1/sync/outbox/{id}", get(outbox::show))
            .route("/api/v1/sync/stats", get(outbox::stats))
            .route("/api/v1/sync/redrive", post(outbox::redrive))
            .route("/api/v1/sync/unclaim-stuck", post(outbox::unclaim_stuck))
            .route("/metrics", get(health::metrics))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/api/v1/openapi.json", get(docs::document))
            .route("/api/docs", get(docs::page))
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self)
            .merge(backfill)
    }
}

/// Lets a request through to an open route, or with the token it came with.
async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(ROUTES, &request, peer) {
        return next.run(request).await;
    }
    match http.tokens.authenticate(request.headers()).await {
        Ok(token) => {
            request.extensions_mut().insert(token);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Behind the guard: only whoever has a token learns which routes there are.
async fn no_such_route() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such route: see /api/docs")
}

async fn no_such_method() -> Refused {
    let message = "this route has another method: see /api/docs";
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
