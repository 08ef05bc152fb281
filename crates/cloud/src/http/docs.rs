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

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(list) => list.iter().for_each(|element| references(element, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let written: BTreeSet<(String, String)> = operations(openapi())
            .iter()
            .map(|(path, method, _)| (method.to_uppercase(), (*path).to_owned()))
            .collect();
        let routes =
            ROUTES.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned()));
        assert_eq!(written, routes.collect());
        for (method, path, open) in ROUTES {
            let operation = &openapi()["paths"][*path][method.as_str().to_lowercase()];
            let said = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(said, *open == Open::ToAll, "{path}");
            assert!(open == &Open::ToAll || operation["responses"].get("401").is_some(), "{path}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_the_limits_are_the_defaults() {
        let mut found = Vec::new();
        references(openapi(), &mut found);
        assert!(found.len() > 10);
        for path in found {
            assert!(openapi().pointer(&path[1..]).is_some(), "{path}");
        }
        let batch = &openapi()["components"]["schemas"]["Batch"]["properties"];
        let config = crate::Config::load(None, |name| {
            (name == "HOLDFAST_CLOUD_DATABASE_URL").then(|| "postgres:///x".to_owned())
        });
        let limits = config.unwrap().limits.body;
        assert_eq!(batch["events"]["maxItems"], limits.records);
        assert_eq!(batch["tombstones"]["maxItems"], limits.gaps);
    }

    #[test]
    fn the_page_shows_every_route_and_asks_nobody_for_anything() {
        let page = render(openapi());
        for (_, path, _) in ROUTES {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        }
        for name in ["<script", "http://", "https://", "<img", "@import", "url("] {
            assert!(!page.contains(name), "{name}");
        }
        assert!(page.contains("prefers-color-scheme"));
        for link in page.split("href=\"#").skip(1) {
            let id = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
}
