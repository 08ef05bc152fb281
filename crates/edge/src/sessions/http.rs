//! Sessions over HTTP: who may do what, and the answers.

use api::Refused;
use api::open::Open;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::SessionId;
use jiff::Timestamp;

use super::{Fault, ask, create, finish, look};
use crate::config::Role;
use crate::http::access::{Answer, Asker, may_look, may_see, may_write, read, unavailable};
use crate::http::fields::to_microsecond;
use crate::http::trace::Trace;
use crate::http::{Http, Service};

/// The largest body: some ids and numbers, with room.
const MAX_BODY_BYTES: usize = 16 << 10;

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Sessions,
    routes: &[
        (Method::POST, "/api/v1/sessions", Open::Never),
        (Method::GET, "/api/v1/sessions", Open::Never),
        (Method::GET, "/api/v1/sessions/{id}", Open::Never),
        (Method::POST, "/api/v1/sessions/{id}/finalize", Open::Never),
        (Method::POST, "/api/v1/sessions/{id}/cancel", Open::Never),
    ],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/sessions", get(list).post(create))
        .route("/api/v1/sessions/{id}", get(show))
        .route("/api/v1/sessions/{id}/finalize", post(finalize))
        .route("/api/v1/sessions/{id}/cancel", post(cancel))
}

/// What a caller hears of a fault.
fn refused(fault: Fault) -> Refused {
    match fault {
        Fault::Database(error) => unavailable(error),
        Fault::Missing => Refused::new(StatusCode::NOT_FOUND, "not_found", fault.to_string()),
        Fault::WrongState(status) => {
            let message = format!("the session is {status}, and only a created one can be ended");
            Refused::new(StatusCode::CONFLICT, "wrong_state", message)
                .about(Some("status".to_owned()))
                .in_state(status.to_string())
        }
        Fault::KeyReused => {
            let message = "this Idempotency-Key was used with another body: take a new one";
            Refused::new(StatusCode::CONFLICT, "key_reused", message)
                .about(Some("Idempotency-Key".to_owned()))
        }
        Fault::EndsBeforeStart => Refused::malformed(Some("end_at"), fault.to_string()),
        Fault::UnknownResult => {
            let unknown = StatusCode::UNPROCESSABLE_ENTITY;
            Refused::new(unknown, "unknown_result", fault.to_string())
                .about(Some("inference_result_id".to_owned()))
        }
        Fault::Damaged(what) => {
            tracing::error!(what, "a session's row makes no event");
            let message = "the session's row is not as this service writes it";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", message)
        }
    }
}

/// An id that breaks its grammar is of no session.
fn id(text: &str) -> Result<SessionId, Refused> {
    text.parse().map_err(|_| refused(Fault::Missing))
}

fn now() -> Timestamp {
    to_microsecond(Timestamp::now())
}

/// A new session.
async fn create(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let mut new = ask::new_session(&headers, &read(body, MAX_BODY_BYTES).await?, now())?;
    new.trace_id = trace.or_own(new.trace_id);
    may_see(&token, Some(new.tenant_id))?;
    let (session, made) = create::create(http.pool(), &new).await.map_err(refused)?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(session)).into_response())
}

/// A page of sessions.
async fn list(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let filter = ask::filter(&query.unwrap_or_default())?;
    may_see(&token, filter.tenant_id)?;
    let page = look::list(http.pool(), &token.tenants, &filter).await.map_err(refused)?;
    Ok(Json(page).into_response())
}

/// One session with its media and results.
async fn show(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(text): Path<String>,
) -> Answer {
    may_look(&token)?;
    let found = look::show(http.pool(), &token.tenants, id(&text)?).await.map_err(refused)?;
    Ok(Json(found).into_response())
}

/// The end with a weight.
async fn finalize(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    Path(text): Path<String>,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let id = id(&text)?;
    let mut what = ask::finalize(&read(body, MAX_BODY_BYTES).await?)?;
    what.trace_id = trace.or_own(what.trace_id);
    let done = finish::finalize(http.pool(), &token.tenants, id, &what, now()).await;
    Ok(Json(done.map_err(refused)?).into_response())
}

/// The end without one.
async fn cancel(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    Path(text): Path<String>,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let id = id(&text)?;
    let mut what = ask::cancel(&read(body, MAX_BODY_BYTES).await?)?;
    what.trace_id = trace.or_own(what.trace_id);
    let done = finish::cancel(http.pool(), &token.tenants, id, &what, now()).await;
    Ok(Json(done.map_err(refused)?).into_response())
}
