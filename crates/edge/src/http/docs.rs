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
    use std::collections::BTreeSet;

    use api::page::operations;

    use super::super::{Open, ROUTES};
    use super::*;

    /// The one route that is known by the nodes' secrets.
    const BACKFILL: &str = "/api/v1/nodes/{node_id}/backfill";

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let written: BTreeSet<(String, String)> = operations(openapi())
            .iter()
            .map(|(path, method, _)| (method.to_uppercase(), (*path).to_owned()))
            .collect();
        let mut routes: BTreeSet<(String, String)> = ROUTES
            .iter()
            .map(|(method, path, _)| (method.to_string(), (*path).to_owned()))
            .collect();
        routes.insert(("POST".to_owned(), BACKFILL.to_owned()));
        assert_eq!(written, routes);
        for (method, path, open) in ROUTES.iter() {
            let operation = &openapi()["paths"][*path][method.as_str().to_lowercase()];
            let said = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(said, *open == Open::ToAll, "{path}");
            assert!(open == &Open::ToAll || operation["responses"].get("401").is_some(), "{path}");
        }
    }

    #[test]
    fn the_page_shows_every_route_and_its_links_lead_somewhere() {
        let page = render(openapi());
        for (_, path, _) in ROUTES.iter() {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        }
        for link in page.split("href=\"#").skip(1) {
            let id = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
}
