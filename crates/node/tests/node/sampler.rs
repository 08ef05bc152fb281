//! The sampler socket against its page, `docs/spec/sampler-socket.md`.

use crate::site::{self, DEVICE, Site, text};
use event::wire::Clock;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::rig::Mode;

fn error(reply: &Value) -> (&str, &str, &str) {
    let part = |name: &str| reply["error"][name].as_str().unwrap_or_default();
    (part("code"), part("field"), part("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_gets_a_precise_error_and_its_neighbours_pass() {
    let mut site = Site::new("").await;
    site.start_node().await;
    let mut sampler = site.sampler();
    let good = site::sample();
    let v1 = "c232ab00-9414-11ec-b3c8-9f6bdeced846";
    let cases: Vec<(String, &str, &str)> = vec![
        (
            r#"{"metric_type":"t","metric_value":"hot","unit":"C"}"#.into(),
            "metric_value",
            "\"hot\": expected a finite number",
        ),
        (r#"{"metric_type":"t","metric_value":1e999,"unit":"C"}"#.into(), "metric_value", "finite"),
        (r#"{"metric_type":"t","unit":"C"}"#.into(), "metric_value", "missing"),
        (r#"{"metric_type":"Temp","metric_value":1,"unit":"C"}"#.into(), "metric_type", "\"Temp\""),
        (r#"{"metric_type":"t","metric_value":1}"#.into(), "unit", "missing"),
        (r#"{"metric_type":"t","metric_value":1,"unit":""}"#.into(), "unit", "1 to 32"),
        (
            r#"{"metric_type":"t","metric_value":1,"unit":"C","quality":"FINE"}"#.into(),
            "quality",
            "GOOD, BAD",
        ),
        (
            r#"{"metric_type":"t","metric_value":1,"unit":"C","qualty":"GOOD"}"#.into(),
            "qualty",
            "not a field of a sample",
        ),
        (
            r#"{"metric_type":"t","metric_value":1,"unit":"C","farm_id":"x"}"#.into(),
            "farm_id",
            "configuration",
        ),
        (
            r#"{"metric_type":"t","metric_value":1,"metric_value":2,"unit":"C"}"#.into(),
            "metric_value",
            "twice",
        ),
        (
            r#"{"metric_type":"t","metric_value":1,"unit":"C","occurred_at":"yesterday"}"#.into(),
            "occurred_at",
            "RFC 3339",
        ),
        (
            r#"{"metric_type":"t","metric_value":1,"unit":"C","trace_id":"a b"}"#.into(),
            "trace_id",
            "visible ASCII",
        ),
        (
            format!(r#"{{"metric_type":"t","metric_value":1,"unit":"C","event_id":"{v1}"}}"#),
            "event_id",
            "version 1",
        ),
        (r#"{"event_type":"Alarm","payload":{}}"#.into(), "event_type", "lower-case"),
        (r#"{"event_type":"alarm.raised"}"#.into(), "payload", "missing"),
        (r#"{"event_type":"alarm.raised","payload":[1]}"#.into(), "payload", "object"),
        (r#"{"event_type":"alarm.raised","payload":{"a":"\u0000"}}"#.into(), "payload", "U+0000"),
        (
            r#"{"event_type":"telemetry.ingested","payload":{"metric_type":"t"}}"#.into(),
            "payload.metric_value",
            "missing",
        ),
        (r#"{"cmd":"reboot"}"#.into(), "cmd", "status or ping"),
        (
            format!(
                r#"{{"metric_type":"t","metric_value":1,"unit":"C","tag":"{}"}}"#,
                "x".repeat(80)
            ),
            "tag",
            "at most 64",
        ),
        ("[1,2]".into(), "line", "JSON object"),
        ("{\"metric_type\":".into(), "line", "not JSON"),
    ];
    for (line, _, _) in &cases {
        sampler.send(line);
        sampler.send(&good);
    }
    for (at, (line, field, words)) in cases.iter().enumerate() {
        let reply = sampler.reply();
        let (code, named, message) = error(&reply);
        assert_eq!((code, named), ("invalid", *field), "{line} → {reply}");
        assert!(message.contains(words), "{line} → {message}");
        assert_eq!(sampler.reply()["seq"], json!(at + 1), "the neighbour of {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_too_long_is_skipped_to_its_end() {
    let mut site = Site::new("").await;
    site.start_node().await;
    let mut sampler = site.sampler();
    let padded = |length: usize| {
        let line =
            |pad: &str| format!("{{\"event_type\":\"a.b\",\"payload\":{{\"pad\":\"{pad}\"}}}}");
        line(&"x".repeat(length - line("").len()))
    };
    let at_most = event::MAX_EVENT_BYTES - 1024;
    // Replies are read along the way: a socket holds only so much.
    for length in [256 * 1024 + 1, 700_000, 5_000_000] {
        let reply = sampler.ask(&padded(length));
        assert_eq!(error(&reply).0, "too_large", "{length}: {reply}");
    }
    let reply = sampler.ask(&padded(256 * 1024));
    assert_eq!(error(&reply).0, "invalid", "an event that no batch can carry: {reply}");
    assert_eq!(sampler.ask(&padded(at_most))["seq"], json!(1));
    assert_eq!(sampler.ask(&site::sample())["seq"], json!(2));
    // The largest record travels.
    let edge = site.edge().await;
    edge.has_all(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sampler_says_is_what_the_edge_gets() {
    let extra = "tenant_id = \"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002\"\nfarm_id = \"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0003\"\nbarn_id = \"018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0004\"";
    let mut site = Site::new(extra).await;
    site.start_node().await;
    let mut sampler = site.sampler();
    let id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0009";
    let line = format!(
        r#"{{"metric_type":"nh3","metric_value":12.50,"unit":"ppm","event_id":"{id}","occurred_at":"2026-02-01T12:00:00+02:00","quality":"OOR","trace_id":"t1","tag":[1,"a"]}}"#
    );
    assert_eq!(sampler.ask(&line), json!({"seq": 1, "event_id": id, "tag": [1, "a"]}));
    let reply =
        sampler.ask(r#"{"event_type":"alarm.raised","payload":{"code":"NH3_HIGH"},"tag":7}"#);
    assert_eq!((&reply["seq"], &reply["tag"]), (&json!(2), &json!(7)));
    assert_eq!(sampler.ask(r#"{"cmd":"ping","tag":"p"}"#), json!({"ok": true, "tag": "p"}));

    // Read the spool itself: another test shows that this is what travels.
    site.stop_node().await;
    let spool = spool::Spool::open_read_only(&site.spool()).unwrap();
    let mut reader = spool.reader(1);
    let mut record = || match reader.next().unwrap() {
        Some(spool::Item::Record { class, bytes, .. }) => {
            (class, serde_json::from_slice::<Value>(&bytes).unwrap())
        }
        other => unreachable!("{other:?}"),
    };
    let (class, sample) = record();
    assert_eq!(class, 0);
    assert_eq!(
        sample,
        json!({
            "event_id": id, "event_type": "telemetry.ingested",
            "tenant_id": "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002",
            "farm_id": "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0003",
            "barn_id": "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0004",
            "device_id": DEVICE, "session_id": null, "occurred_at": "2026-02-01T10:00:00Z",
            "trace_id": "t1",
            "payload": {"metric_type": "nh3", "metric_value": 12.50, "unit": "ppm", "quality": "OOR"}
        })
    );
    let (class, alarm) = record();
    assert_eq!((class, &alarm["payload"]["code"]), (2, &json!("NH3_HIGH")));
    let trace = alarm["trace_id"].as_str().unwrap();
    assert!(trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit()), "{trace}");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_before_the_clock_is_set_say_so() {
    let mut site = Site::new("").await;
    let marker = site.folder.path().join("synchronized");
    site.configure(&format!("clock.mode = \"auto\"\nclock.marker = {marker:?}"));
    let edge = site.edge().await;
    site.start_node().await;
    let mut sampler = site.sampler();
    assert_eq!(site.status().unwrap().report.clock, Clock::Unset);
    sampler.send(&site::sample());
    sampler.send(
        r#"{"metric_type":"t","metric_value":1,"unit":"C","occurred_at":"2026-02-01T10:00:00Z"}"#,
    );
    sampler.send(r#"{"metric_type":"t","metric_value":1,"unit":"C","quality":"BAD"}"#);
    for _ in 0..3 {
        sampler.reply();
    }
    std::fs::write(&marker, "").unwrap();
    site.status_where("the clock", |s| s.report.clock == Clock::Set).await;
    sampler.ask(&site::sample());
    edge.has_all(4).await;
    let payload = |seq: u64| -> Value {
        serde_json::from_str::<Value>(&edge.seen().events[&seq]).unwrap()["payload"].clone()
    };
    let marks = |seq| (payload(seq)["quality"].clone(), payload(seq)["clock"].clone());
    assert_eq!(marks(1), (json!("UNCERTAIN"), json!("unset")));
    assert_eq!(marks(2), (json!("GOOD"), Value::Null), "its own time is its own business");
    assert_eq!(marks(3), (json!("BAD"), json!("unset")), "BAD is not made better");
    assert_eq!(marks(4), (json!("GOOD"), Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampler_never_waits_for_the_uplink_and_is_answered_at_a_stop() {
    let mut site = Site::new("socket_connections = 2").await;
    site.link.set(Mode::Stall);
    site.start_node().await;
    let mode = std::fs::metadata(site.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut first = site.sampler();
    assert_eq!(first.samples(1_000).len(), 1_000);
    // A third sampler waits for its turn; it is not lost.
    let second = site.sampler();
    let mut third = site.sampler();
    third.send(&site::sample());
    drop(second);
    assert_eq!(third.reply()["seq"], json!(1_001));
    site.stop_node().await;
    assert!(first.try_reply().is_none());
    assert!(!site.socket().exists(), "the socket was left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_nodes_socket_is_replaced_and_a_living_ones_is_not() {
    let mut site = Site::new("").await;
    site.start_node().await;
    let second =
        Command::new(site::binary()).args(["run", "--config"]).arg(site.config()).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second.stderr).contains("another node answers"), "{}", text(&second.stderr));
    site.sampler().samples(1);
    site.kill_node().await;
    assert!(site.socket().exists());
    site.start_node().await;
    assert_eq!(site.sampler().samples(1), [2]);
    site.stop_node().await;
    std::fs::write(site.socket(), "precious").unwrap();
    let refused =
        Command::new(site::binary()).args(["run", "--config"]).arg(site.config()).output().unwrap();
    assert!(text(&refused.stderr).contains("is not a socket"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read_to_string(site.socket()).unwrap(), "precious");
}
