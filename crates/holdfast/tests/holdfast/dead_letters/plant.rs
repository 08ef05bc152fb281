//! The historian's dead letters of the inline bus: the command stores them itself.

use bus::{Cause, DeadLetter, DeadLetters as _, Message};
use testkit::Database;
use uuid::Uuid;

use super::{CANARY, Ground, text};

#[tokio::test]
async fn an_operator_works_through_the_plant_s_inline_dead_letters() {
    let database = Database::empty("inline_scada").await.unwrap();
    let ground = Ground { database, vhost: None, kafka: None };
    scada::migrate_historian(&pg::Options::new(ground.database.url())).await.unwrap();
    let pool = pg::Pool::new(&pg::Options::new(ground.database.url())).unwrap();
    let store = scada::historian::DeadLetters::new(pool);
    let event = serde_json::json!({
        "eventId": Uuid::new_v4(), "timestamp": jiff::Timestamp::now(), "tag": "TEMPERATURE", "value": 25.5,
        "asset": {"plant": "PLANT01", "area": "AREA01", "unit": "UNIT_07"}, "unit": "C", "quality": "GOOD",
        "category": "telemetry", "nodeId": 7,
    });
    let bodies = [("good", event.to_string()), ("odd", format!("{{\"note\": \"{CANARY}\"}}"))];
    for (id, body) in bodies {
        let letter = DeadLetter {
            message: Message::json("scada.l2.telemetry", "TEMPERATURE", id, body),
            queue: Some(scada::historian::GROUP.to_owned()),
            cause: Cause::new("incompatible_schema", "the schema is newer"),
            attempts: 1,
            replayed: 0,
            dead_lettered_at: Some(jiff::Timestamp::now()),
            deaths: Vec::new(),
        };
        store.store(letter).await.unwrap();
    }
    let listed = ground.json("dlq list --scada --json").await;
    assert_eq!((&listed["total"], &listed["groups"][0]["count"]), (&2.into(), &2.into()));
    let status = ground.status().await;
    assert_eq!(status["dead_letters"]["historian"], 2, "{status:#}");
    assert!(status["needs"].to_string().contains("holdfast dlq list --scada"), "{status:#}");
    assert!(text(&ground.holdfast("dlq show odd --scada").await.stdout).contains(CANARY));
    let dry = ground.json("dlq replay --scada --all --dry-run --json").await;
    assert_eq!((&dry["matched"], &dry["changed"]), (&2.into(), &0.into()), "{dry}");
    let done = ground.json("dlq replay --scada --all --json").await;
    assert_eq!((&done["matched"], &done["changed"]), (&2.into(), &1.into()), "{done}");
    assert_eq!(done["kept"][0]["message_id"], "odd", "{done}");
    let client = ground.client().await;
    let number = async |query: &str| -> i64 { client.query_one(query, &[]).await.unwrap().get(0) };
    assert_eq!(number("SELECT count(*) FROM telemetry").await, 1);
    let left = "SELECT count(*) FROM historian_dead_letters WHERE cause_code = 'invalid_envelope'";
    assert_eq!(number(left).await, 1, "with its new cause");
    // Whoever else replays makes the command wait for another time.
    let kind = scada::historian::dead_letters::REPLAYS;
    let options = pg::Options::new(ground.database.url());
    let turn = pg::Turn::take(&options, kind).await.unwrap().unwrap();
    assert!(ground.refused("dlq replay --scada --all").await.contains("already"));
    drop(turn);
}
