//! A refusal, in the form that every endpoint uses.

use std::time::Duration;

use axum::Json;
use axum::http::header::{CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// How long a sender is asked to wait when nothing better is known.
const WAIT: Duration = Duration::from_secs(1);

/// What the sender is told.
#[derive(Debug)]
pub struct Refused {
    /// The status.
    pub status: StatusCode,
    /// A word for programs.
    pub code: &'static str,
    message: String,
    /// The field that is wrong, where it is one.
    pub field: Option<String>,
    /// The state that does not allow it, where it is one.
    pub state: Option<String>,
    wait: Option<Duration>,
}

impl Refused {
    /// A refusal without a field.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refused {
        Refused { status, code, message: message.into(), field: None, state: None, wait: None }
    }

    /// 400: the request cannot be read.
    pub fn malformed(field: Option<&str>, message: impl Into<String>) -> Refused {
        let refused = Refused::new(StatusCode::BAD_REQUEST, "malformed", message);
        refused.about(field.map(str::to_owned))
    }

    /// The same refusal, about this field.
    pub fn about(self, field: Option<String>) -> Refused {
        Refused { field, ..self }
    }

    /// The same refusal, because of this state of what was asked for.
    pub fn in_state(self, state: impl Into<String>) -> Refused {
        Refused { state: Some(state.into()), ..self }
    }

    /// The same refusal; the sender may come back after this long.
    pub fn after(self, wait: Duration) -> Refused {
        Refused { wait: Some(wait), ..self }
    }

    /// 401: no token, or none that may be used.
    pub fn unauthorized(message: &str) -> Refused {
        Refused::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403: the token may not do this.
    pub fn forbidden(message: impl Into<String>) -> Refused {
        Refused::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 413: more than the limit.
    pub fn too_large(message: impl Into<String>) -> Refused {
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 429: come back after this long.
    pub fn rate_limited(message: &str, wait: Duration) -> Refused {
        Refused::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).after(wait)
    }

    /// Nothing is wrong with the request; it cannot be served now.
    pub fn unavailable(code: &'static str, message: &str) -> Refused {
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, code, message).after(WAIT)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body = serde_json::json!({
            "error": {"code": self.code, "message": self.message, "field": self.field}
        });
        if let Some(state) = self.state {
            body["error"]["state"] = state.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.wait {
            // Whole seconds, rounded up, at least one.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so the connection cannot be used again.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
