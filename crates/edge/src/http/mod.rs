//! The edge's HTTP: backfill for nodes, the services' routes, health, metrics, documentation.
//!
//! A service brings its routes, handlers and part of the OpenAPI document as a [`Service`].
//!
//! Promises: a route is closed unless it is in the list of open ones; a token sees its tenants only;
//! whoever may only look cannot act. Backfill knows its senders by the nodes' secrets, everything else
//! by tokens. Every answer names its trace. Tokens and payloads are never logged.

pub(crate) mod access;
pub(crate) mod ask;
pub(crate) mod body;
pub(crate) mod cursor;
mod docs;
pub(crate) mod fields;
mod health;
mod outbox;
pub(crate) mod trace;

use std::collections::BTreeSet;
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
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use crate::config::{Liveness, Role, TelemetrySync};
use crate::health::Health;
use crate::ingress::Writer;
use crate::media::Media;
use crate::metrics::Metrics;

/// A part of the edge's HTTP that goes with a role.
pub(crate) struct Service {
    /// A process that does not have this role does not have these routes.
    pub(crate) role: Role,
    /// Every route, and whether it is open without a token.
    pub(crate) routes: &'static [Route],
    /// The handlers.
    pub(crate) router: fn() -> Router<Http>,
    /// `tags`, `paths` and `components.schemas` of the OpenAPI document, as JSON.
    pub(crate) openapi: &'static str,
}

/// Every service that has routes.
const SERVICES: &[Service] = &[
    outbox::SERVICE,
    crate::telemetry::http::SERVICE,
    crate::sessions::SERVICE,
    crate::inference::SERVICE,
    crate::media::SERVICE,
    crate::ledger::http::SERVICE,
    crate::registry::http::SERVICE,
];

/// The routes that every process has.
const OWN_ROUTES: &[Route] = &[
    (Method::GET, "/metrics", Open::ToThisMachine),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
    (Method::GET, "/api/v1/openapi.json", Open::ToAll),
    (Method::GET, "/api/docs", Open::ToAll),
];

/// Every route that knows its senders by tokens, and whether it is open without one.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let of_services = SERVICES.iter().flat_map(|service| service.routes);
    of_services.chain(OWN_ROUTES).cloned().collect()
});

/// Rows a second that operators may put back or give up, all of them together.
const ROWS_A_SECOND: f64 = 2_000.0;
/// Rows that may be changed at once.
const ROWS_IN_HAND: f64 = 10_000.0;

/// The OpenAPI document of all services.
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        // A test reads the document, so that one that cannot be read is never built in.
        let part = |text| serde_json::from_str::<Value>(text).unwrap_or_default();
        let mut document = part(include_str!("openapi.json"));
        for service in SERVICES {
            merge(&mut document, part(service.openapi));
        }
        document
    });
    &DOCUMENT
}

/// Adds what `part` has: members of objects, elements of lists.
fn merge(whole: &mut Value, part: Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part {
                match whole.get_mut(&name) {
                    Some(there) => merge(there, value),
                    None => {
                        whole.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(whole), Value::Array(part)) => whole.extend(part),
        (whole, part) => *whole = part,
    }
}

/// What the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pool: pg::Pool,
    tokens: Arc<Tokens>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stall_after: Duration,
    liveness: Liveness,
    acts: Arc<Mutex<Bucket>>,
    media: Option<Arc<Media>>,
    writer: Writer,
}

impl Http {
    pub(crate) fn new(
        pool: pg::Pool,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        stall_after: Duration,
        liveness: Liveness,
    ) -> Http {
        let acts = Bucket::new(ROWS_A_SECOND, ROWS_IN_HAND, Instant::now());
        let tokens = Arc::new(Tokens::new(pool.clone()));
        let writer = Writer::new(pool.clone(), Arc::clone(&metrics));
        Http {
            pool,
            tokens,
            health,
            metrics,
            stall_after,
            liveness,
            acts: Arc::new(Mutex::new(acts)),
            writer,
            media: None,
        }
    }

    /// The same, with an object store for images.
    pub(crate) fn with_media(self, media: Option<Media>) -> Http {
        Http { media: media.map(Arc::new), ..self }
    }

    /// The object store of images, where there is one.
    pub(crate) fn media(&self) -> Option<&Media> {
        self.media.as_deref()
    }

    /// The counters, for handlers.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The same, with readings that come in here going to the cloud or staying at the site.
    pub(crate) fn sending(self, telemetry: TelemetrySync) -> Http {
        Http { writer: self.writer.sending(telemetry), ..self }
    }

    /// Writes what comes in by token.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// How a node's silence is judged.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The database, for handlers.
    pub(crate) fn pool(&self) -> &pg::Pool {
        &self.pool
    }

    /// The routes of these roles, with backfill beside them.
    pub(crate) fn router(self, roles: &BTreeSet<Role>, backfill: Option<Router>) -> Router {
        let mut router = Router::new()
            .route("/metrics", get(health::metrics))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/api/v1/openapi.json", get(docs::document))
            .route("/api/docs", get(docs::page));
        for service in SERVICES.iter().filter(|service| roles.contains(&service.role)) {
            router = router.merge((service.router)());
        }
        let router = router
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self);
        let router = match backfill {
            Some(backfill) => router.merge(backfill),
            None => router,
        };
        router.layer(from_fn(trace::traced))
    }
}

/// Lets a request through to an open route, or with the token it came with.
async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(&ROUTES, &request, peer) {
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
