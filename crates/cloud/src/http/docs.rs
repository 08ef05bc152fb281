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

    #[test]
    fn the_limits_are_the_defaults() {
        let batch = &openapi()["components"]["schemas"]["Batch"]["properties"];
        let config = crate::Config::load(None, |name| {
            (name == "HOLDFAST_CLOUD_DATABASE_URL").then(|| "postgres:///x".to_owned())
        });
        let limits = config.unwrap().limits.body;
        assert_eq!(batch["events"]["maxItems"], limits.records);
        assert_eq!(batch["tombstones"]["maxItems"], limits.gaps);
    }
}
