//! The OpenAPI document, and the same as a page.
//!
//! The page is made here from the document: no script, no font, no request to anywhere. It follows
//! the reader's choice of light or dark.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Json;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::openapi;

const STYLE: &str = include_str!("docs.css");
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The document.
pub(super) async fn document() -> Json<&'static Value> {
    Json(openapi())
}

/// The page.
pub(super) async fn page() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(|| render(openapi()));
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, PAGE.as_str()).into_response()
}

/// A page of an OpenAPI document.
fn render(document: &Value) -> String {
    let title = escape(text(&document["info"], "title"));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><nav><h1>{title}</h1>"
    );
    let operations = operations(document);
    html.push_str("<h2>Routes</h2><ul>");
    for (path, method, operation) in &operations {
        let id = escape(text(operation, "operationId"));
        let method = method.to_uppercase();
        let _ = write!(html, "<li><a href=\"#{id}\"><b>{method}</b> {}</a></li>", escape(path));
    }
    html.push_str("</ul><h2>Schemas</h2><ul>");
    for (name, _) in entries(&document["components"]["schemas"]) {
        let name = escape(name);
        let _ = write!(html, "<li><a href=\"#schema-{name}\">{name}</a></li>");
    }
    let about = escape(text(&document["info"], "description"));
    let scheme = &document["components"]["securitySchemes"]["token"];
    let token = escape(text(scheme, "description"));
    let _ = write!(
        html,
        "</ul></nav><main><p>{about}</p><p><b>Authorization: Bearer</b> {token}</p>\
         <p><a href=\"/api/v1/openapi.json\">openapi.json</a></p>"
    );
    for (path, method, operation) in &operations {
        render_operation(&mut html, document, path, method, operation);
    }
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let name = escape(name);
        let _ = write!(html, "<section id=\"schema-{name}\"><h2>{name}</h2>");
        paragraph(&mut html, schema);
        render_fields(&mut html, schema);
        html.push_str("</section>");
    }
    html.push_str("</main></body></html>\n");
    html
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let each = entries(&document["paths"]).flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    each.collect()
}

fn render_operation(
    html: &mut String,
    document: &Value,
    path: &str,
    method: &str,
    operation: &Value,
) {
    let id = escape(text(operation, "operationId"));
    let open = operation["security"].as_array().is_some_and(Vec::is_empty);
    let lock = if open { "open" } else { "needs a token" };
    let _ = write!(
        html,
        "<section id=\"{id}\"><h2><span class=\"method\">{}</span> <code>{}</code> \
         <small>{lock}</small></h2><p><b>{}</b></p>",
        method.to_uppercase(),
        escape(path),
        escape(text(operation, "summary")),
    );
    paragraph(html, operation);
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|list| !list.is_empty()) {
        html.push_str("<h3>Headers and parameters</h3><table>");
        for parameter in parameters {
            row(
                html,
                text(parameter, "name"),
                &parameter["schema"],
                text(parameter, "description"),
            );
        }
        html.push_str("</table>");
    }
    if let Some(body) = operation.get("requestBody") {
        html.push_str("<h3>Body</h3>");
        paragraph(html, body);
        content(html, body);
    }
    html.push_str("<h3>Answers</h3><table>");
    for (status, answer) in entries(&operation["responses"]) {
        let answer = resolve(document, answer);
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}",
            escape(status),
            escape(text(answer, "description"))
        );
        content(html, answer);
        html.push_str("</td></tr>");
    }
    html.push_str("</table></section>");
}

/// What a body or an answer consists of.
fn content(html: &mut String, of: &Value) {
    for (kind, body) in entries(&of["content"]) {
        let _ = write!(html, " <code>{}</code> {}", escape(kind), type_of(&body["schema"]));
    }
}

fn render_fields(html: &mut String, schema: &Value) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    html.push_str("<table>");
    for (name, field) in entries(&schema["properties"]) {
        let star = if required.contains(&name.as_str()) { "required. " } else { "" };
        row(html, name, field, &format!("{star}{}", text(field, "description")));
    }
    html.push_str("</table>");
}

fn row(html: &mut String, name: &str, schema: &Value, about: &str) {
    let _ = write!(
        html,
        "<tr><th><code>{}</code></th><td>{}</td><td>{}</td></tr>",
        escape(name),
        type_of(schema),
        escape(about)
    );
}

/// A schema in a few words, with a link where it has a name.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    if let Some(value) = schema.get("const") {
        return format!("<code>{}</code>", escape(&value.to_string()));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).collect::<Vec<_>>();
        return escape(&words.join(" | "));
    }
    let mut words = match &schema["type"] {
        Value::Array(types) => {
            types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    if words == "array" {
        let most = schema["maxItems"].as_u64().map(|most| format!(", at most {most}"));
        return format!("list of {}{}", type_of(&schema["items"]), most.unwrap_or_default());
    }
    for name in ["format", "pattern"] {
        if let Some(rule) = schema[name].as_str() {
            let _ = write!(words, ", {rule}");
        }
    }
    escape(&words)
}

/// What a reference inside the document refers to.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(value)
}

fn paragraph(html: &mut String, of: &Value) {
    if let Some(about) = of["description"].as_str() {
        let _ = write!(html, "<p>{}</p>", escape(about));
    }
}

fn entries(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flat_map(Map::iter)
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    #[test]
    fn what_the_document_says_is_text_in_the_page() {
        let page = render(&serde_json::json!({"info": {"title": "<b>\"&"}}));
        assert!(page.contains("<title>&lt;b&gt;&quot;&amp;</title>"), "{page}");
    }
}
