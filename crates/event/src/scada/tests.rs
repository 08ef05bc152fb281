//! The SCADA envelope against its documented form and every rule.

use serde_json::{Value, json};

use super::{Category, Envelope};
use crate::names::kafka::Topic;
use crate::{Invalid, InvalidKind, MAX_EVENT_BYTES, QualityCode};

const EXAMPLE: &str = "{\"eventId\":\"7d444840-9dc0-41d1-b245-5ffdce74fad2\",\
    \"timestamp\":\"2026-02-01T10:00:00.25Z\",\
    \"asset\":{\"plant\":\"PLANT01\",\"area\":\"AREA02\",\"unit\":\"UNIT_05\"},\
    \"tag\":\"FLOW_RATE\",\"value\":52.34,\"unit\":\"m³/h\",\"quality\":\"GOOD\",\
    \"category\":\"telemetry\",\"nodeId\":42}";

fn with(path: &str, value: Value) -> Result<Envelope, Invalid> {
    let mut event: Value = serde_json::from_str(EXAMPLE).unwrap();
    *event.pointer_mut(&format!("/{}", path.replace('.', "/"))).unwrap() = value;
    Envelope::parse(event.to_string().as_bytes())
}

#[test]
fn round_trips_byte_for_byte() {
    let whole = EXAMPLE.replace("52.34", "50");
    for json in [EXAMPLE, &whole] {
        assert_eq!(Envelope::parse(json.as_bytes()).unwrap().to_json(), json);
    }
    let envelope = Envelope::parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(envelope.quality, QualityCode::Good);
    assert_eq!(envelope.category, Category::Telemetry);
    assert_eq!(envelope.partition_key(), "PLANT01.AREA02.UNIT_05.FLOW_RATE");
    assert_eq!(envelope.topic(), Topic::TelemetryFlow);
}

#[test]
fn every_value_is_written_so_that_it_reads_the_same() {
    for value in [0.0, -0.0, 1.5, -20.0, 1e15, 9_007_199_254_740_992.0, 1e16, 1e300, -5e-324] {
        let mut envelope = Envelope::parse(EXAMPLE.as_bytes()).unwrap();
        envelope.value = value;
        let again = Envelope::parse(envelope.to_json().as_bytes()).unwrap();
        assert_eq!(again.value, value);
    }
}

#[test]
fn every_rule_refuses_by_name() {
    let upper = |len: usize| json!("X".repeat(len));
    let cases = [
        ("eventId", vec![json!("abc-123"), json!("c232ab00-9414-11ec-b3c8-9f6bdeced846")]),
        (
            "timestamp",
            vec![json!("2026-02-01T10:00:00+01:00"), json!("2026-02-01 10:00:00Z"), json!("now")],
        ),
        ("asset", vec![json!("PLANT01"), json!(["PLANT01"])]),
        ("asset.plant", vec![json!(""), json!("plant"), json!("A.B"), json!("Ä"), upper(65)]),
        ("asset.area", vec![json!(""), json!("A-B"), upper(65)]),
        ("asset.unit", vec![json!(""), json!("A B"), upper(65)]),
        ("tag", vec![json!(""), json!("flow"), json!("A.B"), json!("A/B"), upper(129)]),
        ("value", vec![json!("52"), json!(true)]),
        ("unit", vec![json!("x".repeat(33)), json!("a\nb"), json!("\u{0}")]),
        ("quality", vec![json!("good"), json!("")]),
        ("category", vec![json!("Telemetry"), json!("alarms")]),
        ("nodeId", vec![json!(0), json!(1001), json!(-1), json!(1.5), json!("1"), json!(1e2)]),
    ];
    for (field, values) in cases {
        for value in values.into_iter().chain([Value::Null, json!([[]])]) {
            let err = with(field, value.clone()).expect_err(&format!("{field} {value}"));
            assert_eq!(err.field, field, "{value}: {err}");
            assert!(err.problem.contains("expected"), "{err}");
        }
    }
    let overflow = EXAMPLE.replace("52.34", "1e999");
    assert_eq!(Envelope::parse(overflow.as_bytes()).unwrap_err().field, "value");
}

#[test]
fn values_at_their_edges_pass() {
    for (field, value) in [
        ("eventId", json!("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001")),
        ("timestamp", json!("2026-02-01T10:00:00+00:00")),
        ("asset.plant", json!("X".repeat(64))),
        ("tag", json!("X".repeat(128))),
        ("unit", json!("")),
        ("unit", json!("°C")),
        ("quality", json!("OOR")),
        ("category", json!("alarm")),
        ("nodeId", json!(1)),
        ("nodeId", json!(1000)),
    ] {
        assert!(with(field, value.clone()).is_ok(), "{field} {value}");
    }
}

#[test]
fn a_hand_made_envelope_is_checked_too() {
    let sound = Envelope::parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(sound.check(), Ok(()));
    let nan = Envelope { value: f64::NAN, ..sound.clone() };
    assert_eq!(nan.check().unwrap_err().field, "value");
    let node = Envelope { node_id: 0, ..sound.clone() };
    assert_eq!(node.check().unwrap_err().field, "nodeId");
    let unit = Envelope { unit: "\u{7}".into(), ..sound };
    assert_eq!(unit.check().unwrap_err().field, "unit");
}

#[test]
fn twice_too_large_and_not_json() {
    let twice = EXAMPLE.replace("\"area\"", "\"plant\":\"P\",\"area\"");
    assert_eq!(Envelope::parse(twice.as_bytes()).unwrap_err().field, "asset.plant");
    let large = format!("{EXAMPLE}{}", " ".repeat(MAX_EVENT_BYTES));
    assert_eq!(Envelope::parse(large.as_bytes()).unwrap_err().kind, InvalidKind::TooLarge);
    assert_eq!(Envelope::parse(b"{").unwrap_err().kind, InvalidKind::Syntax);
}
