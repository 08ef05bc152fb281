//! The bodies against their page, their limits, and bodies that mean harm.

mod compression;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::farm::Envelope;
use crate::id::{Epoch, TenantId};
use crate::ledger::{Frontier, MAX_SEQ};

const EPOCH: &str = "0190f1a8-0000-7000-8000-000000000001";
const EVENT: &str = include_str!("../../../tests/farm_examples.jsonl");

fn epoch() -> Epoch {
    EPOCH.parse().unwrap()
}

fn gap() -> Gap {
    let at = |text: &str| Some(text.parse().unwrap());
    let (first, last) = (at("2026-02-01T10:00:00Z"), at("2026-02-01T10:05:00Z"));
    Gap::new(7, 19, first, last, GapReason::DropOldest).unwrap()
}

fn field_of(body: &Value) -> String {
    match Batch::parse(body.to_string().as_bytes(), &Limits::MQTT) {
        Err(err) => err.field().unwrap_or("-").to_owned(),
        Ok(_) => "accepted".to_owned(),
    }
}

#[test]
fn a_batch_is_written_as_documented_and_read_back() {
    let event = EVENT.lines().next().unwrap();
    let body = encode(epoch(), [(41, event), (43, "\"not an event\"")], &[gap()]);
    let text = std::str::from_utf8(&body).unwrap();
    assert_eq!(
        text,
        format!(
            "{{\"v\":1,\"epoch\":\"{EPOCH}\",\"records\":[{{\"seq\":41,\"event\":{event}}},\
             {{\"seq\":43,\"event\":\"not an event\"}}],\"gaps\":[{{\"from_seq\":7,\"to_seq\":19,\
             \"count\":13,\"first_at\":\"2026-02-01T10:00:00Z\",\
             \"last_at\":\"2026-02-01T10:05:00Z\",\"reason\":\"drop_oldest\"}}]}}"
        )
    );
    let batch = Batch::parse(&body, &Limits::MQTT).unwrap();
    assert_eq!((batch.epoch, &batch.gaps[..]), (epoch(), &[gap()][..]));
    assert_eq!(batch.records.iter().map(|record| record.seq).collect::<Vec<_>>(), [41, 43]);
    // One bad event does not fail its neighbours.
    let tenant: TenantId = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002".parse().unwrap();
    let read = |index: usize| Envelope::parse_from_node(batch.records[index].event.get(), tenant);
    assert_eq!(read(0).unwrap().to_json(), event);
    assert!(read(1).is_err());
}

#[test]
fn the_writer_knows_its_size() {
    let mut writer = BatchWriter::new(epoch());
    assert!(writer.is_empty());
    for (count, seq) in [1, 500, MAX_SEQ, u64::MAX].into_iter().enumerate() {
        let before = writer.json_bytes();
        writer.push_record(seq, b"{}");
        assert!(writer.json_bytes() - before <= 2 + BatchWriter::RECORD_OVERHEAD);
        assert_eq!(writer.clone().finish().len(), writer.json_bytes());
        assert_eq!(writer.records(), count + 1);
    }
    writer.push_gap(&gap());
    writer.push_gap(&gap());
    assert_eq!((writer.clone().finish().len(), writer.gaps()), (writer.json_bytes(), 2));
}

#[test]
fn either_list_may_be_absent_but_not_both() {
    let record = json!({"seq": 1, "event": {}});
    let gap = json!({"from_seq": 1, "to_seq": 1, "count": 1, "reason": "lost"});
    assert_eq!(field_of(&json!({"v": 1, "epoch": EPOCH, "records": [record]})), "accepted");
    assert_eq!(
        field_of(&json!({"v": 1, "epoch": EPOCH, "gaps": [gap], "records": null, "new": 1})),
        "accepted"
    );
    assert_eq!(field_of(&json!({"v": 1, "epoch": EPOCH})), "batch");
    assert_eq!(field_of(&json!({"v": 1, "epoch": EPOCH, "records": [], "gaps": []})), "batch");
}

#[test]
fn what_is_wrong_with_a_batch_is_named() {
    let record = |seq: Value| json!({"seq": seq, "event": {}});
    let batch = |records: Value| json!({"v": 1, "epoch": EPOCH, "records": records});
    for (body, field) in [
        (json!([]), "batch"),
        (json!({"epoch": EPOCH}), "v"),
        (json!({"v": 2, "epoch": EPOCH}), "v"),
        (json!({"v": "1", "epoch": EPOCH}), "v"),
        (json!({"v": 1}), "epoch"),
        (json!({"v": 1, "epoch": "x"}), "epoch"),
        (batch(json!({})), "records"),
        (batch(json!([7])), "records[0]"),
        (batch(json!([{"seq": 1}])), "records[0].event"),
        (batch(json!([{"event": {}}])), "records[0].seq"),
        (batch(json!([record(json!(0))])), "records[0].seq"),
        (batch(json!([record(json!(-1))])), "records[0].seq"),
        (batch(json!([record(json!(1.0))])), "records[0].seq"),
        (batch(json!([record(json!("1"))])), "records[0].seq"),
        (batch(json!([record(json!(MAX_SEQ + 1))])), "records[0].seq"),
        (batch(json!([record(json!(1)), record(json!(1))])), "records[1].seq"),
        (batch(json!([record(json!(1)), record(json!(3)), record(json!(2))])), "records[2].seq"),
    ] {
        assert_eq!(field_of(&body), field, "{body}");
    }
    let version = Batch::parse(b"{\"v\":2}", &Limits::MQTT).unwrap_err();
    assert_eq!(version.to_string(), "v is 2: expected 1");
}

#[test]
fn the_arithmetic_of_gaps_is_checked() {
    let sound = json!({"from_seq": 7, "to_seq": 19, "count": 13, "first_at": null,
        "last_at": "2026-02-01T10:05:00Z", "reason": "drop_oldest"});
    let with = |name: &str, value: Value| {
        let mut gap = sound.clone();
        gap[name] = value;
        field_of(&json!({"v": 1, "epoch": EPOCH, "gaps": [sound, gap]}))
    };
    assert_eq!(with("reason", json!("unsendable")), "accepted");
    for (name, value) in [
        ("from_seq", json!(0)),
        ("to_seq", json!(6)),
        ("to_seq", json!(MAX_SEQ + 1)),
        ("count", json!(12)),
        ("count", json!(14)),
        ("count", Value::Null),
        ("first_at", json!("yesterday")),
        ("last_at", json!(17)),
        ("reason", json!("because")),
        ("reason", Value::Null),
    ] {
        assert_eq!(with(name, value), format!("gaps[1].{name}"));
    }
    assert_eq!(Gap::new(0, 1, None, None, GapReason::Lost), None);
    assert_eq!(Gap::new(2, 1, None, None, GapReason::Lost), None);
    assert_eq!(Gap::new(1, MAX_SEQ, None, None, GapReason::Lost).unwrap().count, MAX_SEQ);
}

#[test]
fn lists_have_a_bound() {
    let limits = Limits { records: 3, gaps: 2, ..Limits::MQTT };
    let records = |count: u64| encode(epoch(), (1..=count).map(|seq| (seq, "{}")), &[]);
    assert!(Batch::parse(&records(3), &limits).is_ok());
    let err = Batch::parse(&records(4), &limits).unwrap_err();
    assert_eq!(err, WireError::TooLarge { what: "records", limit: 3 });
    let gaps = |count: usize| encode::<&str>(epoch(), [], &vec![gap(); count]);
    assert!(Batch::parse(&gaps(2), &limits).is_ok());
    let err = Batch::parse(&gaps(3), &limits).unwrap_err();
    assert_eq!(err, WireError::TooLarge { what: "gaps", limit: 2 });
}

#[test]
fn an_ack_is_written_as_documented_and_read_back() {
    let mut frontier = Frontier::new();
    for seq in (1..=1041).chain(1100..=1180).chain([1200]) {
        frontier.observe(seq).unwrap();
    }
    let ack = Ack::of(epoch(), &frontier);
    let json = format!(
        "{{\"v\":1,\"epoch\":\"{EPOCH}\",\"acked_seq\":1041,\"ranges\":[[1100,1180],[1200,1200]]}}"
    );
    assert_eq!(ack.to_json(), json);
    assert_eq!(Ack::parse(json.as_bytes()), Ok(ack.clone()));
    assert!([0, 1, 1041, 1100, 1180, 1200].into_iter().all(|seq| ack.covers(seq)));
    assert!(![1042, 1099, 1181, 1199, 1201].into_iter().any(|seq| ack.covers(seq)));
    assert_eq!(ack.highest(), 1200);
}

#[test]
fn an_ack_of_many_islands_has_the_lowest_and_fits() {
    let mut frontier = Frontier::new();
    for island in 0..100 {
        frontier.observe(MAX_SEQ - 2 * island).unwrap();
    }
    let ack = Ack::of(epoch(), &frontier);
    assert_eq!(ack.ranges.len(), MAX_ACK_RANGES);
    assert_eq!(ack.ranges[0].0, MAX_SEQ - 198);
    let json = ack.to_json();
    assert!(json.len() < MAX_ACK_BYTES / 5);
    assert_eq!(Ack::parse(json.as_bytes()), Ok(ack));
}

#[test]
fn a_malformed_ack_is_refused_by_name() {
    let ack = |acked: Value, ranges: Value| {
        let body = json!({"v": 1, "epoch": EPOCH, "acked_seq": acked, "ranges": ranges});
        match Ack::parse(body.to_string().as_bytes()) {
            Ok(_) => "accepted".to_owned(),
            Err(err) => err.field().unwrap_or(err.code()).to_owned(),
        }
    };
    assert_eq!(ack(json!(0), json!([])), "accepted");
    assert_eq!(ack(json!(0), Value::Null), "accepted");
    assert_eq!(ack(json!(5), json!([[7, 7], [9, 12]])), "accepted");
    for (acked, ranges, field) in [
        (json!(-1), json!([]), "acked_seq"),
        (json!(null), json!([]), "acked_seq"),
        (json!("5"), json!([]), "acked_seq"),
        (json!(5), json!({}), "ranges"),
        (json!(5), json!([7]), "ranges[0]"),
        (json!(5), json!([[7]]), "ranges[0]"),
        (json!(5), json!([[7, 8, 9]]), "ranges[0]"),
        (json!(5), json!([[6, 8]]), "ranges[0][0]"),
        (json!(5), json!([[3, 4]]), "ranges[0][0]"),
        (json!(5), json!([[9, 8]]), "ranges[0][1]"),
        (json!(5), json!([[7, 8], [9, 9]]), "ranges[1][0]"),
        (json!(5), json!([[9, 9], [7, 7]]), "ranges[1][0]"),
        (json!(MAX_SEQ), json!([[MAX_SEQ, MAX_SEQ]]), "ranges[0][0]"),
        (json!(0), json!(vec![[1, 1]; 65]), "too_large"),
    ] {
        assert_eq!(ack(acked, ranges.clone()), field, "{ranges}");
    }
    assert_eq!(Ack::parse(&vec![b' '; MAX_ACK_BYTES + 1]).unwrap_err().code(), "too_large");
    assert_eq!(Ack::parse(b"").unwrap_err().field(), Some("ack"));
}

#[test]
fn a_status_is_written_as_documented_and_read_back() {
    let documented = json!({"v": 1, "state": "online", "epoch": EPOCH, "head": 1200, "acked": 1041,
        "oldest": 1002, "bytes": 73400320, "backlog": 159, "drops": 13, "gaps": 1, "clock": "set",
        "at": "2026-02-01T10:05:00Z", "free_bytes": 1234567890, "oldest_at": "2026-02-01T09:58:12Z", "version": "0.1.0",
        "written_bytes_per_day": 12345678,
        "ignored_acks": {"regressed": 1, "foreign_epoch": 2, "beyond_head": 3}});
    let status = Status::parse(documented.to_string().as_bytes()).unwrap();
    let report = status.report.as_ref().unwrap();
    assert_eq!((report.head, report.ignored_acks.beyond_head), (1200, 3));
    let mut written: Value = serde_json::from_str(&status.to_json()).unwrap();
    assert_eq!(
        written["ignored_acks"].as_object_mut().unwrap().remove("malformed"),
        Some(json!(0))
    );
    let commands = json!({"foreign_epoch": 0, "beyond_head": 0, "malformed": 0});
    assert_eq!(written.as_object_mut().unwrap().remove("ignored_commands"), Some(commands));
    assert_eq!(written, documented);
    assert_eq!(Status::parse(status.to_json().as_bytes()), Ok(status));

    let will = Status::offline(epoch());
    let json = format!("{{\"v\":1,\"state\":\"offline\",\"epoch\":\"{EPOCH}\"}}");
    assert_eq!(will.to_json(), json);
    assert_eq!(Status::parse(json.as_bytes()), Ok(will));

    for (name, value) in [
        ("v", json!(2)),
        ("state", json!("away")),
        ("epoch", json!(1)),
        ("version", json!("a\u{0}b")),
        ("version", json!("x".repeat(65))),
    ] {
        let mut body = documented.clone();
        body[name] = value;
        assert_eq!(Status::parse(body.to_string().as_bytes()).unwrap_err().field(), Some(name));
    }
    let mut older = documented.clone();
    older.as_object_mut().unwrap().remove("oldest_at");
    let older = Status::parse(older.to_string().as_bytes()).unwrap();
    assert_eq!(older.report.unwrap().oldest_at, None, "a node that does not say it");
    let mut body = documented;
    body["head"] = json!("many");
    assert!(Status::parse(body.to_string().as_bytes()).is_err());
    assert_eq!(Status::parse(&vec![b' '; MAX_STATUS_BYTES + 1]).unwrap_err().code(), "too_large");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_break_a_reader(mut bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool) {
        if magic {
            bytes.splice(0..0, ZSTD_MAGIC);
        }
        if let Ok(json) = decode(&bytes, &Limits::MQTT) {
            prop_assert!(json.len() <= Limits::MQTT.decompressed_bytes);
            let _ = Batch::parse(&json, &Limits::MQTT);
        }
        let _ = (Ack::parse(&bytes), Status::parse(&bytes), Envelope::parse(&bytes));
    }
}
