//! A request's token: the one place where it is read and judged.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::{Lookup, Token, TokenHash, Tokens};
use crate::Refused;

impl Tokens {
    /// The token that a request came with: 401 unless it may be used, 503 when that cannot be known.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Token>, Refused> {
        let expected = "expected Authorization: Bearer with a token that was made here";
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = header.and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let hash = presented
            .and_then(TokenHash::of_presented)
            .ok_or_else(|| Refused::unauthorized(expected))?;
        let found = self.find(&hash).await.map_err(|error| {
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
