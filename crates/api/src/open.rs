//! Which routes are open without a token. A role lists its routes; what is not in the list as open is
//! closed, so that a new one cannot be forgotten.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::Method;
use axum::http::header::{FORWARDED, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A route, and who may ask it without a token.
pub type Route = (Method, &'static str, Open);

/// Who may ask without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Nobody.
    Never,
    /// Whoever is on this machine.
    ToThisMachine,
    /// Everyone: it shows nothing of any tenant.
    ToAll,
}

/// Whether a request needs no token.
pub fn is_open(routes: &[Route], request: &Request, peer: SocketAddr) -> bool {
    let route = routes
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
