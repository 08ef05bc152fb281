//! Media over HTTP: who may do what, and the answers.

use api::Refused;
use api::open::Open;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::MediaId;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Fault, Media, ask, complete, create, look};
use crate::config::Role;
use crate::http::access::{Answer, Asker, may_see, may_write, read, unavailable};
use crate::http::fields::{Fields, to_microsecond};
use crate::http::trace::Trace;
use crate::http::{Http, Service};

/// The largest body: some ids and a hash, with room.
const MAX_BODY_BYTES: usize = 16 << 10;

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Media,
    routes: &[
        (Method::POST, "/api/v1/media", Open::Never),
        (Method::GET, "/api/v1/media", Open::Never),
        (Method::GET, "/api/v1/media/{id}", Open::Never),
        (Method::POST, "/api/v1/media/{id}/complete", Open::Never),
        (Method::GET, "/api/v1/media/{id}/url", Open::Never),
    ],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/media", get(list).post(create))
        .route("/api/v1/media/{id}", get(show))
        .route("/api/v1/media/{id}/complete", post(complete))
        .route("/api/v1/media/{id}/url", get(url))
}

/// What a caller hears of a fault.
fn refused(fault: Fault) -> Refused {
    let said = fault.to_string();
    let conflict = |code, state: String| {
        Refused::new(StatusCode::CONFLICT, code, said.clone()).in_state(state)
    };
    match fault {
        Fault::WrongState(state) => conflict("wrong_state", state).about(Some("status".to_owned())),
        Fault::SessionEnded(state) => {
            conflict("session_ended", state).about(Some("session_id".to_owned()))
        }
        Fault::NotUploaded => conflict("not_uploaded", "pending".to_owned()),
        Fault::Missing => Refused::new(StatusCode::NOT_FOUND, "not_found", said),
        Fault::UnknownSession => Refused::new(StatusCode::NOT_FOUND, "unknown_session", said)
            .about(Some("session_id".to_owned())),
        Fault::Differs { code, message } => {
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
        }
        Fault::Busy => Refused::rate_limited("too much is under way: come back later", RETRY_AFTER),
        Fault::Database(error) => unavailable(error),
        Fault::Store(error) => {
            tracing::warn!(%error, "a request for media could not be answered");
            let message = "the object store cannot be asked at the moment";
            Refused::unavailable("store_unavailable", message)
        }
        Fault::Damaged(what) => {
            tracing::error!(what, "the row of a media makes no event");
            let message = "the row is not as this service writes it";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", message)
        }
    }
}

/// After this long a place may be free again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// The service, where there is an object store.
fn media(http: &Http) -> Result<&Media, Refused> {
    http.media().ok_or_else(|| {
        let message = "there is no object store: set edge.media.s3_endpoint and its keys";
        Refused::unavailable("no_object_store", message)
    })
}

/// An id that breaks its grammar is of no media.
fn id(text: &str) -> Result<MediaId, Refused> {
    text.parse().map_err(|_| refused(Fault::Missing))
}

/// A place for an image.
async fn create(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    may_write(&token)?;
    let media = media(&http)?;
    let now = to_microsecond(Timestamp::now());
    let body = read(body, MAX_BODY_BYTES).await?;
    let new = ask::new_media(&body, &token, media.config.max_size, now)?;
    may_see(&token, Some(new.tenant))?;
    let place = create::create(media, http.pool(), &new, now).await.map_err(refused)?;
    http.metrics().media.promised();
    Ok((StatusCode::CREATED, Json(place)).into_response())
}

/// The image is there: look, and store it.
async fn complete(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    Path(text): Path<String>,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let media = media(&http)?;
    let id = id(&text)?;
    let body = read(body, MAX_BODY_BYTES).await?;
    let fields = Fields::read(if body.is_empty() { b"{}" } else { &body }, &[])?;
    let trace_id = trace.or_own(fields.trace_id()?);
    let done = complete::complete(media, http.pool(), &token.tenants, id, trace_id).await;
    match &done {
        Ok(_) => http.metrics().media.completed(),
        Err(Fault::Differs { .. }) => http.metrics().media.refused(),
        Err(_) => {}
    }
    Ok(Json(done.map_err(refused)?).into_response())
}

/// A page of images.
async fn list(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    media(&http)?;
    let filter = ask::filter(&query.unwrap_or_default())?;
    may_see(&token, filter.tenant)?;
    let page = look::list(http.pool(), &token.tenants, &filter).await.map_err(refused)?;
    Ok(Json(page).into_response())
}

/// One image's row.
async fn show(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(text): Path<String>,
) -> Answer {
    media(&http)?;
    let found = look::find(http.pool(), &token.tenants, id(&text)?).await.map_err(refused)?;
    Ok(Json(found).into_response())
}

/// An address to read an image from.
async fn url(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(text): Path<String>,
) -> Answer {
    let media = media(&http)?;
    let found = look::find(http.pool(), &token.tenants, id(&text)?).await.map_err(refused)?;
    if !found.is("stored") {
        return Err(refused(Fault::WrongState(found.status)));
    }
    let ttl = media.config.presign_ttl;
    let signed = media.public.presign_get(&found.object_key, ttl);
    let signed = signed.map_err(|error| refused(Fault::Store(error)))?;
    let expires_at =
        Timestamp::now().checked_add(SignedDuration::try_from(ttl).unwrap_or_default());
    let expires_at = to_microsecond(expires_at.unwrap_or_else(|_| Timestamp::now()));
    Ok(Json(json!({"method": "GET", "url": signed.url.as_str(), "expires_at": expires_at}))
        .into_response())
}
