//! Committed messages of every schema version, each with what became of it. Files are added, never changed.

use bus::Message;
use scada::historian::Record;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Sample {
    /// The header `schema_version`; absent where there was none.
    schema_version: Option<String>,
    body: Value,
    /// `stored`, or the cause of the dead letter.
    outcome: String,
    extra: Option<Value>,
}

#[test]
fn every_sample_is_read_as_when_it_was_committed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let sample: Sample = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let version = sample.schema_version.map(|text| ("schema_version".to_owned(), text));
        let message = Message {
            headers: version.into_iter().collect(),
            ..Message::json("scada.l2.events", "TAG", "id", sample.body.to_string())
        };
        match Record::read(&message) {
            Ok(record) => {
                assert_eq!(sample.outcome, "stored", "{}", path.display());
                assert_eq!(record.extra, sample.extra, "{}", path.display());
                let id = sample.body["eventId"].as_str().unwrap();
                assert_eq!(record.envelope.event_id.to_string(), id);
            }
            Err(cause) => assert_eq!(sample.outcome, cause.code, "{}", path.display()),
        }
        count += 1;
    }
    assert!(count >= 7, "{count}");
}
