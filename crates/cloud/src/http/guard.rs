//! Who may ask: the one place where tokens are checked.

use std::net::SocketAddr;

use api::open::is_open;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refused::Refused;
use super::{Http, ROUTES};

/// Lets a request through to an open route, or with the token it came with.
pub(super) async fn guard(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(ROUTES, &request, peer) {
        return next.run(request).await;
    }
    let response = match http.service.tokens.authenticate(request.headers()).await {
        Ok(token) => {
            request.extensions_mut().insert(token);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    };
    http.service.metrics.answered(response.status().as_str());
    response
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
