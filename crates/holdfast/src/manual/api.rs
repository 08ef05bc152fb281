//! Every role's HTTP as one Markdown page, made from the roles' own OpenAPI documents.
//!
//! Who may is read where the role itself says it: the document's sentence "Roles: …", the console's guard, the producer's list of open
//! routes. A route of which none of them says it has [`UNSAID`] there, and a test fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::api::open::{Open, Route};
use ::api::page::operations;
use axum::http::Method;
use console::{Asks, asks};
use serde_json::Value;

use super::markdown::cell;

/// What stands where nobody says who may.
const UNSAID: &str = "?";

/// What stands above the roles.
const HEAD: &str = "# The HTTP APIs

This page is printed by `holdfast manual --api`; a test keeps it so. It has every route of every role in short. A role that runs has the whole at `/api/docs`, for
programs at `/api/v1/openapi.json`: every field, every refusal, every limit. Errors look the same everywhere: `{\"error\": {\"code\", \"message\", \"field\"}}`, and where a state does not allow it a `state`.

Who may: a token of one of the roles named, as `Authorization: Bearer …`; `holdfast token create` makes them, with `--edge`, `--historian` or `--schedule` for those APIs. A token
sees its tenants only. Parameters in brackets may be left out; those of the path are not repeated.
";

/// What stands below them.
const TAIL: &str = "
## Others

A field node (`holdfast-node`) and the worker of schedules (`holdfast schedule run`) have no API. With `node.metrics.listen` or `schedule.metrics.listen` they answer `GET /metrics`, the worker
`GET /healthz` too, to this machine only.
";

/// A role that has a document.
struct Documented {
    name: &'static str,
    /// How it is run, and which key says where it listens.
    run: &'static str,
    document: fn() -> &'static Value,
    who: fn(method: &str, path: &str, operation: &Value) -> String,
    /// What the document does not have.
    more: &'static str,
}

const ROLES: [Documented; 5] = [
    Documented {
        name: "Edge",
        run: "`holdfast edge run`, at `edge.http.listen`; a process has the routes of its roles (`edge.roles`)",
        document: edge::openapi,
        who: said,
        more: "",
    },
    Documented {
        name: "Cloud",
        run: "`holdfast cloud run`, at `cloud.http.listen`",
        document: cloud::openapi,
        who: said,
        more: "",
    },
    Documented {
        name: "Historian",
        run: "`holdfast scada historian run`, at `historian.http.listen`",
        document: ::scada::historian::openapi,
        who: said,
        more: "",
    },
    Documented {
        name: "Intake of schedules",
        run: "`holdfast schedule serve`, at `schedule.http.listen`; tokens are made with `--all-tenants`, since users are no tenants",
        document: ::schedule::intake::openapi,
        who: said,
        more: "",
    },
    Documented {
        name: "Console",
        run: "`holdfast console run`, at `console.http.listen`",
        document: console::openapi,
        who: at_console,
        more: "Beside them, open to everyone: `GET /api/v1/openapi.json`, `GET /healthz`, `GET /readyz` and the page's own files; `GET /metrics` to this machine and to any role.\n",
    },
];

/// The page.
pub(super) fn page() -> String {
    let mut text = HEAD.to_owned();
    for role in &ROLES {
        let document = (role.document)();
        let about = document["info"]["description"].as_str().unwrap_or_default();
        let _ = writeln!(text, "\n## {}\n\n{about}\n\nRun by {}.\n", role.name, role.run);
        table(&mut text, document, role.who);
        if !role.more.is_empty() {
            let _ = write!(text, "\n{}", role.more);
        }
    }
    let run = "`holdfast scada producer run`, at `producer.http.listen`";
    let _ = writeln!(
        text,
        "\n## SCADA node\n\nHealth and metrics. From elsewhere `/metrics` wants the node's own `producer.http.metrics_token` as a bearer, and is closed where there is none. Run by {run}."
    );
    text.push_str("\n| | path | who may |\n|---|---|---|\n");
    for route in ::scada::producer::ROUTES {
        bare(&mut text, route);
    }
    text.push_str(TAIL);
    text
}

fn table(text: &mut String, document: &Value, who: fn(&str, &str, &Value) -> String) {
    text.push_str("| | path | who may | what | takes | answers |\n|---|---|---|---|---|---|\n");
    // By path and method, whatever the order in the document.
    let sorted: BTreeMap<_, _> = operations(document)
        .into_iter()
        .map(|(path, method, operation)| ((path, method.to_uppercase()), operation))
        .collect();
    for ((path, method), operation) in sorted {
        let summary = operation["summary"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {method} | `{path}` | {} | {} | {} | {} |",
            who(&method, path, operation),
            cell(summary.trim_end_matches('.')),
            cell(&takes(document, operation)),
            cell(&answers(document, operation)),
        );
    }
}

fn bare(text: &mut String, (method, path, open): &Route) {
    let who = match open {
        Open::Never => "nobody",
        Open::ToThisMachine => "this machine",
        Open::ToAll => "everyone",
    };
    let _ = writeln!(text, "| {method} | `{path}` | {who} |");
}

/// Who may, as the document says it.
fn said(_: &str, _: &str, operation: &Value) -> String {
    let schemes = operation["security"].as_array();
    if schemes.is_some_and(Vec::is_empty) {
        return "everyone".to_owned();
    }
    if schemes.into_iter().flatten().any(|scheme| scheme.get("node").is_some()) {
        return "the node, by its secret".to_owned();
    }
    let about = operation["description"].as_str().unwrap_or_default();
    let listed = about.split("Roles: ").nth(1).and_then(|rest| rest.split('.').next());
    match listed {
        Some(roles) => roles.to_owned(),
        None if about.contains("Any role.") => "any role".to_owned(),
        None if about.contains("a token of any role") => "this machine; any role".to_owned(),
        None => UNSAID.to_owned(),
    }
}

/// Who may, as the console's guard decides it.
fn at_console(method: &str, path: &str, _: &Value) -> String {
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return UNSAID.to_owned();
    };
    match asks(&method, path) {
        Asks::Nothing => "everyone",
        Asks::Session => "viewer, operator, admin",
        Asks::Operator => "operator, admin",
    }
    .to_owned()
}

/// Parameters and body.
fn takes(document: &Value, operation: &Value) -> String {
    let mut needed = Vec::new();
    let mut optional = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = resolve(document, parameter);
        let name = parameter["name"].as_str().unwrap_or_default();
        let written = match parameter["in"].as_str() {
            Some("path") => continue,
            Some("header") => format!("header `{name}`"),
            _ => format!("`{name}`"),
        };
        match parameter["required"].as_bool() {
            Some(true) => needed.push(written),
            _ => optional.push(written),
        }
    }
    if !optional.is_empty() {
        needed.push(format!("[{}]", optional.join(", ")));
    }
    if let Some(body) = operation.get("requestBody") {
        needed.push(format!("body {}", content(resolve(document, body))));
    }
    needed.join(", ")
}

/// What comes back when all is well.
fn answers(document: &Value, operation: &Value) -> String {
    let all = operation["responses"].as_object();
    // By status, whatever the order in the document.
    let well: BTreeMap<_, _> =
        all.into_iter().flatten().filter(|(status, _)| status.starts_with('2')).collect();
    let each = well.into_iter().map(|(status, answer)| {
        let shape = content(resolve(document, answer));
        format!("{status} {shape}").trim_end().to_owned()
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A body's shapes by their names; its kind where a shape has none.
fn content(of: &Value) -> String {
    let kinds: BTreeMap<_, _> = of["content"].as_object().into_iter().flatten().collect();
    let each = kinds.into_iter().map(|(kind, body)| match body["schema"]["$ref"].as_str() {
        Some(path) => format!("`{}`", path.rsplit('/').next().unwrap_or(path)),
        None => kind.clone(),
    });
    each.collect::<Vec<_>>().join(" or ")
}

/// What a reference inside the document refers to.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_says_of_every_route_who_may() {
        for role in &ROLES {
            let document = (role.document)();
            let all = operations(document);
            assert!(all.len() > 5, "{} has {} routes", role.name, all.len());
            for (path, method, operation) in all {
                let who = (role.who)(&method.to_uppercase(), path, operation);
                assert_ne!(
                    who, UNSAID,
                    "{method} {path} of {}: add Roles: … to its description",
                    role.name
                );
            }
        }
    }
}
