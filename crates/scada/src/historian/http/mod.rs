//! The API: who may ask, and what is answered. docs/spec/historian.md lists the routes.
//!
//! Promises: a route is closed unless it is in the list of open ones; whoever may only look cannot act; an action is audited; queries
//! worked on at once are bounded, and so is every page and every series. Tokens and payloads are never logged.

mod acts;
mod docs;
mod federation;
mod letters;
mod lists;
mod query;
mod series;
mod summary;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use api::Refused;
use api::open::{Open, Route, is_open};
use api::tokens::{Caller, Role, Token, Tokens};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bus::letterbox::Desk;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::config::Config;
use super::federation::MAX_BODY_BYTES;
use super::metrics::Metrics;
use super::progress::Progress;
use super::write::Writer;

const ALARM: &str = "/api/v1/alarm-states/{plant}/{area}/{unit}/{tag}";
/// How long readiness waits for the database.
const READY_WITHIN: Duration = Duration::from_secs(3);
/// Queries worked on at once; fewer than the pool has connections, so that consumers are never without one.
const QUERIES_AT_ONCE: usize = 3;
/// The largest body of an action.
const ACT_BYTES: usize = 16 << 10;

/// Every route, and whether it is open without a token.
pub const ROUTES: &[Route] = &[
    (Method::GET, "/api/v1/telemetry", Open::Never),
    (Method::GET, "/api/v1/telemetry/series", Open::Never),
    (Method::GET, "/api/v1/telemetry/tags", Open::Never),
    (Method::GET, "/api/v1/summary", Open::Never),
    (Method::GET, "/api/v1/events", Open::Never),
    (Method::GET, "/api/v1/alarms", Open::Never),
    (Method::GET, "/api/v1/alarm-states", Open::Never),
    (Method::GET, "/api/v1/alarm-journal", Open::Never),
    (Method::GET, "/api/v1/alarm-floods", Open::Never),
    (Method::POST, "/api/v1/alarm-states/{plant}/{area}/{unit}/{tag}/acknowledge", Open::Never),
    (Method::POST, "/api/v1/alarm-states/{plant}/{area}/{unit}/{tag}/shelve", Open::Never),
    (Method::POST, "/api/v1/alarm-states/{plant}/{area}/{unit}/{tag}/unshelve", Open::Never),
    (Method::GET, "/api/v1/dead-letters", Open::Never),
    (Method::POST, "/api/v1/dead-letters/replay", Open::Never),
    (Method::GET, "/api/v1/dead-letters/replays/{id}", Open::Never),
    (Method::POST, "/api/v1/federation/batches", Open::Never),
    (Method::GET, "/metrics", Open::ToThisMachine),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
    (Method::GET, "/api/v1/openapi.json", Open::ToAll),
    (Method::GET, "/api/docs", Open::ToAll),
];

/// The OpenAPI document.
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        // A test reads the document, so that one that cannot be read is never built in.
        serde_json::from_str(include_str!("openapi.json")).unwrap_or_default()
    });
    &DOCUMENT
}

/// What the handlers work with.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) tokens: Tokens,
    pub(super) pool: pg::Pool,
    pub(super) writer: Arc<Writer>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) progress: Arc<Progress>,
    pub(super) letters: Desk<()>,
    pub(super) config: Config,
}

/// What the handlers share.
#[derive(Debug, Clone)]
pub(super) struct Http {
    service: Arc<Service>,
    queries: Arc<Semaphore>,
}

impl Http {
    pub(super) fn new(service: Service) -> Http {
        Http { service: Arc::new(service), queries: Arc::new(Semaphore::new(QUERIES_AT_ONCE)) }
    }

    pub(super) fn router(self) -> Router {
        let acts = Router::new()
            .route(&format!("{ALARM}/acknowledge"), post(acts::acknowledge))
            .route(&format!("{ALARM}/shelve"), post(acts::shelve))
            .route(&format!("{ALARM}/unshelve"), post(acts::unshelve))
            .layer(DefaultBodyLimit::max(ACT_BYTES));
        let batches = Router::new()
            .route("/api/v1/federation/batches", post(federation::receive))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
        let letters = Router::new()
            .route("/api/v1/dead-letters", get(letters::list))
            .route("/api/v1/dead-letters/replay", post(letters::replay))
            .route("/api/v1/dead-letters/replays/{id}", get(letters::progress))
            .layer(DefaultBodyLimit::max(letters::MAX_BODY_BYTES));
        lists::routes(Router::new())
            .route("/api/v1/telemetry/series", get(series::series))
            .route("/api/v1/telemetry/tags", get(summary::tags))
            .route("/api/v1/summary", get(summary::summary))
            .merge(acts)
            .merge(batches)
            .merge(letters)
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/api/v1/openapi.json", get(docs::document))
            .route("/api/docs", get(docs::page))
            .fallback(async || {
                let message = "there is no such route: see /api/docs";
                Refused::new(StatusCode::NOT_FOUND, "not_found", message)
            })
            .method_not_allowed_fallback(async || {
                let message = "this route has another method: see /api/docs";
                Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            })
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self)
    }

    /// A place among the queries, and a connection.
    async fn query(&self) -> Result<(SemaphorePermit<'_>, pg::Client), Refused> {
        let place = self.queries.try_acquire().map_err(|_| {
            Refused::unavailable("busy", "as many queries as allowed are under way: come back")
        })?;
        let client = self.service.pool.get().await.map_err(|error| unavailable(&error))?;
        Ok((place, client))
    }
}

/// The one place where tokens are checked.
async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(ROUTES, &request, peer) {
        return next.run(request).await;
    }
    match http.service.tokens.authenticate(request.headers()).await {
        Ok(token) => {
            request.extensions_mut().insert(token);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Whether a token may read.
fn may_read(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Edge => {
            let message = "a token of role edge may not read: use one of role viewer";
            Err(Refused::forbidden(message))
        }
        Role::Admin | Role::Operator | Role::Viewer => Ok(()),
    }
}

/// The server's words are for the log; the asker is told to come back.
fn unavailable(error: &pg::Error) -> Refused {
    tracing::warn!(%error, "a request could not be answered");
    Refused::unavailable("unavailable", "the database cannot answer at the moment")
}

/// The token that the guard has let in.
type Bearer = Extension<Caller>;

/// The database answers, and data moves.
async fn ready(State(http): State<Http>) -> Response {
    let config = &http.service.config;
    let mut problems =
        http.service.progress.problems(Instant::now(), config.stalled_after, config.silent_after);
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
    match problems.is_empty() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response(),
    }
}

/// What Prometheus reads.
async fn metrics(State(http): State<Http>) -> Response {
    let text = http.service.metrics.render();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
