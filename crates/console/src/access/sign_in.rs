//! Sign-in, sign-out, and who one is.

use std::net::SocketAddr;
use std::time::Instant;

use api::Refused;
use api::tokens::{Lookup, Role, Token, TokenHash};
use axum::extract::{ConnectInfo, State};
use axum::http::header::{COOKIE as COOKIE_HEADER, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Scope, User};
use crate::http::{Answer, Body, Http};

/// The cookie's name.
pub(crate) const COOKIE: &str = "holdfast_console";

/// What is presented at the door.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    token: String,
}

/// A view that the page can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum View {
    Flow,
    Conservation,
    Nodes,
    Explore,
    Sessions,
    Alarms,
    Schedules,
    Queues,
    Alerts,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    name: String,
    #[schema(value_type = String, pattern = "^(viewer|operator|admin)$")]
    role: Role,
    can_act: bool,
    /// Null: all of them.
    tenants: Option<Vec<Uuid>>,
    /// Those of them that any upstream has named.
    tenants_seen: Vec<Uuid>,
    expires_at: Timestamp,
    views: Vec<View>,
    sites: Vec<String>,
    /// Whether links can be cut.
    in_up: bool,
}

/// The id in a request's cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE_HEADER).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';')).find_map(|one| {
        let (name, value) = one.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

/// Signs in with a token.
#[utoipa::path(post, path = "/api/v1/sign-in", request_body = SignIn, tag = "access",
    responses((status = 200, body = Me), (status = 401), (status = 403), (status = 429)))]
pub(crate) async fn sign_in(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(asked): Body<SignIn>,
) -> Answer {
    let now = Instant::now();
    http.attempts.take(peer.ip(), now).map_err(|wait| {
        Refused::rate_limited("too many attempts to sign in: come back later", wait)
    })?;
    let unknown = || Refused::unauthorized("this is no token that may be used here");
    let hash = TokenHash::of_presented(asked.token.trim()).ok_or_else(unknown)?;
    let token = match look_up(&http, &hash).await? {
        Some(token) => token,
        None => return Err(unknown()),
    };
    if token.role == Role::Edge {
        let message =
            "a token of role edge is a machine's: sign in with a viewer's or an operator's";
        return Err(Refused::forbidden(message));
    }
    let (id, session) = http.sessions.open(hash, token.id, now);
    tracing::info!(token = %token.id, role = token.role.as_str(), "signed in");
    let user =
        User { scope: Scope::of(&token.tenants), token, expires_at: session.expires_at, session };
    let set = format!(
        "{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}",
        id.expose(),
        http.sessions.life().as_secs(),
        if http.secure { "; Secure" } else { "" }
    );
    Ok(([(SET_COOKIE, set)], Json(describe(&http, &user))).into_response())
}

/// Ends the session.
#[utoipa::path(post, path = "/api/v1/sign-out", tag = "access", responses((status = 204), (status = 401)))]
pub(crate) async fn sign_out(
    State(http): State<Http>,
    Extension(user): Extension<User>,
) -> Response {
    http.sessions.close(&user.session);
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    (StatusCode::NO_CONTENT, [(SET_COOKIE, gone)]).into_response()
}

/// Who is signed in.
#[utoipa::path(get, path = "/api/v1/me", tag = "access", responses((status = 200, body = Me), (status = 401)))]
pub(crate) async fn me(State(http): State<Http>, Extension(user): Extension<User>) -> Json<Me> {
    Json(describe(&http, &user))
}

/// The token of a hash, while it may be used.
pub(crate) async fn look_up(
    http: &Http,
    hash: &TokenHash,
) -> Result<Option<std::sync::Arc<Token>>, Refused> {
    let found = http.tokens.find(hash).await.map_err(|error| {
        tracing::warn!(%error, "a token could not be looked up");
        Refused::unavailable("unavailable", "tokens cannot be looked up at the moment")
    })?;
    Ok(match found {
        Lookup::Valid(token) => Some(token),
        Lookup::Revoked | Lookup::Expired | Lookup::Unknown => None,
    })
}

fn describe(http: &Http, user: &User) -> Me {
    let tenants = match &user.scope {
        Scope::All => None,
        Scope::Only(tenants) => Some(tenants.iter().copied().collect()),
    };
    let upstreams = &http.upstreams;
    let mut views = vec![View::Flow];
    if !upstreams.sites.is_empty() {
        views.extend([View::Nodes, View::Conservation]);
    }
    let plant = upstreams.historian.is_some() && user.scope.is_all();
    if !upstreams.sites.is_empty() || plant {
        views.push(View::Explore);
    }
    if upstreams.cloud.is_some() {
        views.push(View::Sessions);
    }
    if plant {
        views.push(View::Alarms);
    }
    if upstreams.schedule.is_some() && user.scope.is_all() {
        views.push(View::Schedules);
    }
    views.extend([View::Queues, View::Alerts]);
    Me {
        name: user.token.name.clone(),
        role: user.token.role,
        can_act: user.can_act(),
        tenants,
        tenants_seen: http.board.tenants(&user.scope),
        expires_at: user.expires_at,
        views,
        sites: upstreams.sites.iter().map(|site| site.name.clone()).collect(),
        in_up: upstreams.control.is_some(),
    }
}
