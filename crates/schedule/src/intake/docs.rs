//! The OpenAPI document, and the same as a page.

use std::sync::LazyLock;

use api::page::{render, response};
use axum::Json;
use axum::response::Response;
use serde_json::Value;

/// The OpenAPI document.
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        // A test reads the document, so that one that cannot be read is never built in.
        serde_json::from_str(include_str!("openapi.json")).unwrap_or_default()
    });
    &DOCUMENT
}

/// The document.
pub(super) async fn document() -> Json<&'static Value> {
    Json(openapi())
}

/// The page.
pub(super) async fn page() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(|| render(openapi()));
    response(&PAGE)
}

#[cfg(test)]
mod tests {
    use super::super::ROUTES;
    use super::*;

    #[test]
    fn the_document_and_its_page_are_those_of_the_routes() {
        assert_eq!(api::document::problems(openapi(), ROUTES), Vec::<String>::new());
    }
}
