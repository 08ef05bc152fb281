//! An OpenAPI document as a page.
//!
//! The page is made here from the document: no script, no font, no request to anywhere. It follows
//! the reader's choice of light or dark.

use std::fmt::Write as _;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

const STYLE: &str = include_str!("page.css");
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The answer that shows a page.
pub fn response(html: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, html).into_response()
}

/// A page of an OpenAPI document.
pub fn render(document: &Value) -> String {
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

/// Every operation of a document: path, method, and what is said of it.
pub fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
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
    use super::*;

    #[test]
    fn what_the_document_says_is_text_in_the_page() {
        let page = render(&serde_json::json!({"info": {"title": "<b>\"&"}}));
        assert!(page.contains("<title>&lt;b&gt;&quot;&amp;</title>"), "{page}");
    }
}
