//! A request's token: the one place where it is read and judged.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use settings::Secret;

use super::{Caller, Lookup, TokenHash, Tokens};
use crate::Refused;

/// What a request presents as its bearer.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Whether a request bears a secret that stands in a configuration: for what has no tokens of its own. Compared by hash, in a time that tells nothing.
pub fn bears(headers: &HeaderMap, secret: &Secret) -> bool {
    let expected = TokenHash::of(secret.expose());
    let presented = presented(headers).filter(|text| !text.is_empty());
    presented.is_some_and(|text| TokenHash::of(text).matches(expected.bytes()))
}

impl Tokens {
    /// The token that a request came with: 401 unless it may be used, 503 when that cannot be known. And for whom it acts, which is
    /// judged only then.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let expected = "expected Authorization: Bearer with a token that was made here";
        let hash = presented(headers)
            .and_then(TokenHash::of_presented)
            .ok_or_else(|| Refused::unauthorized(expected))?;
        let found = self.find(&hash).await.map_err(|error| {
            tracing::warn!(%error, "a token could not be looked up");
            Refused::unavailable("unavailable", "tokens cannot be looked up at the moment")
        })?;
        match found {
            Lookup::Valid(token) => Caller::new(token, headers),
            Lookup::Revoked => Err(Refused::unauthorized("this token has been revoked")),
            Lookup::Expired => Err(Refused::unauthorized("this token has expired")),
            Lookup::Unknown => Err(Refused::unauthorized(expected)),
        }
    }
}
