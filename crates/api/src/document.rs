//! What an OpenAPI document must say of the routes it is for. Each role's tests ask, so that no document is built in that says something else.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::open::{Open, Route};
use crate::page::{operations, render};

/// What a page has that asks somebody else for something.
const FOREIGN: [&str; 6] = ["<script", "http://", "https://", "<img", "@import", "url("];

/// What is wrong with a document and the page made of it, a sentence each; nothing when all is well.
pub fn problems(document: &Value, routes: &[Route]) -> Vec<String> {
    let mut found = Vec::new();
    let written: BTreeSet<(String, String)> = operations(document)
        .iter()
        .map(|(path, method, _)| (method.to_uppercase(), (*path).to_owned()))
        .collect();
    let there: BTreeSet<(String, String)> =
        routes.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned())).collect();
    found.extend(
        there.difference(&written).map(|(method, path)| format!("{method} {path} is not in it")),
    );
    found.extend(
        written.difference(&there).map(|(method, path)| format!("{method} {path} is no route")),
    );
    let page = render(document);
    for (method, path, open) in routes {
        let operation = &document["paths"][*path][method.as_str().to_lowercase()];
        let said = operation["security"].as_array().is_some_and(Vec::is_empty);
        if said != (*open == Open::ToAll) {
            found.push(format!("{method} {path}: whether it wants a token is said wrong"));
        }
        if *open != Open::ToAll && operation["responses"].get("401").is_none() {
            found.push(format!("{method} {path}: 401 is not among its answers"));
        }
        if !page.contains(&format!("<code>{path}</code>")) {
            found.push(format!("{path} is not on the page"));
        }
    }
    references(document, &mut |path| {
        let leads = path.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        if leads.is_none() {
            found.push(format!("{path} leads nowhere"));
        }
    });
    found.extend(
        FOREIGN
            .iter()
            .filter(|name| page.contains(*name))
            .map(|name| format!("the page has {name}")),
    );
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap_or_default();
        if !page.contains(&format!("id=\"{id}\"")) {
            found.push(format!("the page has no {id} to go to"));
        }
    }
    found
}

fn references(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            if let Some(path) = fields.get("$ref").and_then(Value::as_str) {
                found(path);
            }
            for field in fields.values() {
                references(field, found);
            }
        }
        Value::Array(list) => {
            for element in list {
                references(element, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "info": {"title": "One", "description": "Few words."},
            "paths": {
                "/healthz": {"get": {"operationId": "health", "security": [], "responses": {"200": {"description": "It lives."}}}},
                "/api/v1/things": {"get": {"operationId": "things", "responses": {
                    "200": {"description": "They are.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
                    "401": {"description": "No."}}}}
            },
            "components": {
                "schemas": {"Thing": {"type": "object", "properties": {}}},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token."}}
            }
        })
    }

    #[test]
    fn a_document_is_held_to_its_routes() {
        let routes =
            [(Method::GET, "/healthz", Open::ToAll), (Method::GET, "/api/v1/things", Open::Never)];
        let good = document();
        assert_eq!(problems(&good, &routes), Vec::<String>::new());
        let said = |document: &Value, routes: &[Route]| problems(document, routes).join("\n");
        assert!(said(&good, &routes[..1]).contains("is no route"));
        let more = [&routes[..], &[(Method::POST, "/api/v1/things", Open::Never)]].concat();
        assert!(said(&good, &more).contains("POST /api/v1/things is not in it"));
        let closed = [(Method::GET, "/healthz", Open::Never), routes[1].clone()];
        assert!(said(&good, &closed).contains("said wrong"));
        for (at, value, words) in [
            ("/paths/~1api~1v1~1things/get/responses/401", Value::Null, "401 is not"),
            ("/paths/~1api~1v1~1things/get/security", json!([]), "said wrong"),
            ("/components/schemas", json!({}), "leads nowhere"),
            ("/info/description", json!("See http://elsewhere."), "the page has http://"),
        ] {
            let mut bad = good.clone();
            let (parent, name) = at.rsplit_once('/').unwrap();
            let fields = bad.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            match value {
                Value::Null => drop(fields.remove(name)),
                value => drop(fields.insert(name.to_owned(), value)),
            }
            assert!(said(&bad, &routes).contains(words), "{at}: {}", said(&bad, &routes));
        }
    }
}
