//! The OpenAPI document: the page's client is made from the committed copy.

use std::path::Path;

#[test]
fn the_committed_copy_is_the_document() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/openapi.json");
    let committed: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(
        committed == *console::openapi(),
        "write it again: cargo run -p console --example openapi > web/openapi.json"
    );
}

fn references<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(serde_json::Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|one| references(one, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = console::openapi();
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(found.len() > 30, "{}", found.len());
    for path in found {
        assert!(document.pointer(&path[1..]).is_some(), "{path}");
    }
}

/// Two of one name are one to a client that is made from the document, with the answer of the first.
#[test]
fn every_operation_has_a_name_of_its_own() {
    let paths = console::openapi()["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> =
        operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
