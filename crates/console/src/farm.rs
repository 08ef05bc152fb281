//! Weighing sessions from the cloud, and their images from the sites.

use api::Refused;
use axum::Json;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use event::id::{MediaId, SessionId};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::User;
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::{Fault, PATIENT, QUICK, Remote};

/// The largest image.
const MAX_IMAGE_BYTES: usize = 32 << 20;
/// What is passed on; anything else might be more than a picture.
const KINDS: [&str; 3] = ["image/jpeg", "image/png", "image/webp"];

/// A weighing session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WeighSession {
    session_id: Uuid,
    #[serde(default)]
    tenant_id: Uuid,
    status: String,
    farm_id: Option<Uuid>,
    barn_id: Option<Uuid>,
    device_id: Option<Uuid>,
    batch_id: Option<Uuid>,
    started_at: Option<Timestamp>,
    finalized_at: Option<Timestamp>,
    cancelled_at: Option<Timestamp>,
    cancel_reason: Option<String>,
    initial_weight_kg: Option<f64>,
    final_weight_kg: Option<f64>,
    image_count: Option<i64>,
    media_arrived: i64,
    results_arrived: i64,
    complete: bool,
}

/// A page of sessions, the newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SessionList {
    items: Vec<WeighSession>,
    next_cursor: Option<String>,
}

/// An image of a session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Media {
    media_id: Uuid,
    occurred_at: Timestamp,
    mime_type: Option<String>,
    size_bytes: Option<i64>,
    copy_status: Option<String>,
    /// Where the page finds it.
    #[serde(default)]
    src: String,
}

/// What a model made of an image.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Inference {
    inference_result_id: Uuid,
    occurred_at: Timestamp,
    predicted_weight_kg: Option<f64>,
    confidence: Option<f64>,
    model_version: Option<String>,
}

/// A session with what belongs to it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SessionPage {
    session: WeighSession,
    media: Vec<Media>,
    inference: Vec<Inference>,
}

fn cloud(http: &Http) -> Result<&Remote, Refused> {
    http.upstreams.cloud.as_ref().ok_or_else(|| {
        Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no cloud to ask for sessions")
    })
}

/// Sessions of a tenant.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", params(
    ("tenant_id" = Option<Uuid>, Query), ("status" = Option<String>, Query), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("limit" = Option<usize>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = SessionList), (status = 503)))]
pub(crate) async fn sessions(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = ["tenant_id", "status", "from", "to", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known, &[])?;
    let cloud = cloud(&http)?;
    let tenant = http.one_tenant(&user, &query)?;
    let limit = query.number("limit", (1, 1_000), 50)?;
    let mut asked = vec![("tenant_id", tenant.to_string()), ("limit", limit.to_string())];
    for name in ["status", "from", "to", "cursor"] {
        asked.extend(query.get(name).map(|value| (name, value.to_owned())));
    }
    let page = cloud.get::<SessionList>("/api/v1/sessions", &asked, PATIENT).await;
    let mut page = page.map_err(|fault| fault.refuse("the cloud"))?;
    page.items.iter_mut().for_each(|session| session.tenant_id = tenant);
    Ok(Json(page).into_response())
}

/// One session with its images and results.
#[utoipa::path(get, path = "/api/v1/sessions/{id}", tag = "sessions",
    params(("id" = Uuid, Path), ("tenant_id" = Option<Uuid>, Query)),
    responses((status = 200, body = SessionPage), (status = 404), (status = 503)))]
pub(crate) async fn session(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["tenant_id"], &[])?;
    let id: SessionId = id.parse().map_err(|_| wrong("id", "a session's id"))?;
    let cloud = cloud(&http)?;
    let tenant = http.one_tenant(&user, &query)?;
    let asked = [("tenant_id", tenant.to_string())];
    let path = format!("/api/v1/sessions/{id}");
    let page = cloud.get::<SessionPage>(&path, &asked, PATIENT).await;
    let mut page = page.map_err(|fault| fault.refuse("the cloud"))?;
    page.session.tenant_id = tenant;
    for media in &mut page.media {
        media.src = format!("/api/v1/media/{}", media.media_id);
    }
    Ok(Json(page).into_response())
}

/// An image, from the first site that has it.
#[utoipa::path(get, path = "/api/v1/media/{id}", tag = "sessions", params(("id" = Uuid, Path)),
    responses((status = 200, content_type = "image/jpeg"), (status = 404)))]
pub(crate) async fn media(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Answer {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "no site has this image");
    let id: MediaId = id.parse().map_err(|_| missing())?;
    let asked = http.upstreams.sites.iter().map(async |site| (site, find(site, id).await));
    let mut fault = None;
    for (site, found) in join_all(asked).await {
        match found {
            Ok(Some(tenant)) if user.scope.allows(tenant) => {
                let (kind, bytes) =
                    fetch(site, id).await.map_err(|fault| fault.refuse(&site.name))?;
                let kind = kind.unwrap_or_default();
                let kind = kind.split(';').next().unwrap_or_default().trim().to_lowercase();
                let kind = KINDS.iter().find(|known| **known == kind).ok_or_else(|| {
                    let message = "what the store has under this id is no image";
                    Refused::new(StatusCode::BAD_GATEWAY, "upstream", message)
                })?;
                return Ok(image(kind, bytes));
            }
            Ok(_) => {}
            Err(away) => fault = Some((site, away)),
        }
    }
    match fault {
        Some((site, fault)) => Err(fault.refuse(&site.name)),
        None => Err(missing()),
    }
}

/// An image as it is given. No cache keeps it: whoever signs in next with the same browser may see other tenants, and a cache does not ask us who looks.
fn image(kind: &'static str, bytes: bytes::Bytes) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], bytes).into_response()
}

/// Whose image it is, if the site has it.
async fn find(site: &Remote, id: MediaId) -> Result<Option<Uuid>, Fault> {
    #[derive(Deserialize)]
    struct Row {
        tenant_id: Uuid,
    }
    match site.get::<Row>(&format!("/api/v1/media/{id}"), &[], QUICK).await {
        Ok(row) => Ok(Some(row.tenant_id)),
        Err(Fault::Refused { status: 404 | 503, .. }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

async fn fetch(site: &Remote, id: MediaId) -> Result<(Option<String>, bytes::Bytes), Fault> {
    #[derive(Deserialize)]
    struct Signed {
        url: String,
    }
    let signed: Signed = site.get(&format!("/api/v1/media/{id}/url"), &[], QUICK).await?;
    site.fetch(&signed.url, MAX_IMAGE_BYTES).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_kept_by_no_cache() {
        let answer = image("image/png", bytes::Bytes::from_static(b"PNG"));
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(answer.headers()[CONTENT_TYPE], "image/png");
    }
}
