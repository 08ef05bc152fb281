//! The console's HTTP: the page's files, the API, and the guard before it.
//!
//! Promises: every answer carries the headers that keep the page apart from others; every route below `/api/` is closed unless the guard
//! names it as open; whatever is not GET is refused for whoever may only look, before its handler runs.

mod body;
mod docs;
mod guard;
mod query;

use std::sync::Arc;
use std::time::Instant;

use api::Refused;
use api::tokens::Tokens;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use uuid::Uuid;

use crate::access::{self, Attempts, Sessions, User};
use crate::config::Config;
use crate::jobs::{self, Jobs};
use crate::metrics::{self, Metrics};
use crate::picture::{self, Board};
use crate::upstream::Upstreams;
use crate::{alerts, conservation, explore, farm, files, plant, queues, rota};

pub(crate) use body::Body;
pub use docs::openapi;
pub use guard::{Asks, asks};
pub(crate) use query::{Query, wrong};

/// What a handler answers.
pub(crate) type Answer = Result<Response, Refused>;

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 64 << 10;

/// What the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Http(Arc<Shared>);

/// See [`Http`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) public_url: Option<String>,
    /// Whether people reach the page over TLS, so that cookies are for TLS only.
    pub(crate) secure: bool,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) board: Arc<Board>,
    pub(crate) ledgers: conservation::Ledgers,
    pub(crate) letters: queues::DeadLetters,
    pub(crate) alarms: plant::Alarms,
    pub(crate) series: explore::AllSeries,
    pub(crate) jobs: Jobs,
    pub(crate) streams: Arc<tokio::sync::Semaphore>,
    pub(crate) metrics: Metrics,
    /// What tells alerts to somebody outside.
    pub(crate) webhook: Option<alerts::Telling>,
}

impl std::ops::Deref for Http {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Http {
    pub(crate) fn new(
        config: &Config,
        pool: pg::Pool,
        upstreams: Arc<Upstreams>,
        board: Arc<Board>,
        metrics: Metrics,
        webhook: Option<alerts::Telling>,
    ) -> Http {
        Http(Arc::new(Shared {
            public_url: config.public_url.clone(),
            secure: config.tls.is_some()
                || config.public_url.as_deref().is_some_and(|url| url.starts_with("https://")),
            tokens: Tokens::new(pool),
            sessions: Sessions::new(config.session_life),
            attempts: Attempts::new(Instant::now()),
            upstreams,
            board,
            ledgers: conservation::Ledgers::default(),
            letters: queues::DeadLetters::default(),
            alarms: plant::Alarms::default(),
            series: explore::AllSeries::default(),
            jobs: Jobs::default(),
            streams: Arc::new(tokio::sync::Semaphore::new(picture::MAX_STREAMS)),
            metrics,
            webhook,
        }))
    }

    /// Whose data is asked for: the tenant that is named, or the only one there is.
    pub(crate) fn one_tenant(&self, user: &User, query: &Query) -> Result<Uuid, Refused> {
        if let Some(tenant) = query.parse("tenant_id")? {
            user.may_see(tenant)?;
            return Ok(tenant);
        }
        let seen = match &user.scope {
            access::Scope::Only(tenants) => tenants.iter().copied().collect(),
            access::Scope::All => self.board.tenants(&user.scope),
        };
        match seen[..] {
            [tenant] => Ok(tenant),
            _ => Err(wrong("tenant_id", "it to be there: you see several tenants, or none yet")),
        }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/api/v1/sign-in", post(access::sign_in))
            .route("/api/v1/sign-out", post(access::sign_out))
            .route("/api/v1/me", get(access::me))
            .route("/api/v1/picture", get(picture::whole))
            .route("/api/v1/stream", get(picture::stream))
            .route("/api/v1/flow/history", get(picture::history))
            .route("/api/v1/links/{id}/cut", post(picture::cut))
            .route("/api/v1/links/{id}/restore", post(picture::restore))
            .route("/api/v1/nodes", get(picture::nodes))
            .route("/api/v1/nodes/{site}/{node_id}", get(picture::node))
            .route("/api/v1/conservation", get(conservation::list))
            .route("/api/v1/conservation/gaps", get(conservation::gaps))
            .route("/api/v1/verify", post(conservation::verify))
            .route("/api/v1/where/{event_id}", get(conservation::where_is))
            .route("/api/v1/jobs", get(jobs::list))
            .route("/api/v1/jobs/{id}", get(jobs::show))
            .route("/api/v1/queues", get(queues::list))
            .route("/api/v1/queues/{id}/redrive", post(queues::redrive))
            .route("/api/v1/explore/series", get(explore::series))
            .route("/api/v1/explore/points", get(explore::points))
            .route("/api/v1/explore/marks", get(explore::marks))
            .route("/api/v1/explore/csv", get(explore::csv))
            .route("/api/v1/sessions", get(farm::sessions))
            .route("/api/v1/sessions/{id}", get(farm::session))
            .route("/api/v1/media/{id}", get(farm::media))
            .route("/api/v1/alarms", get(plant::alarms))
            .route("/api/v1/alarms/{id}/acknowledge", post(plant::acknowledge))
            .route("/api/v1/alarms/{id}/shelve", post(plant::shelve))
            .route("/api/v1/alarms/{id}/unshelve", post(plant::unshelve))
            .route("/api/v1/schedules/week", get(rota::week))
            .route("/api/v1/alerts", get(alerts::list))
            .route("/api/v1/openapi.json", get(docs::document))
            .route("/metrics", get(metrics::page))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .fallback(files::serve)
            .method_not_allowed_fallback(async || {
                let message = "this route has another method: see /api/v1/openapi.json";
                Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            })
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .layer(from_fn_with_state(self.clone(), guard::guard))
            .layer(axum::middleware::from_fn(guard::headers))
            .with_state(self)
    }
}

/// The picture is drawn. Upstreams that are away do not make the console unready: it is there to show that.
async fn ready(State(http): State<Http>) -> Response {
    match http.board.is_alive() {
        true => "ready\n".into_response(),
        false => {
            (StatusCode::SERVICE_UNAVAILABLE, "picture: is not drawn any more\n").into_response()
        }
    }
}
