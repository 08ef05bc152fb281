//! The API: who may ask, how much, and what is answered.
//!
//! Promises: nothing is read before the sender is known and there is a place for it; no more is
//! read than the limit; a reply follows the commit. A route is closed unless it is in the list of
//! open ones, so that a new one cannot be forgotten. Tokens and payloads are never logged.

mod batches;
mod docs;
mod guard;
mod health;
mod media;
mod operate;
mod query;
mod quota;
mod stored;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use api::open::Open;
use api::open::Route;
use api::refused;
use axum::Router;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use bus::letterbox::Desk;
use serde_json::Value;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::behind::Behind;
use crate::config::Limits;
use crate::ingest::Writer;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::tokens::Tokens;
use quota::Quotas;

/// Every route, and whether it is open without a token.
pub const ROUTES: &[Route] = &[
    (Method::POST, "/api/v1/sync/batches", Open::Never),
    (Method::POST, "/api/v1/sync/media", Open::Never),
    (Method::GET, "/api/v1/telemetry", Open::Never),
    (Method::GET, "/api/v1/telemetry/aggregates", Open::Never),
    (Method::GET, "/api/v1/telemetry/latest", Open::Never),
    (Method::GET, "/api/v1/sessions", Open::Never),
    (Method::GET, "/api/v1/sessions/{session_id}", Open::Never),
    (Method::GET, "/api/v1/media", Open::Never),
    (Method::GET, "/api/v1/inference", Open::Never),
    (Method::GET, "/api/v1/events", Open::Never),
    (Method::GET, "/api/v1/kpis/metrics", Open::Never),
    (Method::GET, "/api/v1/kpis/hours", Open::Never),
    (Method::GET, "/api/v1/kpis/sessions", Open::Never),
    (Method::GET, "/api/v1/kpis/inference", Open::Never),
    (Method::GET, "/api/v1/kpis/batches", Open::Never),
    (Method::GET, "/api/v1/kpis/images", Open::Never),
    (Method::GET, "/api/v1/kpis/sync", Open::Never),
    (Method::GET, "/api/v1/sync/journal", Open::Never),
    (Method::GET, "/api/v1/ledger/frontiers", Open::Never),
    (Method::GET, "/api/v1/ledger/tombstones", Open::Never),
    (Method::GET, "/api/v1/ledger/streams", Open::Never),
    (Method::GET, "/api/v1/ledger/blocks", Open::Never),
    (Method::GET, "/api/v1/ledger/marks", Open::Never),
    (Method::GET, "/api/v1/ledger/events/{event_id}", Open::Never),
    (Method::GET, "/api/v1/ledger/hours", Open::Never),
    (Method::GET, "/api/v1/ledger/held", Open::Never),
    (Method::GET, "/api/v1/ledger/told", Open::Never),
    (Method::GET, "/api/v1/ledger/media", Open::Never),
    (Method::GET, "/api/v1/ledger/stored", Open::Never),
    (Method::POST, "/api/v1/ledger/again", Open::Never),
    (Method::GET, "/api/v1/summary", Open::Never),
    (Method::GET, "/api/v1/relay/dead-letters", Open::Never),
    (Method::POST, "/api/v1/relay/redrive", Open::Never),
    (Method::GET, "/api/v1/dead-letters", Open::Never),
    (Method::POST, "/api/v1/dead-letters/replay", Open::Never),
    (Method::GET, "/api/v1/dead-letters/replays/{id}", Open::Never),
    (Method::GET, "/api/v1/media/copies", Open::Never),
    (Method::POST, "/api/v1/media/copies/retry", Open::Never),
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
        let part = |text| serde_json::from_str::<Value>(text).unwrap_or_default();
        let mut document = part(include_str!("openapi.json"));
        let mut more = part(operate::OPENAPI);
        for place in ["/paths", "/components/schemas"] {
            if let (Some(Value::Object(whole)), Some(Value::Object(part))) =
                (document.pointer_mut(place), more.pointer_mut(place))
            {
                whole.append(part);
            }
        }
        document
    });
    &DOCUMENT
}

/// What the handlers work with.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) writer: Writer,
    pub(crate) tokens: Tokens,
    pub(crate) pool: pg::Pool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Readiness,
    pub(crate) limits: Limits,
    /// Whether this process takes in batches.
    pub(crate) ingests: bool,
    /// How long ingestion remembers event ids.
    pub(crate) dedupe_ttl: Duration,
    /// Whether this process has both object stores.
    pub(crate) copies: bool,
    /// What carries events to the consumers, in a word.
    pub(crate) bus: &'static str,
    /// The consumers' dead letters, where a broker keeps them.
    pub(crate) letters: Option<Desk<Option<Uuid>>>,
    /// What waits for the consumers.
    pub(crate) behind: Behind,
    /// For what needs a connection of its own.
    pub(crate) database: pg::Options,
}

/// Queries worked on at once; further ones are told to come back. Fewer than the pool has connections
/// by default, so that ingestion is never without one.
const QUERIES_AT_ONCE: usize = 4;

/// What the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    service: Arc<Service>,
    places: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    quotas: Arc<Quotas>,
}

impl Http {
    pub(crate) fn new(service: Service) -> Http {
        Http {
            queries: Arc::new(Semaphore::new(QUERIES_AT_ONCE)),
            places: Arc::new(Semaphore::new(service.limits.requests)),
            quotas: Arc::new(Quotas::new(service.limits)),
            service: Arc::new(service),
        }
    }

    pub(crate) fn router(self) -> Router {
        let mut router = stored::routes(operate::routes(query::routes(Router::new())));
        if self.service.ingests {
            router = router
                .route("/api/v1/sync/batches", post(batches::receive))
                .route("/api/v1/sync/media", post(media::ask));
        }
        router
            .route("/metrics", get(health::metrics))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/api/v1/openapi.json", get(docs::document))
            .route("/api/docs", get(docs::page))
            .fallback(guard::no_such_route)
            .method_not_allowed_fallback(guard::no_such_method)
            .layer(from_fn_with_state(self.clone(), guard::guard))
            .with_state(self)
    }
}
