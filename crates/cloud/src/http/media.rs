//! `POST /api/v1/sync/media`: which images the cloud has, for the sites that still have them.

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use event::id::{MediaId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Http;
use super::refused::Refused;
use crate::copies::{self, MAX_ASKED};
use crate::tokens::{Caller, Role};

/// A thousand pairs of ids, with room.
const MAX_BODY_BYTES: usize = 256 << 10;
const VERSION: u64 = 1;

#[derive(Debug, Deserialize)]
struct Asked {
    v: u64,
    media: Vec<Image>,
}

#[derive(Debug, Deserialize)]
struct Image {
    tenant_id: TenantId,
    media_id: MediaId,
}

pub(super) async fn ask(
    State(http): State<Http>,
    Extension(token): Extension<Caller>,
    body: Body,
) -> Result<Json<Value>, Refused> {
    if !matches!(token.role, Role::Edge | Role::Admin) {
        let message = format!("a token of role {} may not ask for a site", token.role);
        return Err(Refused::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let (_turn, _place) = (http.query_turn(&token)?, http.query_place()?);
    let too_large = |_| Refused::too_large(format!("the body is more than {MAX_BODY_BYTES} bytes"));
    let bytes =
        tokio::time::timeout(http.service.limits.body_within, to_bytes(body, MAX_BODY_BYTES))
            .await
            .map_err(|_| Refused::unavailable("slow", "the body did not arrive in time"))?
            .map_err(too_large)?;
    let expected = "expected {\"v\": 1, \"media\": [{\"tenant_id\", \"media_id\"}]}";
    let asked: Asked =
        serde_json::from_slice(&bytes).map_err(|_| Refused::malformed(None, expected))?;
    if asked.v != VERSION {
        return Err(Refused::malformed(Some("v"), expected));
    }
    if asked.media.len() > MAX_ASKED {
        return Err(Refused::too_large(format!("at most {MAX_ASKED} images at once")));
    }
    // Another tenant's image is as unknown as one that is not there.
    let ours = asked.media.iter().filter(|one| token.tenants.allow(one.tenant_id));
    let images: Vec<_> = ours.map(|one| (one.tenant_id.uuid(), one.media_id.uuid())).collect();
    let service = &http.service;
    let answer = copies::held(&service.pool, &images, service.copies).await;
    let answer = answer.map_err(|error| super::query::unavailable(&error))?;
    Ok(Json(json!({"v": VERSION, "copies": answer.copies, "media": answer.media})))
}
