//! The plant: alarms, and its series.

use api::tokens::Role;
use serde_json::json;

use crate::ground::{Ground, LONG, code};

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_seen_acknowledged_and_shelved() {
    let ground = Ground::new("console_alarms").await;
    let client = ground.historian_database.connect().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at,
                 raises, occurrences)
             VALUES ('PLANT01', 'AREA01', 'UNIT_01', 'HIGH_TEMP', 'active_unacknowledged', 'HIGH', 91.5, 'C', now(),
                 ARRAY[now()], 1);
             INSERT INTO alarm_floods (position, peak) VALUES ('PLANT01', 14);
             INSERT INTO telemetry (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
             SELECT gen_random_uuid(), now() - n * interval '1 s', 'PLANT01', 'AREA01', 'UNIT_01', 'TEMP', 20 + n % 3,
                 'C', 'GOOD', 1
             FROM generate_series(0, 99) AS n",
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    let list = operator.see("/api/v1/alarms").await;
    let id = "PLANT01.AREA01.UNIT_01.HIGH_TEMP";
    assert_eq!((&list["items"][0]["id"], &list["items"][0]["value"]), (&json!(id), &json!(91.5)));
    assert_eq!(list["counts"]["active_unacknowledged"], 1);
    let viewer = ground.sign_in(Role::Viewer, api::tokens::Tenants::All).await;
    let act = |what: &str| format!("/api/v1/alarms/{id}/{what}");
    assert_eq!(viewer.post(&act("acknowledge"), json!({})).await.status(), 403);
    let done = operator.post(&act("acknowledge"), json!({})).await;
    let alarm: serde_json::Value = done.json().await.unwrap();
    assert_eq!((&alarm["state"], &alarm["id"]), (&json!("active_acknowledged"), &json!(id)));
    let again = operator.post(&act("acknowledge"), json!({})).await;
    assert_eq!(code(again).await, (409, "not_allowed".to_owned()));
    let no_reason = operator.post(&act("shelve"), json!({"minutes": 30, "reason": " "})).await;
    assert_eq!(code(no_reason).await, (400, "malformed".to_owned()));
    let shelf = json!({"minutes": 30, "reason": "the sensor is replaced"});
    let shelved: serde_json::Value =
        operator.post(&act("shelve"), shelf).await.json().await.unwrap();
    assert!(shelved["shelved_until"].is_string());
    let reason = shelved["shelf_reason"].as_str().unwrap();
    assert!(reason.contains("replaced") && reason.contains("somebody"), "{reason}");
    assert_eq!(operator.post(&act("unshelve"), json!({})).await.status(), 200);
    for wrong in ["PLANT01.AREA01.UNIT_01.NOTHING", "a/../b", "PLANT01"] {
        let path = format!("/api/v1/alarms/{}/acknowledge", wrong.replace('/', "%2F"));
        assert_eq!(operator.post(&path, json!({})).await.status(), 404, "{wrong}");
    }
    let series = operator.see("/api/v1/explore/series?source=historian").await;
    assert_eq!(series["items"][0]["name"], "PLANT01.AREA01.UNIT_01.TEMP");
    assert_eq!(series["items"][0]["unit"], "C");
    testkit::eventually(LONG, "the picture has the alarm", async || {
        let picture = operator.see("/api/v1/picture").await;
        picture["alarms"]["active_acknowledged"] == 1
    })
    .await
    .unwrap();
}
