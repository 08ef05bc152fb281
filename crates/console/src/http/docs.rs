//! The OpenAPI document, made from the handlers and their shapes.

use std::sync::LazyLock;

use axum::Json;
use serde_json::Value;
use utoipa::OpenApi;

use crate::picture::NodeChanges;
use crate::{access, alerts, conservation, explore, farm, jobs, picture, plant, queues, rota};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast console",
        description = "The API of the operator's page. Sign in with a token; the session is in a cookie. Whatever is not GET needs \
                       the header x-holdfast-csrf: 1 and comes from the page itself. docs/spec/console.md says the rest."
    ),
    paths(
        access::sign_in,
        access::sign_out,
        access::me,
        picture::whole,
        picture::stream,
        picture::history,
        picture::cut,
        picture::restore,
        picture::nodes,
        picture::node,
        conservation::list,
        conservation::gaps,
        conservation::verify,
        conservation::where_is,
        jobs::list,
        jobs::show,
        queues::list,
        queues::redrive,
        explore::series,
        explore::points,
        explore::marks,
        explore::csv,
        farm::sessions,
        farm::session,
        farm::media,
        plant::alarms,
        plant::acknowledge,
        plant::shelve,
        plant::unshelve,
        rota::week,
        alerts::list,
    ),
    components(schemas(NodeChanges))
)]
struct Document;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    // Shapes are names and words: they can always be written.
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    let refusal = serde_json::json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {"type": "object", "required": ["code", "message", "field"], "properties": {
            "code": {"type": "string"}, "message": {"type": "string"}, "field": {"type": ["string", "null"]}}}}
    });
    document["components"]["schemas"]["Refused"] = refusal;
    if let Value::Object(schemas) = &mut document["components"]["schemas"] {
        for (name, schema) in schemas {
            if !ASKED.contains(&name.as_str()) {
                all_required(schema);
            }
        }
    }
    document
});

/// What is sent to us: there, what may be left out may be left out.
const ASKED: &[&str] = &["SignIn", "Verify", "Redrive", "Shelve", "Nothing"];

/// What we send is always there, null where it is not known; the library takes whatever may be null for something that may be absent.
fn all_required(schema: &mut Value) {
    if let Value::Object(properties) = &schema["properties"] {
        let names: Vec<Value> = properties.keys().map(|name| Value::from(name.as_str())).collect();
        schema["required"] = Value::Array(names);
    }
    if let Some(parts) = schema.get_mut("allOf").and_then(Value::as_array_mut) {
        parts.iter_mut().for_each(all_required);
    }
}

/// The document.
pub fn openapi() -> &'static Value {
    &DOCUMENT
}

/// Serves it.
pub(super) async fn document() -> Json<&'static Value> {
    Json(openapi())
}
