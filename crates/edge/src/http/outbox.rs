//! The outbox for operators: who may do what, and the answers.

use std::sync::PoisonError;
use std::time::Instant;

use api::Refused;
use api::open::Open;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::EventId;

use super::access::{Answer, Asker, may_act, may_look, may_see, read, unavailable};
use super::{Http, Service, ask};
use crate::config::Role;
use crate::sync::admin::{self, Actor, Done};

/// The largest body: a thousand ids, with room.
const MAX_BODY_BYTES: usize = 256 << 10;

/// What this adds to the edge's HTTP.
pub(super) const SERVICE: Service = Service {
    role: Role::Sync,
    routes: &[
        (Method::GET, "/api/v1/sync/outbox", Open::Never),
        (Method::GET, "/api/v1/sync/outbox/{id}", Open::Never),
        (Method::GET, "/api/v1/sync/stats", Open::Never),
        (Method::GET, "/api/v1/sync/dead-letters", Open::Never),
        (Method::POST, "/api/v1/sync/redrive", Open::Never),
        (Method::POST, "/api/v1/sync/give-up", Open::Never),
        (Method::POST, "/api/v1/sync/unclaim-stuck", Open::Never),
    ],
    router,
    openapi: include_str!("outbox.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/sync/outbox", get(list))
        .route("/api/v1/sync/outbox/{id}", get(show))
        .route("/api/v1/sync/stats", get(stats))
        .route("/api/v1/sync/dead-letters", get(dead_letters))
        .route("/api/v1/sync/redrive", post(redrive))
        .route("/api/v1/sync/give-up", post(give_up))
        .route("/api/v1/sync/unclaim-stuck", post(unclaim_stuck))
}

/// A page of rows.
pub(super) async fn list(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let filter = ask::filter(&query.unwrap_or_default())?;
    may_see(&token, filter.tenant_id)?;
    let page = admin::list(&http.pool, &token.tenants, &filter).await.map_err(unavailable)?;
    Ok(Json(page).into_response())
}

/// One row with its history.
pub(super) async fn show(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(id): Path<String>,
) -> Answer {
    may_look(&token)?;
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such row");
    let id: EventId = id.parse().map_err(|_| missing())?;
    let found = admin::show(&http.pool, &token.tenants, id, may_act(&token).is_ok());
    let found = found.await.map_err(unavailable)?.ok_or_else(missing)?;
    Ok(Json(found).into_response())
}

/// How the outbox stands.
pub(super) async fn stats(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let (acked, pace) = ask::stats(&query.unwrap_or_default())?;
    let stats = admin::stats_over(&http.pool, &token.tenants, acked, pace).await;
    Ok(Json(stats.map_err(unavailable)?).into_response())
}

/// Dead letters by reason.
pub(super) async fn dead_letters(State(http): State<Http>, Extension(token): Asker) -> Answer {
    may_look(&token)?;
    let groups = admin::dead_groups(&http.pool, &token.tenants).await.map_err(unavailable)?;
    Ok(Json(serde_json::json!({"groups": groups})).into_response())
}

/// Dead letters back to work.
pub(super) async fn redrive(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Answer {
    may_act(&token)?;
    let what = ask::redrive(&read(body, MAX_BODY_BYTES).await?)?;
    may_see(&token, what.tenant_id)?;
    http.has_room(what.dry_run)?;
    let done = admin::redrive(&http.pool, &token.tenants, &Actor::token(&token), &what).await;
    http.answer(done.map_err(unavailable)?)
}

/// Dead letters that nobody will send again.
pub(super) async fn give_up(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Answer {
    may_act(&token)?;
    let what = ask::give_up(&read(body, MAX_BODY_BYTES).await?)?;
    may_see(&token, what.which.tenant_id)?;
    http.has_room(what.which.dry_run)?;
    let done = admin::give_up(&http.pool, &token.tenants, &Actor::token(&token), &what).await;
    http.answer(done.map_err(unavailable)?)
}

/// Rows of expired leases back to work.
pub(super) async fn unclaim_stuck(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Answer {
    may_act(&token)?;
    let what = ask::unclaim(&read(body, MAX_BODY_BYTES).await?)?;
    may_see(&token, what.tenant_id)?;
    http.has_room(what.dry_run)?;
    let done = admin::unclaim_stuck(&http.pool, &token.tenants, &Actor::token(&token), &what).await;
    http.answer(done.map_err(unavailable)?)
}

impl Http {
    /// Whether the rate lets another action through. What it costs is known afterwards.
    fn has_room(&self, dry_run: bool) -> Result<(), Refused> {
        if dry_run {
            return Ok(());
        }
        let mut acts = self.acts.lock().unwrap_or_else(PoisonError::into_inner);
        let message = "more rows were changed than the rate allows: come back later";
        acts.take(0.0, Instant::now()).map_err(|wait| Refused::rate_limited(message, wait))
    }

    fn answer(&self, done: Done) -> Answer {
        if !done.dry_run {
            let cost = f64::from(u32::try_from(done.rows).unwrap_or(u32::MAX));
            let mut acts = self.acts.lock().unwrap_or_else(PoisonError::into_inner);
            // Another call may have emptied it meanwhile; these rows are paid off all the same.
            acts.owe(cost, Instant::now());
        }
        Ok(Json(done).into_response())
    }
}
