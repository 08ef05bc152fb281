//! Everything the edge does with the bytes of a message before the database: decompress, read the batch, read each event.
//!
//! Nothing may panic or allocate beyond the limits, and what is accepted must survive being written and read again.

#![no_main]

use event::farm::Envelope;
use event::id::TenantId;
use event::names::Topic;
use event::wire::{Ack, Batch, Limits, Status, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let tenant: TenantId = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002".parse().unwrap();
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(topic) = Topic::parse(text) {
            assert_eq!(topic.to_string(), text);
        }
        check(text, tenant);
    }
    let _ = Status::parse(data);
    if let Ok(ack) = Ack::parse(data) {
        assert_eq!(Ack::parse(ack.to_json().as_bytes()).unwrap(), ack);
    }
    let Ok(json) = decode(data, &Limits::MQTT) else { return };
    assert!(json.len() <= Limits::MQTT.decompressed_bytes);
    let Ok(batch) = Batch::parse(&json, &Limits::MQTT) else { return };
    assert!(batch.records.len() <= Limits::MQTT.records);
    assert!(batch.records.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    for record in &batch.records {
        check(record.event.get(), tenant);
    }
});

/// An event that is accepted reads the same after it was written.
fn check(text: &str, tenant: TenantId) {
    let Ok(event) = Envelope::parse_from_node(text, tenant) else { return };
    assert_eq!(event.tenant_id, tenant);
    let _ = event.telemetry();
    let again = Envelope::parse(event.to_json().as_bytes()).unwrap();
    assert_eq!(again.to_json(), event.to_json());
}
