//! Which trace a request belongs to, and its name in the log.
//!
//! Promises: every answer, a refusal too, carries `traceparent` and `x-request-id`; what is logged while a request is
//! worked on stands in a span with these ids. A header that breaks its grammar counts as absent, and nothing is refused
//! for it. Of an address only the path is logged, because a query may hold what a log must not.

use api::trace::Traceparent;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;
use tracing::field::Empty;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id that is taken over, in characters.
const MAX_REQUEST_ID: usize = 128;
/// How much of a path is logged.
const MAX_PATH_CHARS: usize = 200;

/// The trace of a request, for handlers that make events of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace(Traceparent);

impl Trace {
    /// The trace, as an event names it.
    pub(crate) fn id(self) -> String {
        self.0.trace_id()
    }

    /// The trace of an event: the one it names, or else this request's.
    pub(crate) fn or_own(self, named: Option<String>) -> Option<String> {
        Some(named.unwrap_or_else(|| self.id()))
    }
}

/// Gives a request its span, and the answer its headers.
pub(super) async fn traced(mut request: Request, next: Next) -> Response {
    let parent = Traceparent::of(request.headers());
    let own = parent.map_or_else(Traceparent::mint, Traceparent::child);
    let id = request_id(request.headers());
    let path: String = request.uri().path().chars().take(MAX_PATH_CHARS).collect();
    let span = tracing::info_span!(
        "http_request",
        trace_id = own.trace_id(),
        span_id = own.span_id(),
        parent_span_id = Empty,
        sampled = own.is_sampled(),
        request_id = id.to_str().unwrap_or_default(),
        method = request.method().as_str(),
        path,
    );
    if let Some(parent) = parent {
        span.record("parent_span_id", parent.span_id());
    }
    request.extensions_mut().insert(Trace(own));
    let mut response = next.run(request).instrument(span).await;
    own.tell(response.headers_mut());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The id that the sender gave, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sound = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let given = headers.get(REQUEST_ID).filter(sound).cloned();
    given.unwrap_or_else(|| {
        let minted = uuid::Uuid::now_v7().to_string();
        HeaderValue::try_from(minted).unwrap_or(HeaderValue::from_static("-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_request_id_is_taken_over_and_any_other_is_replaced() {
        let of = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            request_id(&HeaderMap::from_iter([(REQUEST_ID, value)])).to_str().unwrap().to_owned()
        };
        assert_eq!(of("job-7/12"), "job-7/12");
        for text in ["", "two words", "tab\there", &"x".repeat(129)] {
            assert!(of(text).parse::<uuid::Uuid>().is_ok(), "{text:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn an_event_keeps_the_trace_that_it_names() {
        let trace = Trace(Traceparent::mint());
        assert_eq!(trace.or_own(Some("t-1".to_owned())).as_deref(), Some("t-1"));
        assert_eq!(trace.or_own(None), Some(trace.id()));
    }
}
