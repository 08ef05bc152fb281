//! Intake over HTTP: who may do what, and the answers.
//!
//! Promises: a route is closed unless it is in the list of open ones; bodies are bounded in size and time; tokens and presigned addresses are
//! never logged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Refused;
use api::open::{Open, Route, is_open};
use api::serve::Listener;
use api::tokens::{Caller, Role, Tenants, Token, Tokens};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Extension, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::meter::{Meter, word};
use super::{Fault, Intake, Kind, NewImage, docs, look, show};
use crate::metrics::{self, Metrics};

/// The largest body: some numbers and a hash, with room.
const MAX_BODY_BYTES: usize = 16 << 10;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// How long readiness waits for the database.
const READY_WITHIN: Duration = Duration::from_secs(3);
/// How long requests under way may take when the process stops.
const GOODBYE: Duration = Duration::from_secs(10);
/// After this long a place among the reads may be free again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

const COMPLETE: &str = "/api/v1/sessions/{id}/images/{sequence}/complete";

/// Every route, and whether it is open without a token.
pub const ROUTES: &[Route] = &[
    (Method::POST, "/api/v1/sessions", Open::Never),
    (Method::GET, "/api/v1/sessions/{id}", Open::Never),
    (Method::POST, "/api/v1/sessions/{id}/images", Open::Never),
    (Method::POST, COMPLETE, Open::Never),
    (Method::GET, "/api/v1/summary", Open::Never),
    (Method::GET, "/api/v1/users", Open::Never),
    (Method::GET, "/api/v1/users/{user_id}/week", Open::Never),
    (Method::GET, "/healthz", Open::ToAll),
    (Method::GET, "/readyz", Open::ToAll),
    (Method::GET, "/metrics", Open::ToThisMachine),
    (Method::GET, "/api/v1/openapi.json", Open::ToAll),
    (Method::GET, "/api/docs", Open::ToAll),
];

#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) intake: Intake,
    tokens: Arc<Tokens>,
    meter: Arc<Meter>,
    metrics: Metrics,
}

pub(super) type Answer = Result<Response, Refused>;
type Asker = Extension<Caller>;

/// Serves until `stop` is done; requests under way may then finish for a while. A listener that was bound by [`Metrics::counting`] counts there too.
pub async fn serve(
    listener: Listener,
    intake: Intake,
    metrics: Metrics,
    stop: impl Future<Output = ()>,
) {
    let tokens = Arc::new(Tokens::new(intake.pool.clone()));
    let meter = Arc::new(metrics.counting(Meter::new));
    let (sweeping, swept, kept) = (intake.clone(), Arc::clone(&meter), metrics.clone());
    tokio::select! {
        () = listener.serve(router(Http { intake, tokens, meter, metrics }), stop, GOODBYE) => {}
        () = sweeping.keep_sweeping(&swept) => {}
        () = kept.keep_up() => {}
    }
}

fn router(http: Http) -> Router {
    Router::new()
        .route("/api/v1/sessions", post(open))
        .route("/api/v1/sessions/{id}", get(look))
        .route("/api/v1/sessions/{id}/images", post(place))
        .route(COMPLETE, post(complete))
        .route("/api/v1/summary", get(look::summary))
        .route("/api/v1/users", get(look::users))
        .route("/api/v1/users/{user_id}/week", get(look::week))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(async |State(http): State<Http>| metrics::show(&http.metrics).await))
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
        .layer(from_fn_with_state(http.clone(), guard))
        .with_state(http)
}

/// The one place where requests are counted. What is open to all shows nobody's doing and is not.
async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if is_open(ROUTES, &request, peer) {
        return next.run(request).await;
    }
    let route = word(request.uri().path());
    let answer = with_token(&http, request, next).await;
    http.meter.answered(route, answer.status());
    answer
}

/// The one place where tokens are checked.
async fn with_token(http: &Http, mut request: Request, next: Next) -> Response {
    match http.tokens.authenticate(request.headers()).await {
        Ok(token) if token.tenants != Tenants::All => {
            let message = "users are no tenants: make a token with --all-tenants";
            Refused::forbidden(message).into_response()
        }
        Ok(token) => {
            request.extensions_mut().insert(token);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

fn may_send(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator | Role::Edge => Ok(()),
        Role::Viewer => Err(Refused::forbidden("this needs the role edge, operator or admin")),
    }
}

/// What a caller hears of a fault.
fn refused(fault: Fault) -> Refused {
    let words = fault.to_string();
    let conflict = |code, field: &str| {
        Refused::new(StatusCode::CONFLICT, code, words.clone()).about(Some(field.to_owned()))
    };
    match fault {
        Fault::Wrong { field, message } => Refused::malformed(Some(field), message),
        Fault::Missing => Refused::new(StatusCode::NOT_FOUND, "not_found", words),
        Fault::Ended(_) => conflict("session_ended", "state"),
        Fault::Taken => conflict("sequence_taken", "sequence"),
        Fault::NotUploaded => Refused::new(StatusCode::CONFLICT, "not_uploaded", words),
        Fault::Differs { code, message } => {
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
        }
        Fault::KeyReused => Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", words),
        Fault::Busy => Refused::rate_limited(&words, RETRY_AFTER),
        Fault::Database(error) => unavailable(&error),
        Fault::Store(error) => {
            tracing::warn!(%error, "a request could not be answered");
            let message = "the object store cannot be asked at the moment";
            Refused::unavailable("store_unavailable", message)
        }
    }
}

/// The server's words are for the log; the asker is told to come back.
pub(super) fn unavailable(error: &pg::Error) -> Refused {
    tracing::warn!(%error, "a request could not be answered");
    Refused::unavailable("unavailable", "the database cannot be asked at the moment")
}

/// A body as its fields. What serde says may repeat a value, so only its place is told.
async fn fields<T: DeserializeOwned>(body: Body, expected: &str) -> Result<T, Refused> {
    let whole = tokio::time::timeout(BODY_WITHIN, to_bytes(body, MAX_BODY_BYTES)).await;
    let slow = |_| Refused::malformed(None, "the body did not arrive in time");
    let large = |_| Refused::too_large(format!("the body is more than {MAX_BODY_BYTES} bytes"));
    let bytes: Bytes = whole.map_err(slow)?.map_err(large)?;
    let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
    serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!(
            "the body must be {expected} and nothing else: see line {line}, column {column}"
        );
        Refused::malformed(None, message)
    })
}

/// An id that breaks its grammar is of no session.
fn session(text: &str) -> Result<Uuid, Refused> {
    text.parse().map_err(|_| refused(Fault::Missing))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSession {
    user_id: i64,
}

async fn open(
    State(http): State<Http>,
    Extension(token): Asker,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    may_send(&token)?;
    let key = headers.get("idempotency-key").map(|value| {
        // What is not visible ASCII breaks the rule of keys, and is refused by it.
        value.to_str().unwrap_or_default()
    });
    let NewSession { user_id } = fields(body, "{\"user_id\": number}").await?;
    let opened = http.intake.open(user_id, key).await.map_err(refused)?;
    let status = if opened.new {
        http.meter.opened.increment(1);
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(found(&http, opened.session).await?)).into_response())
}

async fn found(http: &Http, session: Uuid) -> Result<super::Session, Refused> {
    let shown = async { show(&*http.intake.pool.get().await?, session).await };
    let shown = shown.await.map_err(|error| unavailable(&error))?;
    shown.ok_or_else(|| refused(Fault::Missing))
}

async fn look(State(http): State<Http>, Path(id): Path<String>) -> Answer {
    Ok(Json(found(&http, session(&id)?).await?).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Announced {
    sequence: i32,
    mime_type: String,
    size_bytes: u64,
    sha256: Option<String>,
}

async fn place(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    may_send(&token)?;
    let expected = "{\"sequence\", \"mime_type\", \"size_bytes\", \"sha256\"?}";
    let announced: Announced = fields(body, expected).await?;
    let kind = Kind::of_mime_type(&announced.mime_type).ok_or_else(|| {
        let kinds = Kind::ALL.map(Kind::mime_type).join(", ");
        Refused::malformed(Some("mime_type"), format!("mime_type must be one of {kinds}"))
    })?;
    let image = NewImage {
        sequence: announced.sequence,
        kind,
        size_bytes: announced.size_bytes,
        sha256: announced.sha256.as_deref().map(sha256).transpose()?,
    };
    let place = http.intake.place(session(&id)?, &image).await.map_err(refused)?;
    let status = if place.new {
        http.meter.promised.increment(1);
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(place)).into_response())
}

fn sha256(text: &str) -> Result<[u8; 32], Refused> {
    let digits = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut hash = [0; 32];
    for (at, place) in hash.iter_mut().enumerate() {
        let two = text.get(2 * at..2 * at + 2).filter(|_| digits);
        *place = two.and_then(|two| u8::from_str_radix(two, 16).ok()).ok_or_else(|| {
            Refused::malformed(Some("sha256"), "sha256 must be 64 lower-case hexadecimal digits")
        })?;
    }
    Ok(hash)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Completion {
    telegram_message_id: Option<i64>,
}

async fn complete(
    State(http): State<Http>,
    Extension(token): Asker,
    Path((id, sequence)): Path<(String, String)>,
    body: Body,
) -> Answer {
    may_send(&token)?;
    let sequence: i32 = sequence.parse().map_err(|_| refused(Fault::Missing))?;
    let completion: Completion = fields(body, "{\"telegram_message_id\"?: number}").await?;
    let done = http.intake.complete(session(&id)?, sequence, completion.telegram_message_id).await;
    let image = done.map_err(refused)?;
    http.meter.joined.increment(u64::from(image.new));
    Ok(Json(image).into_response())
}

/// The database answers.
async fn ready(State(http): State<Http>) -> Response {
    let asked = tokio::time::timeout(READY_WITHIN, async {
        let client = http.intake.pool.get().await?;
        client.execute("SELECT FROM schedule_ingest.capture_request LIMIT 1", &[]).await?;
        Ok::<_, pg::Error>(())
    });
    match asked.await {
        Ok(Ok(())) => "ready\n".into_response(),
        // The route is open: the server's words are for the log.
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "database: does not work\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "database: does not answer\n").into_response(),
    }
}
