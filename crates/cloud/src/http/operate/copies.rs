//! Copies of images that were given up: which, and trying them again. What `holdfast media copies` does, over HTTP.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use event::id::{MediaId, TenantId};
use serde_json::json;
use uuid::Uuid;

use super::{Answer, Asker, Meant, may_look, tally, unavailable};
use crate::copies::{self, Selection};
use crate::dead_letters::audit::Actor;
use crate::http::Http;
use crate::http::query::Parameters;
use crate::http::refused::Refused;

/// Copies that are listed unless something else is asked for, and at most.
const LISTED: u32 = 100;
const MAX_LISTED: u32 = 1_000;

/// Adds the routes.
pub(super) fn routes(router: Router<Http>) -> Router<Http> {
    router
        .route("/api/v1/media/copies", get(failed))
        .route("/api/v1/media/copies/retry", post(retry))
}

async fn failed(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let parameters = Parameters::read(query.as_deref(), vec!["tenant_id", "code", "limit"])?;
    let tenants = match parameters.get("tenant_id") {
        None => tally::scope(&token.tenants),
        Some(text) => {
            let tenant: TenantId = text.parse().map_err(|error| {
                Refused::malformed(Some("tenant_id"), format!("tenant_id {error}"))
            })?;
            if !token.tenants.allow(tenant) {
                let message = "tenant_id is not among the tenants of this token";
                return Err(Refused::forbidden(message).about(Some("tenant_id".to_owned())));
            }
            Some(vec![tenant.uuid()])
        }
    };
    let limit = parameters.get("limit").map_or(Ok(LISTED), str::parse).unwrap_or_default();
    if !(1..=MAX_LISTED).contains(&limit) {
        let message = format!("limit must be from 1 to {MAX_LISTED}");
        return Err(Refused::malformed(Some("limit"), message));
    }
    let code = parameters.get("code").map(str::to_owned);
    let selection = Selection { code, tenants, ..Selection::default() };
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let items = copies::failed(&client, &selection, limit).await.map_err(unavailable)?;
    Ok(Json(json!({"items": items})))
}

async fn retry(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    let meant = Meant::read(&token, body).await?;
    let image = |id: &String| id.parse::<MediaId>().map(MediaId::uuid);
    let ids: Result<Vec<Uuid>, _> = meant.ids.iter().map(image).collect();
    let ids = ids.map_err(|_| Refused::malformed(Some("ids"), "expected ids of images"))?;
    let selection = Selection {
        media_ids: (!ids.is_empty()).then_some(ids),
        code: meant.reason.clone(),
        tenants: meant.tenant().map(|tenant| vec![tenant]),
        ..Selection::default()
    };
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let actor = Actor::from(&token);
    let done = copies::retry(&client, &actor, &selection, meant.limit(), meant.dry_run).await;
    let done = done.map_err(unavailable)?;
    let by_cause = meant.by_cause(done.matched);
    Ok(Json(json!({"matched": done.matched, "changed": done.changed, "by_cause": by_cause})))
}
