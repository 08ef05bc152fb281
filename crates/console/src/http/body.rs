//! A JSON body, read strictly, with refusals in our form.

use api::Refused;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// A body of this shape.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Refused> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejected| match rejected
            .status()
        {
            StatusCode::PAYLOAD_TOO_LARGE => Refused::too_large("the body is too large"),
            _ => Refused::malformed(None, "the body could not be read"),
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // The library's words may repeat what was sent, and a token may be in it.
        let read = serde_json::from_slice(text);
        read.map(Body).map_err(|error| {
            let at = format!("line {}, column {}", error.line(), error.column());
            let message = format!("the body is not as expected ({at}): see /api/v1/openapi.json");
            Refused::malformed(None, message)
        })
    }
}
