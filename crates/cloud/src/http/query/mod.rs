//! What can be asked: one tenant's data, page by page.
//!
//! Promises: a token sees the tenants it names and no other; every statement begins with the tenant.
//! Pages follow the order of a key, so rows that come in between never shift a page, and a page has a
//! largest size. A parameter that is not known, not understood or there twice is refused, and the
//! refusal says which and what would be right. docs/spec/cloud-api.md lists the routes.
//!
//! It only reads. Queries worked on at once are bounded, so that they cannot keep ingestion from the
//! database.

mod gaps;
mod kpis;
mod ledger;
mod listing;
mod listings;
mod parameters;
mod row;
mod session;

use std::time::Instant;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use event::id::TenantId;
use serde_json::Value;

use self::listing::Listing;
pub(super) use self::parameters::Parameters;
use super::Http;
use super::quota::Over;
use super::refused::Refused;
use crate::tokens::{Caller, Role, Tenants, Token};

/// Adds the routes.
pub(super) fn routes(mut router: Router<Http>) -> Router<Http> {
    for (path, listing) in listings::ALL {
        let handler = async move |State(http): State<Http>,
                                  Extension(token): Extension<Caller>,
                                  RawQuery(query): RawQuery| {
            answer(http.list(&token, query.as_deref(), listing).await)
        };
        router = router.route(path, get(handler));
    }
    ledger::routes(router).route("/api/v1/sessions/{session_id}", get(one_session))
}

async fn one_session(
    State(http): State<Http>,
    Extension(token): Extension<Caller>,
    Path(session): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.session(&token, query.as_deref(), &session).await)
}

fn answer(result: Result<Value, Refused>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(refused) => refused.into_response(),
    }
}

impl Http {
    async fn list(
        &self,
        token: &Token,
        query: Option<&str>,
        listing: &'static Listing,
    ) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, listing.parameters())?;
        let tenant = tenant(token, &parameters)?;
        let page = listing.page(&parameters)?;
        let _turn = self.query_turn(token)?;
        let _place = self.query_place()?;
        let client = self.service.pool.get().await.map_err(|error| unavailable(&error))?;
        page.fetch(&client, tenant.uuid()).await
    }

    async fn session(
        &self,
        token: &Token,
        query: Option<&str>,
        session: &str,
    ) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id"])?;
        let tenant = tenant(token, &parameters)?;
        let session = session.parse::<event::id::SessionId>().map_err(|error| {
            Refused::malformed(Some("session_id"), format!("session_id {error}"))
        })?;
        let _turn = self.query_turn(token)?;
        let _place = self.query_place()?;
        let client = self.service.pool.get().await.map_err(|error| unavailable(&error))?;
        session::fetch(&client, tenant.uuid(), session.uuid()).await
    }

    pub(super) fn query_turn(&self, token: &Token) -> Result<super::quota::Turn, Refused> {
        self.quotas.enter(token.id, Instant::now()).map_err(|over| match over {
            Over::AtOnce => {
                let message = "as many requests of this token as allowed are under way";
                Refused::rate_limited(message, std::time::Duration::from_secs(1))
            }
            Over::Rate(wait) => {
                Refused::rate_limited("this token asks more often a second than allowed", wait)
            }
        })
    }

    pub(super) fn query_place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Refused> {
        self.queries.try_acquire().map_err(|_| {
            Refused::unavailable("busy", "as many queries as allowed are under way: come back")
        })
    }
}

/// Whose data is asked for. It may be left out when the token names one tenant.
pub(super) fn tenant(token: &Token, parameters: &Parameters) -> Result<TenantId, Refused> {
    if token.role == Role::Edge {
        let message = "a token of role edge may not read: use one of role viewer";
        return Err(Refused::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let named = match (parameters.get("tenant_id"), &token.tenants) {
        (Some(text), _) => text
            .parse::<TenantId>()
            .map_err(|error| Refused::malformed(Some("tenant_id"), format!("tenant_id {error}")))?,
        (None, Tenants::Only(tenants)) if tenants.len() == 1 => tenants[0],
        (None, _) => {
            let message = "tenant_id is missing: this token may read several tenants, name one";
            return Err(Refused::malformed(Some("tenant_id"), message));
        }
    };
    if !token.tenants.allow(named) {
        let message = "this token may not read that tenant";
        let refused = Refused::new(StatusCode::FORBIDDEN, "tenant_forbidden", message);
        return Err(refused.about(Some("tenant_id".to_owned())));
    }
    Ok(named)
}

/// The server's words are for the log; the asker is told to come back.
pub(super) fn unavailable(error: &pg::Error) -> Refused {
    tracing::warn!(%error, "a query could not be answered");
    Refused::unavailable("unavailable", "the database cannot answer at the moment")
}
