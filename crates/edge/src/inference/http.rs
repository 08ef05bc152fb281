//! Inference over HTTP: who may do what, and the answers.

use api::Refused;
use api::open::Open;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::InferenceResultId;
use jiff::Timestamp;

use super::{Fault, ask, jobs, look, results};
use crate::config::Role;
use crate::http::access::{
    Answer, Asker, may_act, may_look, may_see, may_write, read, unavailable,
};
use crate::http::trace::Trace;
use crate::http::{Http, Service};

/// The largest body: some ids, numbers and names, with room.
const MAX_BODY_BYTES: usize = 16 << 10;

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Inference,
    routes: &[
        (Method::POST, "/api/v1/inference/results", Open::Never),
        (Method::GET, "/api/v1/inference/results", Open::Never),
        (Method::GET, "/api/v1/inference/results/{id}", Open::Never),
        (Method::GET, "/api/v1/inference/jobs", Open::Never),
        (Method::POST, "/api/v1/inference/jobs/{id}/redrive", Open::Never),
    ],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/inference/results", get(list).post(store))
        .route("/api/v1/inference/results/{id}", get(show))
        .route("/api/v1/inference/jobs", get(list_jobs))
        .route("/api/v1/inference/jobs/{id}/redrive", post(redrive))
}

/// What a caller hears of a fault.
fn refused(fault: Fault) -> Refused {
    let message = fault.to_string();
    let unknown = |code, field: &str| {
        let refused = Refused::new(StatusCode::UNPROCESSABLE_ENTITY, code, message.clone());
        refused.about(Some(field.to_owned()))
    };
    match fault {
        Fault::Database(error) => unavailable(error),
        Fault::Missing => Refused::new(StatusCode::NOT_FOUND, "not_found", message),
        Fault::UnknownSession => unknown("unknown_session", "session_id"),
        Fault::UnknownMedia => unknown("unknown_media", "media_id"),
        Fault::Contradiction(field) => unknown("contradiction", field),
        Fault::NoPlace(field) => Refused::malformed(Some(field), message),
        Fault::Answered => Refused::new(StatusCode::CONFLICT, "answered", message)
            .about(Some("media_id".to_owned())),
        Fault::IdReused => Refused::new(StatusCode::CONFLICT, "id_reused", message)
            .about(Some("inference_result_id".to_owned())),
        Fault::WrongState(state) => Refused::new(StatusCode::CONFLICT, "wrong_state", message)
            .about(Some("status".to_owned()))
            .in_state(state),
        Fault::Damaged(what) => {
            tracing::error!(what, "a row makes no event");
            let message = "a row is not as this service writes it";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", message)
        }
    }
}

/// An id that breaks its grammar is of no result and no job.
fn id(text: &str) -> Result<InferenceResultId, Refused> {
    text.parse().map_err(|_| refused(Fault::Missing))
}

/// A new result.
async fn store(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let mut new = ask::new_result(&read(body, MAX_BODY_BYTES).await?, Timestamp::now())?;
    new.trace_id = trace.or_own(new.trace_id);
    may_see(&token, Some(new.tenant_id))?;
    let (row, made) = results::store(http.pool(), &new).await.map_err(refused)?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(row)).into_response())
}

/// A page of results.
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

/// One result.
async fn show(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(text): Path<String>,
) -> Answer {
    may_look(&token)?;
    let row = look::show(http.pool(), &token.tenants, id(&text)?).await.map_err(refused)?;
    Ok(Json(row).into_response())
}

/// A page of jobs.
async fn list_jobs(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let filter = ask::job_filter(&query.unwrap_or_default())?;
    may_see(&token, filter.tenant_id)?;
    let with_stderr = may_act(&token).is_ok();
    let page = jobs::list(http.pool(), &token.tenants, &filter, with_stderr).await;
    Ok(Json(page.map_err(refused)?).into_response())
}

/// A dead job back to work.
async fn redrive(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(text): Path<String>,
) -> Answer {
    may_act(&token)?;
    let id = id(&text)?;
    let row = jobs::redrive(http.pool(), &token.tenants, id).await.map_err(refused)?;
    tracing::info!(job = %id, token = %token.id, "a dead job was put back to work");
    Ok(Json(row).into_response())
}
