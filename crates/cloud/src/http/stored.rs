//! What was accepted and is in no store, and asking for it again: docs/spec/verify.md, "Stored in the cloud".
//!
//! Promises: a token sees and asks for events of its tenants only; asking needs the role operator or admin, and is recorded in
//! `operator_audit`. Ids alone are shown.

use std::time::Duration;

use api::tokens::{Caller, Role};
use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use event::id::{EventId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Http;
use super::query::{Parameters, tenant, unavailable};
use super::refused::Refused;
use crate::dead_letters::audit::Actor;
use crate::ledger::stored::{self, MAX_ASKED};

/// The largest body: a thousand ids, with room.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Hours in one question; each is a few statements.
const MAX_HOURS: usize = 24;

type Asker = Extension<Caller>;
type Answer = Result<Json<Value>, Refused>;

/// Adds the routes.
pub(super) fn routes(router: Router<Http>) -> Router<Http> {
    router.route("/api/v1/ledger/stored", get(unstored)).route("/api/v1/ledger/again", post(again))
}

async fn unstored(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = vec!["tenant_id", "hours", "grace_seconds"];
    let parameters = Parameters::read(query.as_deref(), known)?;
    let tenant = tenant(&token, &parameters)?;
    let wrong = || {
        let message = format!("hours must be 1 to {MAX_HOURS} numbers of hours since 1970");
        Refused::malformed(Some("hours"), message)
    };
    let text = parameters.get("hours").ok_or_else(wrong)?;
    let hours: Result<Vec<i64>, _> = text.split(',').map(str::parse).collect();
    let hours = hours.map_err(|_| wrong())?;
    if hours.len() > MAX_HOURS {
        return Err(wrong());
    }
    let grace = match parameters.get("grace_seconds").map(str::parse::<u32>) {
        None => stored::GRACE,
        Some(Ok(seconds)) => Duration::from_secs(seconds.into()),
        Some(Err(_)) => {
            let message = "grace_seconds must be a number of seconds";
            return Err(Refused::malformed(Some("grace_seconds"), message));
        }
    };
    let (_turn, _place) = (http.query_turn(&token)?, http.query_place()?);
    let mut found = Vec::new();
    for hour in hours {
        let one = stored::unstored(&http.service.pool, tenant, hour, grace).await;
        found.extend(one.map_err(|error| unavailable(&error))?);
    }
    let remembers = http.service.dedupe_ttl.as_secs();
    Ok(Json(json!({"hours": found, "remembers_for_seconds": remembers})))
}

/// What is to be taken in again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Again {
    tenant_id: TenantId,
    #[serde(default)]
    ids: Vec<EventId>,
    #[serde(default)]
    dry_run: bool,
}

async fn again(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    if !matches!(token.role, Role::Admin | Role::Operator) {
        return Err(Refused::forbidden("this needs the role operator or admin"));
    }
    let body = to_bytes(body, MAX_BODY_BYTES)
        .await
        .map_err(|_| Refused::too_large(format!("the body is more than {MAX_BODY_BYTES} bytes")))?;
    let what: Again = serde_json::from_slice(&body).map_err(|_| {
        let expected = "expected {\"tenant_id\", \"ids\": [...], \"dry_run\"}, ids of events";
        Refused::malformed(None, expected)
    })?;
    if !token.tenants.allow(what.tenant_id) {
        let message = "tenant_id is not among the tenants of this token";
        return Err(Refused::forbidden(message).about(Some("tenant_id".to_owned())));
    }
    if !(1..=MAX_ASKED).contains(&what.ids.len()) {
        return Err(Refused::malformed(Some("ids"), format!("ids must be 1 to {MAX_ASKED}")));
    }
    let _turn = http.query_turn(&token)?;
    let (pool, actor) = (&http.service.pool, Actor::from(&token));
    let noted = stored::ask_again(pool, &actor, what.tenant_id, &what.ids, what.dry_run).await;
    Ok(Json(json!({"noted": noted.map_err(|error| unavailable(&error))?})))
}
