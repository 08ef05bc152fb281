//! `holdfast scada verify` and `holdfast where` on a node's outbox and the historian's tables.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

use std::process::{Command, Output};
use std::sync::Arc;

use bus::Message;
use event::scada::Envelope;
use jiff::Timestamp;
use scada::generate::Node;
use scada::historian::alarms::state::Rules;
use scada::historian::{Metrics, Record, SESSION, Writer};
use scada::outbox::Outbox;
use testkit::Database;
use uuid::Uuid;

struct Plant {
    node: Database,
    historian: Database,
    config: tempfile::NamedTempFile,
    made: Vec<Envelope>,
}

impl Plant {
    /// Two nodes whose events were all sent, an hour and more ago, and are all stored.
    async fn new(name: &str) -> Plant {
        let node = Database::empty(&format!("{name}_node")).await.unwrap();
        let historian = Database::empty(&format!("{name}_historian")).await.unwrap();
        let outbox = pg::Options::new(node.url());
        scada::migrate_producer(&outbox).await.unwrap();
        let store = pg::Options { settings: SESSION, ..pg::Options::new(historian.url()) };
        scada::migrate_historian(&store).await.unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "[producer]\nbus = \"inline\"\ndatabase.url = {:?}\n[historian]\nbus = \"inline\"\ndatabase.url = {:?}\n",
            node.url(),
            historian.url()
        );
        std::fs::write(config.path(), text).unwrap();
        let mut made = Vec::new();
        for number in [1, 2] {
            let mut one = Node::new("PLANT01".parse().unwrap(), number, 42).unwrap();
            // Over two hours, so that there is more than one to compare.
            for minutes in [60, 90, 120] {
                let at = Timestamp::now() - jiff::Span::new().minutes(minutes);
                made.extend(one.cycle(at).unwrap());
            }
        }
        Outbox::new(pg::Pool::new(&outbox).unwrap()).write_cycle(&made).await.unwrap();
        let sent = "UPDATE outbox_events SET status = 'SENT', sent_at = now() - interval '1 hour'";
        node.connect().await.unwrap().batch_execute(sent).await.unwrap();
        let metrics = Arc::new(Metrics::new());
        let pool = pg::Pool::new(&store).unwrap();
        let writer = Writer::new(pool, "scada-historian", Rules::default(), None, metrics);
        let read = |event: &Envelope| {
            Record::read(&Message::json("t", "k", "id", event.to_json())).unwrap()
        };
        let records: Vec<Record> = made.iter().map(read).collect();
        assert_eq!(writer.store(&records).await.unwrap().new.len(), made.len());
        Plant { node, historian, config, made }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).arg("--config").arg(self.config.path()).output().unwrap()
    }

    /// Verifies; the exit code and what it told.
    fn verify(&self, more: &[&str]) -> (Option<i32>, serde_json::Value) {
        let out = self.run(&[&["scada", "verify", "--json"], more].concat());
        let told = serde_json::from_slice(&out.stdout);
        (out.status.code(), told.unwrap_or_else(|_| panic!("{out:?}")))
    }

    async fn lose(&self, id: Uuid) {
        let client = self.historian.connect().await.unwrap();
        let mut gone = 0;
        for table in ["telemetry", "events", "alarms"] {
            let query = format!("DELETE FROM {table} WHERE event_id = $1");
            gone += client.execute(&query, &[&id]).await.unwrap();
        }
        assert_eq!(gone, 1);
    }
}

#[tokio::test]
async fn what_was_sent_and_is_not_stored_is_named_and_sent_again_on_record() {
    let plant = Plant::new("scada_verify").await;
    let (code, told) = plant.verify(&[]);
    assert_eq!((code, &told["wrong"]), (Some(0), &serde_json::json!([])), "{told}");
    assert_eq!(told["events"], plant.made.len());

    let [lost, dead] = [0, plant.made.len() - 1].map(|at| plant.made[at].event_id.uuid());
    plant.lose(lost).await;
    plant.lose(dead).await;
    let give_up = "INSERT INTO historian_dead_letters (consumer_group, message_id, topic, routing_key, headers, body,
            cause_code, cause_message, attempts, dead_lettered_at)
        VALUES ('scada-historian', $1::uuid::text, 't', 'k', '{}', '', 'invalid_envelope', 'x', 1, now())";
    let client = plant.historian.connect().await.unwrap();
    client.execute(give_up, &[&dead]).await.unwrap();
    let (code, told) = plant.verify(&[]);
    assert_eq!((code, &told["missing"], &told["dead_letters"]), (Some(1), &1.into(), &1.into()));
    let named = |name: &str| -> Vec<String> {
        let hours = told["wrong"].as_array().unwrap();
        let ids = hours.iter().flat_map(|hour| hour[name].as_array().unwrap());
        ids.map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named("missing"), [lost.to_string()]);
    assert_eq!(named("dead_letters"), [dead.to_string()]);
    let shown = String::from_utf8(plant.run(&["scada", "verify"]).stdout).unwrap();
    assert!(shown.contains(&format!("missing: {lost}")), "{shown}");
    // What was sent just now may be on its way.
    assert_eq!(plant.verify(&["--grace", "2h"]).1["events"], 0);

    let (code, told) = plant.verify(&["--repair"]);
    assert_eq!((code, &told["sent_again"]), (Some(1), &1.into()), "{told}");
    let node = plant.node.connect().await.unwrap();
    let row = "SELECT status, retry_count, sent_at IS NULL FROM outbox_events WHERE id = $1";
    let row = node.query_one(row, &[&lost]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1), row.get(2)), ("PENDING", 0, true));
    let audit = "SELECT parameters->'ids'->>0, changed FROM operator_audit WHERE action = 'producer.repair'";
    let audit = node.query_one(audit, &[]).await.unwrap();
    assert_eq!((audit.get::<_, String>(0), audit.get::<_, i64>(1)), (lost.to_string(), 1));
    // It waits to be sent, so it is not missing any more; the other one is for the dead letters.
    let (code, told) = plant.verify(&["--repair"]);
    assert_eq!((code, &told["missing"], &told["dead_letters"]), (Some(1), &0.into(), &1.into()));
}

#[tokio::test]
async fn an_event_of_a_node_is_found_where_it_is() {
    let plant = Plant::new("scada_where").await;
    let event = plant.made[0].event_id;
    let find = |more: &[&str]| {
        let out = plant.run(&[&["where", &event.to_string()], more].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let text = find(&[]);
    assert!(text.contains("SENT: confirmed by the bus"), "{text}");
    assert!(text.contains("stored: telemetry"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&find(&["--json"])).unwrap();
    assert_eq!(json["producer"]["status"], "SENT");
    assert_eq!(json["historian"]["stored"][0]["table"], "telemetry");
    plant.lose(event.uuid()).await;
    let fail = "UPDATE outbox_events SET status = 'FAILED', sent_at = NULL, failed_at = now(),
        failed_reason = 'max_attempts_exceeded', last_error_code = 'REJECTED' WHERE id = $1";
    plant.node.connect().await.unwrap().execute(fail, &[&event.uuid()]).await.unwrap();
    let text = find(&[]);
    assert!(text.contains("FAILED: max_attempts_exceeded, REJECTED"), "{text}");
    assert!(text.contains("in none of its tables"), "{text}");
    let nobody = plant.run(&["where", &event::id::EventId::mint().to_string()]);
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(!nobody.status.success() && said.contains("the plant does not know"), "{said}");
}
