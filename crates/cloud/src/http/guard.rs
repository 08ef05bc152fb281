//! Who may ask: the one place where tokens are checked.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, FORWARDED, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refused::Refused;
use super::{Http, Open, ROUTES};
use crate::tokens::{Lookup, Token, TokenHash};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Lets a request through to an open route, or with the token it came with.
pub(super) async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(&request, peer) {
        return next.run(request).await;
    }
    let response = match http.authenticate(request.headers()).await {
        Ok(token) => {
            request.extensions_mut().insert(token);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    };
    http.service.metrics.answered(response.status().as_str());
    response
}

fn is_open(request: &Request, peer: SocketAddr) -> bool {
    let route = ROUTES
        .iter()
        .find(|(method, path, _)| request.method() == method && request.uri().path() == *path);
    match route {
        None | Some((_, _, Open::Never)) => false,
        Some((_, _, Open::ToAll)) => true,
        // A proxy on this machine brings requests from elsewhere, and says so.
        Some((_, _, Open::ToThisMachine)) => {
            let headers = request.headers();
            peer.ip().is_loopback()
                && !headers.contains_key(FORWARDED)
                && !headers.contains_key(FORWARDED_FOR)
        }
    }
}

impl Http {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Token>, Refused> {
        let expected = "expected Authorization: Bearer with a token of this cloud";
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = header.and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let hash = presented
            .and_then(TokenHash::of_presented)
            .ok_or_else(|| Refused::unauthorized(expected))?;
        let found = self.service.tokens.find(&hash).await.map_err(|error| {
            tracing::warn!(%error, "a token could not be looked up");
            Refused::unavailable("unavailable", "tokens cannot be looked up at the moment")
        })?;
        match found {
            Lookup::Valid(token) => Ok(token),
            Lookup::Revoked => Err(Refused::unauthorized("this token has been revoked")),
            Lookup::Expired => Err(Refused::unauthorized("this token has expired")),
            Lookup::Unknown => Err(Refused::unauthorized(expected)),
        }
    }
}

/// Behind the guard: only whoever has a token learns which routes there are.
pub(super) async fn no_such_route() -> Response {
    let message = "there is no such route: see /api/docs";
    Refused::new(StatusCode::NOT_FOUND, "not_found", message).into_response()
}

/// The route is there, with another method.
pub(super) async fn no_such_method() -> Response {
    let message = "this route has another method: see /api/docs";
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response()
}
