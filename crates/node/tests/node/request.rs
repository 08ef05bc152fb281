//! Lines of the sampler socket by property: nothing panics, and what the node accepts the edge accepts.
#![allow(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use event::farm::Envelope;
use event::id::TenantId;
use jiff::Timestamp;
use node::Identity;
use node::socket::{Moment, Parsed, Request, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

fn identity() -> Identity {
    Identity {
        node_id: "barn-7".parse().unwrap(),
        tenant_id: None,
        farm_id: None,
        barn_id: None,
        device_id: Some("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001".parse().unwrap()),
    }
}

fn read(line: &[u8], clock_set: bool) -> Parsed {
    parse(line, &identity(), Moment { now: Timestamp::UNIX_EPOCH, clock_set })
}

/// A value of any type, often of the right one.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        "[a-z_]{0,70}".prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        Just(json!({"code": "X", "n": [1, 2.5, null]})),
        Just(json!("GOOD")),
        Just(json!("2026-02-01T10:00:00+01:00")),
        Just(json!("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002")),
    ]
}

const NAMES: [&str; 14] = [
    "metric_type",
    "metric_value",
    "unit",
    "quality",
    "event_type",
    "payload",
    "session_id",
    "device_id",
    "event_id",
    "occurred_at",
    "trace_id",
    "tag",
    "cmd",
    "farm_id",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(line: Vec<u8>, clock_set: bool) {
        let _ = read(&line, clock_set);
    }

    #[test]
    fn what_the_node_accepts_the_edge_accepts(
        mut fields in proptest::collection::btree_map(proptest::sample::select(&NAMES[..]), value(), 0..6),
        sound in 0..3, clock_set: bool,
    ) {
        if sound > 0 {
            fields.insert("metric_type", json!("temperature"));
            fields.insert("metric_value", json!(1.5));
            fields.insert("unit", json!("C"));
        }
        if sound > 1 {
            fields.retain(|name, _| !["event_type", "payload", "session_id", "cmd", "farm_id"].contains(name));
        }
        let line = serde_json::to_vec(&fields).unwrap();
        match read(&line, clock_set).request {
            Ok(Request::Record(record)) => {
                let text = std::str::from_utf8(&record.bytes).unwrap();
                let envelope = Envelope::parse_from_node(text, TenantId::mint());
                let envelope = envelope.map_err(|invalid| TestCaseError::fail(format!("{text}: {invalid}")))?;
                prop_assert_eq!(envelope.event_id, record.event_id);
                prop_assert_eq!(envelope.class().number(), record.class);
                prop_assert!(!record.bytes.contains(&b'\n'));
            }
            Ok(_) => prop_assert!(fields.contains_key("cmd")),
            Err(invalid) => prop_assert!(!invalid.field.is_empty() && !invalid.problem.is_empty()),
        }
    }
}
