//! Whether a request that changes something comes from our own page.
//!
//! Two proofs are asked for: a header that another origin's script cannot set without our leave, and the browser's own word about where the
//! request comes from. A request without that word is refused, because every browser of today gives it.

use api::Refused;
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};

const TOKEN: HeaderName = HeaderName::from_static("x-holdfast-csrf");
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what does not come from our page.
pub(crate) fn check(headers: &HeaderMap, public_url: Option<&str>) -> Result<(), Refused> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let refused = |message: &str| Err(Refused::new(StatusCode::FORBIDDEN, "csrf", message));
    if text(&TOKEN) != Some("1") {
        return refused("the header x-holdfast-csrf: 1 is missing");
    }
    let origin = text(&ORIGIN).map(|origin| {
        let own = text(&HOST).is_some_and(|host| {
            ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
        });
        own || public_url == Some(origin)
    });
    match (text(&SITE), origin) {
        (_, Some(false)) => refused("the request comes from another origin"),
        (Some("same-origin"), _) | (None, Some(true)) => Ok(()),
        (Some(_), _) => refused("the request comes from another site"),
        (None, None) => refused("neither Origin nor Sec-Fetch-Site says where this comes from"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(pairs: &[(&'static str, &'static str)], public: Option<&str>) -> bool {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), axum::http::HeaderValue::from_static(value))
        });
        check(&pairs.collect(), public).is_ok()
    }

    #[test]
    fn only_our_own_page_is_let_through() {
        let (ours, host) = (("x-holdfast-csrf", "1"), ("host", "127.0.0.1:8094"));
        let own = ("origin", "http://127.0.0.1:8094");
        assert!(judge(&[ours, host, own], None));
        assert!(judge(&[ours, host, ("sec-fetch-site", "same-origin")], None));
        assert!(judge(&[ours, host, own, ("sec-fetch-site", "same-origin")], None));
        assert!(!judge(&[host, own], None), "without the header");
        assert!(!judge(&[ours, host], None), "without the browser's word");
        assert!(!judge(&[ours, host, ("origin", "http://evil.example")], None));
        assert!(!judge(&[ours, host, ("origin", "null")], None));
        assert!(!judge(&[ours, host, own, ("sec-fetch-site", "cross-site")], None));
        assert!(!judge(&[ours, host, ("sec-fetch-site", "same-site")], None));
        let public = ("origin", "https://console.example");
        assert!(judge(&[ours, host, public], Some("https://console.example")));
        assert!(!judge(&[ours, host, public], None));
    }
}
