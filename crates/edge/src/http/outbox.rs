//! The outbox for operators: who may do what, and the answers.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use api::Refused;
use api::tokens::{Role, Token};
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use event::id::{EventId, TenantId};

use super::{Http, ask};
use crate::sync::admin::{self, Actor, Done};

/// The largest body: a thousand ids, with room.
const MAX_BODY_BYTES: usize = 256 << 10;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

type Answer = Result<Response, Refused>;
type Asker = Extension<Arc<Token>>;

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
    let acked = ask::with_acked(&query.unwrap_or_default())?;
    let stats = admin::stats(&http.pool, &token.tenants, acked).await.map_err(unavailable)?;
    Ok(Json(stats).into_response())
}

/// Dead letters back to work.
pub(super) async fn redrive(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Answer {
    may_act(&token)?;
    let what = ask::redrive(&read(body).await?)?;
    may_see(&token, what.tenant_id)?;
    http.has_room(what.dry_run)?;
    let done = admin::redrive(&http.pool, &token.tenants, &Actor::token(&token), &what).await;
    http.answer(done.map_err(unavailable)?)
}

/// Rows of expired leases back to work.
pub(super) async fn unclaim_stuck(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Answer {
    may_act(&token)?;
    let what = ask::unclaim(&read(body).await?)?;
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
        let message = "more rows were put back than the rate allows: come back later";
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

async fn read(body: Body) -> Result<axum::body::Bytes, Refused> {
    let message = format!("the body is more than the limit of {MAX_BODY_BYTES} bytes");
    let whole = tokio::time::timeout(BODY_WITHIN, to_bytes(body, MAX_BODY_BYTES)).await;
    let slow = |_| Refused::malformed(None, "the body did not arrive in time");
    whole.map_err(slow)?.map_err(|_| Refused::too_large(message))
}

fn may_look(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator | Role::Viewer => Ok(()),
        Role::Edge => Err(Refused::forbidden("this needs the role viewer, operator or admin")),
    }
}

fn may_act(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator => Ok(()),
        Role::Edge | Role::Viewer => {
            Err(Refused::forbidden("this needs the role operator or admin"))
        }
    }
}

fn may_see(token: &Token, tenant: Option<TenantId>) -> Result<(), Refused> {
    match tenant {
        Some(tenant) if !token.tenants.allow(tenant) => {
            let message = "tenant_id is not among the tenants of this token";
            Err(Refused::forbidden(message).about(Some("tenant_id".to_owned())))
        }
        _ => Ok(()),
    }
}

fn unavailable(error: pg::Error) -> Refused {
    tracing::warn!(%error, "the outbox could not be asked");
    Refused::unavailable("unavailable", "the database cannot be asked at the moment")
}
