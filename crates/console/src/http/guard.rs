//! Before every request: is it our own page, who is it, may they act. After it: the headers that keep the page apart from others.

use std::time::Instant;

use api::Refused;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Http;
use crate::access::{self, Scope, User};

/// No script but our own files', no request but to us, no frame around us.
const POLICY: &str = "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// What is open below `/api/` without a session.
const SIGN_IN: &str = "/api/v1/sign-in";
const DOCUMENT: &str = "/api/v1/openapi.json";
/// What somebody who may only look may send.
const SIGN_OUT: &str = "/api/v1/sign-out";

/// What a route asks of whoever calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Nothing: whoever comes is let in.
    Nothing,
    /// To be signed in.
    Session,
    /// To be signed in, with a token that may act.
    Operator,
}

/// What is asked of a request.
pub fn asks(method: &Method, path: &str) -> Asks {
    let open = !path.starts_with("/api/") || path == SIGN_IN || path == DOCUMENT;
    match matches!(*method, Method::GET | Method::HEAD) || path == SIGN_OUT {
        _ if open => Asks::Nothing,
        true => Asks::Session,
        false => Asks::Operator,
    }
}

/// Lets a request through to what is open, or with the user it comes from.
pub(super) async fn guard(State(http): State<Http>, mut request: Request, next: Next) -> Response {
    match judge(&http, request.method(), request.uri().path(), request.headers()).await {
        Ok(user) => {
            if let Some(user) = user {
                request.extensions_mut().insert(user);
            }
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

async fn judge(
    http: &Http,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Option<User>, Refused> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        access::same_origin(headers, http.public_url.as_deref())?;
    }
    let asked = asks(method, path);
    if asked == Asks::Nothing {
        return Ok(None);
    }
    let unknown = || Refused::unauthorized("you are not signed in, or your session is over");
    let id = access::cookie(headers).ok_or_else(unknown)?;
    let session = http.sessions.find(id, Instant::now()).ok_or_else(unknown)?;
    let Some(token) = access::look_up(http, &session.token).await? else {
        http.sessions.close(&session);
        return Err(unknown());
    };
    let scope = Scope::of(&token.tenants);
    let user = User { token, scope, expires_at: session.expires_at, session };
    if asked == Asks::Operator {
        user.may_act()?;
    }
    Ok(Some(user))
}

/// Adds the headers to every answer, refusals and files too.
pub(super) async fn headers(request: Request, next: Next) -> Response {
    let private = request.uri().path().starts_with("/api/");
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    if private {
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}
