//! The farm envelope against its documented examples and every rule.

mod payload;

use serde_json::{Value, json};

use super::{Envelope, EventType};
use crate::id::TenantId;
use crate::{Invalid, InvalidKind, MAX_EVENT_BYTES};

/// The eight documented examples, one a line, values and order as documented.
const EXAMPLES: &str = include_str!("../../../tests/farm_examples.jsonl");

fn example(event_type: &str) -> Value {
    EXAMPLES
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["event_type"] == event_type)
        .unwrap()
}

/// An example with one value replaced or, in its payload, added.
fn with(event_type: &str, path: &str, value: Value) -> Result<Envelope, Invalid> {
    let mut event = example(event_type);
    let pointer = format!("/{}", path.replace('.', "/"));
    match event.pointer_mut(&pointer) {
        Some(place) => *place = value,
        None => event["payload"][path.strip_prefix("payload.").unwrap()] = value,
    }
    Envelope::parse(event.to_string().as_bytes())
}

fn refused(event_type: &str, path: &str, value: Value) {
    let shown = value.to_string();
    let err = with(event_type, path, value).expect_err(&format!("{event_type} {path} {shown}"));
    assert_eq!(err.field, path, "{event_type} {shown}: {err}");
    assert!(err.problem.contains("expected"), "{err}");
}

#[test]
fn every_example_round_trips_byte_for_byte() {
    let mut types = Vec::new();
    for line in EXAMPLES.lines() {
        let envelope = Envelope::parse(line.as_bytes()).unwrap();
        assert_eq!(envelope.to_json(), line);
        types.push(envelope.event_type);
    }
    assert_eq!(types, EventType::CORE);
}

#[test]
fn a_payload_keeps_its_text_and_unknown_fields_beside_it_are_dropped() {
    let payload = "{ \"code\" : \"NH3_HIGH\", \"n\":1.50e1,\"n\":2 }";
    let json = format!(
        "{{\"extra\":[1],\"payload\":{payload},\"occurred_at\":\"2025-01-01T17:00:00.50+07:00\",\
         \"event_type\":\"alarm.raised\",\"tenant_id\":\"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002\",\
         \"event_id\":\"7d444840-9dc0-41d1-b245-5ffdce74fad2\"}}"
    );
    let envelope = Envelope::parse(json.as_bytes()).unwrap();
    assert_eq!(
        envelope.to_json(),
        format!(
            "{{\"event_id\":\"7d444840-9dc0-41d1-b245-5ffdce74fad2\",\"event_type\":\"alarm.raised\",\
             \"tenant_id\":\"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002\",\"farm_id\":null,\"barn_id\":null,\
             \"device_id\":null,\"session_id\":null,\"occurred_at\":\"2025-01-01T10:00:00.5Z\",\
             \"trace_id\":null,\"payload\":{payload}}}"
        )
    );
}

#[test]
fn every_field_of_the_wrong_type_is_named() {
    let all = [json!(7), json!("x y"), json!(true), json!([]), json!({}), json!("\u{0}")];
    for value in all {
        for field in ["event_id", "event_type", "tenant_id", "farm_id", "barn_id", "device_id"] {
            refused("telemetry.ingested", field, value.clone());
        }
        for field in ["session_id", "occurred_at", "trace_id"] {
            refused("telemetry.ingested", field, value.clone());
        }
        for field in ["payload.metric_type", "payload.quality", "payload.clock"] {
            refused("telemetry.ingested", field, value.clone());
        }
        if !value.is_number() {
            refused("telemetry.ingested", "payload.metric_value", value.clone());
        }
        if !value.is_object() {
            refused("media.stored", "payload", value);
        }
    }
}

#[test]
fn required_fields_are_required() {
    for field in ["event_id", "event_type", "tenant_id", "occurred_at", "payload"] {
        for event_type in EventType::CORE {
            refused(event_type.as_str(), field, Value::Null);
        }
    }
    for (event_type, fields) in [
        ("telemetry.ingested", &["metric_type", "metric_value", "unit"][..]),
        (
            "telemetry.aggregated",
            &["metric_type", "aggregation_window", "avg_value", "min_value", "max_value", "unit"],
        ),
        ("weighvision.session.created", &["status", "initial_weight_kg"]),
        ("weighvision.session.finalized", &["status", "final_weight_kg", "image_count"]),
        ("media.stored", &["media_id", "path", "mime_type", "size_bytes"]),
        (
            "inference.completed",
            &["inference_result_id", "predicted_weight_kg", "confidence", "model_version"],
        ),
        ("sync.batch.sent", &["batch_id", "event_count", "edge_cluster_id"]),
        ("sync.batch.acked", &["batch_id", "event_count", "status"]),
    ] {
        for field in fields {
            refused(event_type, &format!("payload.{field}"), Value::Null);
            refused(event_type, &format!("payload.{field}"), json!([1]));
        }
    }
}

#[test]
fn which_ids_may_be_null_follows_the_event_type() {
    let nullable = |event_type: &str, field: &str| with(event_type, field, Value::Null).is_ok();
    for (event_type, farm_and_barn, device, session) in [
        ("telemetry.ingested", true, false, true),
        ("telemetry.aggregated", true, false, true),
        ("weighvision.session.created", false, false, false),
        ("weighvision.session.finalized", false, false, false),
        ("media.stored", false, false, true),
        ("inference.completed", false, false, true),
        ("sync.batch.sent", true, true, true),
        ("sync.batch.acked", true, true, true),
    ] {
        assert_eq!(nullable(event_type, "farm_id"), farm_and_barn, "{event_type}");
        assert_eq!(nullable(event_type, "barn_id"), farm_and_barn, "{event_type}");
        assert_eq!(nullable(event_type, "device_id"), device, "{event_type}");
        assert_eq!(nullable(event_type, "session_id"), session, "{event_type}");
    }
    let err = with("telemetry.ingested", "device_id", Value::Null).unwrap_err();
    assert_eq!(
        err.to_string(),
        "device_id is missing or null: expected a UUID, which telemetry.ingested needs"
    );
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    let line = EXAMPLES.lines().next().unwrap();
    for (from, to, field) in [
        ("{\"event_id\"", "{\"event_id\":null,\"event_id\"", "event_id"),
        ("\"tenant_id\"", "\"tenant\\u005fid\":\"x\",\"tenant_id\"", "tenant_id"),
        ("\"metric_value\"", "\"metric_value\":1,\"metric_value\"", "payload.metric_value"),
    ] {
        let err = Envelope::parse(line.replace(from, to).as_bytes()).unwrap_err();
        assert_eq!(err.field, field);
        assert!(err.problem.contains("twice"), "{err}");
    }
}

#[test]
fn documents_that_are_no_event_are_refused_without_showing_them() {
    for (text, kind) in [
        ("", InvalidKind::Syntax),
        ("{", InvalidKind::Syntax),
        ("{}{}", InvalidKind::Syntax),
        ("{\"secret\":}", InvalidKind::Syntax),
        ("[\"secret\"]", InvalidKind::Rule),
        ("null", InvalidKind::Rule),
        ("\"secret", InvalidKind::Syntax),
        ("7", InvalidKind::Rule),
    ] {
        let err = Envelope::parse(text.as_bytes()).unwrap_err();
        assert_eq!((err.field.as_str(), err.kind), ("event", kind), "{text}: {err}");
        assert!(!err.to_string().contains("secret"), "{err}");
    }
    assert_eq!(Envelope::parse(b"{\"a\":\"\xff\"}").unwrap_err().kind, InvalidKind::Syntax);
    assert_eq!(Envelope::parse(b"{}").unwrap_err().field, "event_id");
}

#[test]
fn an_event_has_a_size() {
    let line = EXAMPLES.lines().next().unwrap();
    let padding = MAX_EVENT_BYTES - line.len() - ",\"pad\":\"\"".len();
    let padded = |padding: usize| {
        line.replace(
            "\"unit\":\"C\"",
            &format!("\"unit\":\"C\",\"pad\":\"{}\"", "x".repeat(padding)),
        )
    };
    assert!(Envelope::parse(padded(padding).as_bytes()).is_ok());
    let err = Envelope::parse(padded(padding + 1).as_bytes()).unwrap_err();
    assert_eq!(err.kind, InvalidKind::TooLarge);
    assert!(err.to_string().len() < 100);
}

#[test]
fn the_tenant_comes_from_the_registration() {
    let line = EXAMPLES.lines().next().unwrap();
    let own: TenantId = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002".parse().unwrap();
    let other = TenantId::mint();
    let without = line.replace("\"tenant_id\":\"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002\",", "");
    assert_ne!(without, line);
    assert_eq!(Envelope::parse_from_node(&without, other).unwrap().tenant_id, other);
    assert_eq!(Envelope::parse_from_node(line, own).unwrap().tenant_id, own);
    let err = Envelope::parse_from_node(line, other).unwrap_err();
    assert_eq!((err.field.as_str(), err.kind), ("tenant_id", InvalidKind::TenantMismatch));
    assert_eq!(Envelope::parse(without.as_bytes()).unwrap_err().field, "tenant_id");
}
