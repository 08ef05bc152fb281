//! Alarms from message to journal, with operators and time.

use api::tokens::Role;
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::eventually;

use crate::station::{LONG, Station, alarm, http, message};

struct Operator {
    station: Station,
    token: String,
}

const PLACE: &str = "/alarm-states/PLANT01/AREA01/UNIT_07";

impl Operator {
    async fn new(name: &str, pairs: &[(&str, &str)]) -> Operator {
        let station = Station::with(name, pairs).await;
        let token = station.token(Role::Operator).await;
        Operator { station, token }
    }

    async fn raise(&self, tag: &str, value: f64, at: Timestamp) {
        self.station.publish(vec![message(&alarm(tag, value, at))]).await;
    }

    async fn act(&self, tag: &str, deed: &str, body: Value) -> (StatusCode, Value) {
        let url = self.station.url(&format!("{PLACE}/{tag}/{deed}"));
        let request = http().post(url).bearer_auth(&self.token);
        let answer = request.body(body.to_string()).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let request = http().get(self.station.url(path)).bearer_auth(&self.token);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(answer["items"].is_array(), "{path}: {answer}");
        answer["items"].as_array().unwrap().clone()
    }

    async fn state(&self, tag: &str) -> String {
        let all = self.items(&format!("/alarm-states?tag={tag}")).await;
        all[0]["state"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn an_alarm_is_raised_acknowledged_cleared_and_every_step_has_who_and_when() {
    let operator = Operator::new("alarm_life", &[]).await;
    let now = Timestamp::now();
    operator.raise("HIGH_TEMP", 330.0, now).await;
    assert_eq!(operator.state("HIGH_TEMP").await, "active_unacknowledged");
    let (status, state) = operator.act("HIGH_TEMP", "acknowledge", json!({})).await;
    assert_eq!((status, state["state"].as_str()), (StatusCode::OK, Some("active_acknowledged")));
    let (status, refusal) = operator.act("HIGH_TEMP", "acknowledge", json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refusal["error"]["code"], "not_allowed");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("active_acknowledged"));
    // Back on the good side of its threshold.
    operator.raise("HIGH_TEMP", 300.0, now + SignedDuration::from_millis(1)).await;
    assert_eq!(operator.state("HIGH_TEMP").await, "normal");
    let journal = operator.items("/alarm-journal?tag=HIGH_TEMP").await;
    let steps: Vec<(&str, &str)> = journal
        .iter()
        .rev()
        .map(|line| (line["action"].as_str().unwrap(), line["actor_kind"].as_str().unwrap()))
        .collect();
    // The acknowledgement came at the server's time, after both messages' own.
    let mut sorted = steps.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [("acknowledged", "token"), ("cleared", "process"), ("raised", "process")]);
    assert_eq!(
        operator.station.count("operator_audit WHERE action = 'alarm.acknowledge'").await,
        1
    );
    for tag in ["NO_SUCH", "high.temp", "%00"] {
        let (status, _) = operator.act(tag, "acknowledge", json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{tag}");
    }
}

#[tokio::test]
async fn a_quiet_alarm_is_cleared_and_a_shelf_ends_by_itself() {
    let operator = Operator::new("alarm_quiet", &[("ALARMS_QUIET", "3s")]).await;
    operator.raise("HIGH_FLOW", 99.0, Timestamp::now()).await;
    let (status, _) = operator
        .act("HIGH_FLOW", "shelve", json!({"minutes": 1, "reason": "sensor is being replaced"}))
        .await;
    assert_eq!(status, StatusCode::OK);
    let (status, refusal) =
        operator.act("HIGH_FLOW", "shelve", json!({"minutes": 1, "reason": "again"})).await;
    assert_eq!(
        (status, refusal["error"]["code"].as_str()),
        (StatusCode::CONFLICT, Some("not_allowed"))
    );
    for body in [
        json!({"minutes": 0, "reason": "x"}),
        json!({"minutes": 100_000, "reason": "x"}),
        json!({"minutes": 1, "reason": ""}),
        json!({"minutes": 1}),
    ] {
        assert_eq!(operator.act("HIGH_FLOW", "shelve", body).await.0, StatusCode::BAD_REQUEST);
    }
    eventually(LONG, "it is quiet", async || {
        operator.state("HIGH_FLOW").await == "cleared_unacknowledged"
    })
    .await
    .unwrap();
    // Its time is over as far as the database knows.
    let client = operator.station.client().await;
    client.execute("UPDATE alarm_state SET shelved_until = now()", &[]).await.unwrap();
    eventually(LONG, "it is off the shelf", async || {
        operator.items("/alarm-states?shelved=false").await.len() == 1
    })
    .await
    .unwrap();
    let unshelved = operator.items("/alarm-journal?action=unshelved").await;
    assert_eq!(
        (unshelved[0]["actor_kind"].as_str(), unshelved[0]["announced"].as_bool()),
        (Some("system"), Some(false))
    );
    assert_eq!(operator.act("HIGH_FLOW", "acknowledge", json!({})).await.1["state"], "normal");
}

#[tokio::test]
async fn a_late_alarm_is_journalled_at_its_own_time_and_not_announced() {
    let operator = Operator::new("alarm_late", &[]).await;
    let yesterday = Timestamp::now() - SignedDuration::from_hours(24);
    operator.raise("LOW_PRESSURE", 1.0, yesterday).await;
    assert_eq!(operator.state("LOW_PRESSURE").await, "normal");
    let journal = operator.items("/alarm-journal").await;
    assert_eq!(journal.len(), 1);
    assert_eq!(
        (journal[0]["late"].as_bool(), journal[0]["announced"].as_bool()),
        (Some(true), Some(false))
    );
    let at: Timestamp = journal[0]["at"].as_str().unwrap().parse().unwrap();
    assert_eq!(at.as_microsecond(), yesterday.as_microsecond());
    assert_eq!(
        operator.station.count("alarms").await,
        1,
        "the message itself is stored as any other"
    );
}

#[tokio::test]
async fn chattering_and_a_flood_are_found() {
    let operator = Operator::new("alarm_flood", &[]).await;
    let now = Timestamp::now() - SignedDuration::from_secs(30);
    let mut messages = Vec::new();
    for turn in 0..3 {
        let at = now + SignedDuration::from_secs(turn * 4);
        messages.push(message(&alarm("VIBRATION_HIGH", 8.0, at)));
        messages.push(message(&alarm("VIBRATION_HIGH", 2.0, at + SignedDuration::from_secs(1))));
    }
    operator.station.publish(messages).await;
    let states = operator.items("/alarm-states?tag=VIBRATION_HIGH").await;
    assert_eq!(states[0]["chattering"], true);
    assert_eq!(operator.items("/alarm-journal?action=chattering").await.len(), 1);
    assert!(operator.items("/alarm-floods").await.is_empty(), "three are no flood");
    for n in 0..8 {
        operator.raise(&format!("CUSTOM_{n}"), 1.0, Timestamp::now()).await;
    }
    eventually(LONG, "eleven are one", async || operator.items("/alarm-floods").await.len() == 1)
        .await
        .unwrap();
    let floods = operator.items("/alarm-floods").await;
    assert_eq!(
        (floods[0]["position"].as_str(), floods[0]["peak"].as_i64()),
        (Some("PLANT01"), Some(11))
    );
    let shown = |floods: u8| {
        let line = format!("holdfast_historian_alarm_floods {floods}\n");
        operator.station.historian.metrics().render().contains(&line)
    };
    eventually(LONG, "its metric shows it", async || shown(1)).await.unwrap();
    // Ten minutes later.
    let client = operator.station.client().await;
    client
        .execute("UPDATE alarm_journal SET recorded_at = recorded_at - interval '11 minutes'", &[])
        .await
        .unwrap();
    eventually(LONG, "it is over", async || {
        !operator.items("/alarm-floods").await[0]["ended_at"].is_null()
    })
    .await
    .unwrap();
    eventually(LONG, "its metric shows that too", async || shown(0)).await.unwrap();
}
