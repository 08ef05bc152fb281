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
    use std::collections::BTreeSet;

    use api::open::Open;
    use api::page::operations;

    use super::super::ROUTES;
    use super::*;

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
            assert!(*open == Open::ToAll || operation["responses"].get("401").is_some(), "{path}");
        }
        let page = render(openapi());
        for (_, path, _) in ROUTES {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        }
    }

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
    fn every_reference_leads_somewhere() {
        let mut found = Vec::new();
        references(openapi(), &mut found);
        assert!(found.len() > 10);
        for path in found {
            assert!(openapi().pointer(&path[1..]).is_some(), "{path}");
        }
    }
}
