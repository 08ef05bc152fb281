//! Payload values, and what no payload may hold.

use serde_json::{Value, json};

use super::{EXAMPLES, example, refused, with};
use crate::farm::Envelope;
use crate::{InvalidKind, MAX_NESTING, QualityCode};

#[test]
fn payload_values_at_their_edges() {
    for (event_type, path, value) in [
        ("telemetry.ingested", "payload.metric_type", json!("Temperature")),
        ("telemetry.ingested", "payload.unit", json!("")),
        ("telemetry.ingested", "payload.unit", json!("C\n")),
        ("telemetry.ingested", "payload.quality", json!("good")),
        ("telemetry.ingested", "payload.clock", json!("set")),
        ("telemetry.aggregated", "payload.aggregation_window", json!("0h")),
        ("telemetry.aggregated", "payload.aggregation_window", json!("1w")),
        ("telemetry.aggregated", "payload.aggregation_window", json!("12345m")),
        ("weighvision.session.created", "payload.status", json!("finalized")),
        ("weighvision.session.created", "payload.batch_id", json!("batch-1")),
        ("weighvision.session.finalized", "payload.image_count", json!(-1)),
        ("weighvision.session.finalized", "payload.image_count", json!(1.5)),
        ("media.stored", "payload.mime_type", json!("jpeg")),
        ("media.stored", "payload.mime_type", json!("image/")),
        ("media.stored", "payload.size_bytes", json!(u64::MAX)),
        ("media.stored", "payload.path", json!("a\u{0}b")),
        ("inference.completed", "payload.confidence", json!(1.01)),
        ("inference.completed", "payload.confidence", json!(-0.01)),
        ("sync.batch.sent", "payload.batch_id", json!("a b")),
        ("sync.batch.acked", "payload.status", json!("sent")),
    ] {
        refused(event_type, path, value);
    }
    for (event_type, path, value) in [
        ("telemetry.ingested", "payload.metric_value", json!(-1e300)),
        ("telemetry.ingested", "payload.unit", json!("m³/h")),
        ("telemetry.ingested", "payload.quality", json!("OOR")),
        ("telemetry.ingested", "payload.clock", json!("unset")),
        ("telemetry.ingested", "payload.more", json!({"deep": [1, 2]})),
        ("telemetry.aggregated", "payload.aggregation_window", json!("15m")),
        ("weighvision.session.created", "payload.batch_id", Value::Null),
        ("weighvision.session.finalized", "payload.inference_result_id", Value::Null),
        ("inference.completed", "payload.confidence", json!(0)),
        ("inference.completed", "payload.confidence", json!(1)),
        ("sync.batch.sent", "payload.event_count", json!(0)),
    ] {
        assert!(with(event_type, path, value.clone()).is_ok(), "{event_type} {path} {value}");
    }
}

#[test]
fn telemetry_is_read_from_the_payload() {
    let plain = with("telemetry.ingested", "payload.unit", json!("\u{b0}C")).unwrap();
    let reading = plain.telemetry().unwrap().unwrap();
    assert_eq!((reading.metric_type.as_str(), reading.unit.as_str()), ("temperature", "°C"));
    assert_eq!((reading.metric_value, reading.quality, reading.clock_unset), (26.4, None, false));
    let marked = "{\"metric_type\":\"t\",\"metric_value\":-5,\"unit\":\"\\u00b0C\",\
                  \"quality\":\"UNCERTAIN\",\"clock\":\"unset\"}";
    let line = EXAMPLES.lines().next().unwrap();
    let start = line.find("{\"metric_type").unwrap();
    let marked = Envelope::parse(format!("{}{marked}}}", &line[..start]).as_bytes()).unwrap();
    let reading = marked.telemetry().unwrap().unwrap();
    assert_eq!((reading.metric_value, reading.unit.as_str()), (-5.0, "°C"));
    assert_eq!((reading.quality, reading.clock_unset), (Some(QualityCode::Uncertain), true));
    let other = Envelope::parse(example("media.stored").to_string().as_bytes()).unwrap();
    assert_eq!(other.telemetry(), Ok(None));
}

#[test]
fn a_number_beyond_a_double_is_not_finite() {
    let line = EXAMPLES.lines().next().unwrap();
    for number in ["1e309", "-1e400", "1e999999"] {
        let err = Envelope::parse(line.replace("26.4", number).as_bytes()).unwrap_err();
        assert_eq!(err.field, "payload.metric_value");
        assert!(err.problem.contains("finite"), "{err}");
    }
    for text in ["NaN", "Infinity", "+1", ".5", "0x1", "1_0"] {
        let err = Envelope::parse(line.replace("26.4", text).as_bytes()).unwrap_err();
        assert_eq!(err.kind, InvalidKind::Syntax, "{text}");
    }
}

#[test]
fn text_that_postgres_cannot_store_is_refused_in_any_payload() {
    let event = |payload: &str| {
        format!(
            "{{\"event_id\":\"7d444840-9dc0-41d1-b245-5ffdce74fad2\",\"event_type\":\"x.y\",\
             \"tenant_id\":\"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002\",\
             \"occurred_at\":\"2025-01-01T10:00:00Z\",\"payload\":{payload}}}"
        )
    };
    let refused = |payload: &str| Envelope::parse(event(payload).as_bytes()).unwrap_err();
    for payload in ["{\"a\":\"\\u0000\"}", "{\"\\u0000\":1}", "{\"a\":[[{\"b\":\"x\\u0000\"}]]}"] {
        let err = refused(payload);
        assert_eq!(err.field, "payload");
        assert!(err.problem.contains("U+0000"), "{err}");
    }
    assert_eq!(refused("{\"a\":\"\0\"}").kind, InvalidKind::Syntax);
    assert!(refused("{\"a\":\"\\ud800\"}").problem.contains("surrogate"));
    assert!(refused("{\"a\":1e131073}").problem.contains("exponent"));
    let nested =
        |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(refused(&nested(MAX_NESTING + 1)).problem.contains("nested"));
    // Far beyond any stack, and still only an error.
    assert!(refused(&nested(100_000)).problem.contains("nested"));
    let deepest = Envelope::parse(event(&nested(MAX_NESTING)).as_bytes()).unwrap();
    // What passes can be read as a tree by anyone, inside an envelope inside a batch.
    let wrapped = format!("{{\"records\":[{{\"event\":{}}}]}}", deepest.to_json());
    assert!(serde_json::from_str::<Value>(&wrapped).is_ok());
}
