//! The OpenAPI document, and the same as a page.

use std::sync::LazyLock;

use api::page::{render, response};
use axum::Json;
use axum::response::Response;
use serde_json::Value;

use super::openapi;

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
