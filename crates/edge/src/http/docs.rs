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
    use axum::http::Method;

    use super::super::{Open, ROUTES};
    use super::*;

    /// The one route that is known by the nodes' secrets.
    const BACKFILL: &str = "/api/v1/nodes/{node_id}/backfill";

    #[test]
    fn the_document_and_its_page_are_those_of_the_routes() {
        let mut routes = ROUTES.to_vec();
        routes.push((Method::POST, BACKFILL, Open::Never));
        assert_eq!(api::document::problems(openapi(), &routes), Vec::<String>::new());
    }
}
