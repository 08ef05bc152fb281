//! The page's files, built into the binary, and how they are answered.
//!
//! Files under `assets/` have a hash in their names, so a browser may keep them for ever; everything else is asked for again. A path that is no
//! file and has no dot is a place within the page, which the page itself knows.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

type File = (&'static str, &'static [u8]);

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The tags of the files, in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |(_, bytes): &File| {
        let digest = Sha256::digest(bytes);
        format!("\"{}\"", digest[..12].iter().map(|b| format!("{b:02x}")).collect::<String>())
    };
    FILES.iter().map(tag).collect()
});

const PAGE: &str = "index.html";

/// The file of a path, or the page.
pub(crate) async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let reads = matches!(method, Method::GET | Method::HEAD);
    let found = find(path).or_else(|| {
        let place = !path.starts_with("api/") && !path.contains('.');
        place.then(|| find(PAGE)).flatten()
    });
    let Some(index) = found.filter(|_| reads) else {
        let message = "there is no such file or route";
        return api::Refused::new(StatusCode::NOT_FOUND, "not_found", message).into_response();
    };
    let ((name, bytes), tag) = (FILES[index], &TAGS[index]);
    let keep = match name.starts_with("assets/") {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let head = [(CONTENT_TYPE, kind(name)), (CACHE_CONTROL, keep), (ETAG, tag.as_str())];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, bytes).into_response()
}

fn find(path: &str) -> Option<usize> {
    let path = if path.is_empty() { PAGE } else { path };
    FILES.binary_search_by(|(name, _)| (*name).cmp(path)).ok()
}

/// The type by the name's ending; only what a built page has.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "map" | "webmanifest") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
