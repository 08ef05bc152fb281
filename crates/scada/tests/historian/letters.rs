//! What the historian gave up, over HTTP: by cause, a dry run, a replay with its progress, on every bus.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::tokens::Role;
use bus::Message;
use reqwest::Method;
use scada::historian::{INCOMPATIBLE, INVALID, REFUSED};
use serde_json::{Value, json};
use testkit::eventually;

use crate::station::{Station, config, count, database, events, http, message, token};

/// A broker takes its time on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// Somebody with a token.
pub(crate) struct Asker {
    at: SocketAddr,
    token: String,
}

impl Asker {
    pub(crate) async fn new(client: &tokio_postgres::Client, at: SocketAddr, role: Role) -> Asker {
        Asker { at, token: token(client, role).await }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://{}/api/v1/dead-letters{path}", self.at);
        let request = http().request(method, url).bearer_auth(&self.token).json(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, &Value::Null).await
    }

    async fn replay(&self, body: Value) -> (u16, Value) {
        self.ask(Method::POST, "/replay", &body).await
    }

    /// Begins a replay and waits for its end.
    async fn replayed(&self, body: Value) -> Value {
        let (status, begun) = self.replay(body).await;
        assert_eq!((status, &begun["state"]), (202, &json!("running")), "{begun}");
        self.ended(&begun["replay_id"]).await
    }

    async fn ended(&self, id: &Value) -> Value {
        eventually(LONG, "the replay has ended", async || {
            let (status, said) = self.get(&format!("/replays/{id}")).await;
            assert_eq!(status, 200, "{said}");
            if said["state"] == "running" { Err(said) } else { Ok(Some(said)) }
        })
        .await
        .unwrap()
    }

    /// How many letters have each cause, when a group of this cause and queue is there.
    async fn causes(&self, cause: &str, queue: &str) -> BTreeMap<String, u64> {
        eventually(LONG, "the letters are there", async || {
            let (status, said) = self.get("").await;
            let groups = said["groups"].as_array().cloned().unwrap_or_default();
            let found = groups.iter().any(|one| one["cause"] == cause && one["queue"] == queue);
            if status != 200 || !found {
                return Err((status, said));
            }
            assert!(!said.to_string().contains("canary"), "no body is shown");
            let mut causes = BTreeMap::new();
            for one in groups {
                let cause = one["cause"].as_str().unwrap().to_owned();
                *causes.entry(cause).or_default() += one["count"].as_u64().unwrap();
            }
            Ok(Some(causes))
        })
        .await
        .unwrap()
    }
}

fn with_version(event: &event::scada::Envelope, version: &str) -> Message {
    let mut message = message(event);
    message.headers.insert("schema_version".to_owned(), version.to_owned());
    message
}

#[tokio::test]
async fn a_row_goes_when_its_event_is_stored_and_stays_with_its_new_cause_otherwise() {
    let station = Station::new("hist_letters").await;
    let client = station.client().await;
    let made = events(7, 2);
    let newer = |at: usize| with_version(&made[at], "2.0.0");
    let mut invalid = message(&made[3]);
    invalid.body = "{\"canary\": 1}".into();
    let mut refused = with_version(&made[4], "1.1.0");
    let body = String::from_utf8(refused.body.to_vec()).unwrap();
    refused.body = body.replacen('{', "{\"note\":\"\\u0000\",", 1).into();
    station.publish(vec![newer(0), newer(1), newer(2), invalid, refused]).await;
    let at = station.historian.http();
    let viewer = Asker::new(&client, at, Role::Viewer).await;
    let operator = Asker::new(&client, at, Role::Operator).await;
    let edge = Asker::new(&client, at, Role::Edge).await;
    let group = scada::historian::GROUP;
    let causes = viewer.causes(INCOMPATIBLE, group).await;
    let counted = [(INCOMPATIBLE, 3), (INVALID, 1), (REFUSED, 1)];
    assert_eq!(causes, counted.map(|(cause, count)| (cause.to_owned(), count)).into());

    assert_eq!(edge.get("").await.0, 403);
    assert_eq!(viewer.replay(json!({"all": true})).await.0, 403, "a viewer only looks");
    for wrong in
        [json!({}), json!({"all": true, "limit": 0}), json!({"all": true, "per_second": 0})]
    {
        assert_eq!(operator.replay(wrong).await.0, 400);
    }
    let dry = operator.replayed(json!({"all": true, "dry_run": true})).await;
    assert_eq!((&dry["matched"], &dry["changed"]), (&json!(5), &json!(0)), "{dry}");
    assert_eq!(count(&client, "historian_dead_letters").await, 5, "a dry run changes nothing");
    assert_eq!(viewer.get(&format!("/replays/{}", dry["replay_id"])).await.1, dry);
    assert_eq!(operator.get("/replays/999").await.0, 404);

    // A newer historian would read two of them; one of these is no event after all.
    let mend = "UPDATE historian_dead_letters SET headers = '{\"schema_version\": \"1.0.0\"}',
        body = CASE WHEN message_id = $2 THEN '\\x7b7d' ELSE body END WHERE message_id = ANY($1)";
    let ids: Vec<String> = made[..2].iter().map(|event| event.event_id.to_string()).collect();
    client.execute(mend, &[&ids, &ids[1]]).await.unwrap();
    let begun = operator.replay(json!({"reason": INCOMPATIBLE, "per_second": 1})).await.1;
    let (status, second) = operator.replay(json!({"all": true})).await;
    assert_eq!((status, &second["error"]["code"]), (409, &json!("replay_runs")), "{second}");
    let done = operator.ended(&begun["replay_id"]).await;
    assert_eq!((&done["state"], &done["left"]), (&json!("done"), &json!(0)), "{done}");
    assert_eq!((&done["matched"], &done["changed"]), (&json!(3), &json!(1)), "{done}");
    assert_eq!(
        station.stored().await.keys().copied().collect::<Vec<_>>(),
        [made[0].event_id.uuid()]
    );
    let causes = "SELECT string_agg(cause_code || ' ' || attempts, ', ' ORDER BY id) FROM historian_dead_letters";
    let causes: String = client.query_one(causes, &[]).await.unwrap().get(0);
    let kept = format!("{INVALID} 2, {INCOMPATIBLE} 2, {INVALID} 1, {REFUSED} 1");
    assert_eq!(causes, kept, "those that are given up again say why");

    // With one that Postgres refuses, the others of its batch are stored.
    let newest = "UPDATE historian_dead_letters SET headers = '{}' WHERE message_id = $1";
    client.execute(newest, &[&made[2].event_id.to_string()]).await.unwrap();
    let done = operator.replayed(json!({"all": true})).await;
    assert_eq!((&done["matched"], &done["changed"]), (&json!(4), &json!(1)), "{done}");
    assert_eq!(station.stored().await.len(), 2);
    let deeds = "SELECT string_agg(actor_kind || ' ' || (parameters->>'outcome') || ' ' || changed, ', ' ORDER BY id)
        FROM operator_audit WHERE action = 'dlq.replay'";
    let deeds: String = client.query_one(deeds, &[]).await.unwrap().get(0);
    assert_eq!(deeds, "token done 0, token done 1, token done 1");
}

/// What a broker's letters must do: they go back to the historian, which gives them up again.
pub(crate) async fn goes_round(operator: &Asker, queue: &str, message_id: &str) {
    operator.causes(INVALID, queue).await;
    let ids = json!([message_id]);
    let dry = operator.replayed(json!({"ids": ids, "dry_run": true})).await;
    assert_eq!((&dry["matched"], &dry["changed"]), (&json!(1), &json!(0)), "{dry}");
    let done = operator.replayed(json!({"ids": ids})).await;
    assert_eq!((&done["state"], &done["changed"]), (&json!("done"), &json!(1)), "{done}");
    eventually(LONG, "it is given up again", async || {
        let dry = operator.replayed(json!({"ids": ids, "dry_run": true})).await;
        if dry["matched"] == 1 { Ok(()) } else { Err(dry) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn rabbitmq_s_letters_go_back_to_the_historian() {
    use bus::Publisher as _;
    use bus::rabbitmq::{Address, PublisherOptions, RabbitPublisher};
    let vhost = testkit::rabbitmq().await.unwrap();
    let database = database("hist_letters_rabbit").await;
    let address = Address::parse(vhost.url()).unwrap();
    bus::rabbitmq::declare(&address, &scada::historian::topology()).await.unwrap();
    let pairs = [("BUS", "rabbitmq"), ("RABBITMQ_URL", vhost.url())];
    let config = config(database.url(), &pairs);
    let historian = scada::historian::Historian::start(config).await.unwrap();
    let mut bad = message(&events(8, 1)[0]);
    bad.body = "{\"canary\": 1}".into();
    let publisher = RabbitPublisher::new(address, PublisherOptions::default());
    assert!(publisher.publish(vec![bad.clone()]).await[0].is_ok());
    let client = database.connect().await.unwrap();
    let operator = Asker::new(&client, historian.http(), Role::Operator).await;
    let queue = scada::historian::topology().queues.remove(0).name;
    goes_round(&operator, &queue, &bad.message_id).await;
    historian.stop().await;
}
