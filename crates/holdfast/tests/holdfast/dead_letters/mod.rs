//! `holdfast bus` and `holdfast dlq` against a real RabbitMQ, a real Kafka and a real Postgres.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

#[cfg(feature = "kafka")]
mod kafka;
mod plant;

use std::process::Output;
use std::sync::Arc;

use bus::rabbitmq::{
    Address, ConsumerOptions, PublisherOptions, RabbitConsumer, RabbitPublisher, WorkQueue,
};
use bus::{Cause, Consumer as _, DeadLetter, DeadLetters as _, Message, Publisher as _};
use cloud::dead_letters::{Store, Wanted, audit};
use serde_json::Value;
use testkit::Database;
use uuid::Uuid;

const EXCHANGE: &str = "farmiq.telemetry.exchange";
const QUEUE: &str = "farmiq.cloud-telemetry-service.ingest.queue";
const CANARY: &str = "canary-51c2";
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

struct Ground {
    database: Database,
    vhost: Option<testkit::Vhost>,
    /// The brokers of a Kafka.
    kafka: Option<String>,
}

impl Ground {
    async fn new(name: &str, with_broker: bool) -> Ground {
        let migrate = async |url: String| cloud::migrate(&pg::Options::new(url)).await;
        let database = testkit::database(name, "cloud", migrate).await.unwrap();
        let vhost = if with_broker { Some(testkit::rabbitmq().await.unwrap()) } else { None };
        Ground { database, vhost, kafka: None }
    }

    async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    /// Runs the command as an operator would, and makes sure that no secret is in what it says.
    async fn holdfast(&self, line: &str) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command
            .args(line.split_whitespace())
            .env("HOLDFAST_CLOUD_DATABASE_URL", self.database.url())
            .env_remove("HOLDFAST_CONFIG");
        if self.kafka.is_none() && self.vhost.is_none() {
            command
                .env("HISTORIAN_DATABASE_URL", self.database.url())
                .env("HOLDFAST_HISTORIAN_BUS", "inline");
        }
        if let Some(brokers) = &self.kafka {
            command
                .env("HOLDFAST_CLOUD_BUS", "kafka")
                .env("HOLDFAST_CLOUD_KAFKA_BROKERS", brokers)
                .env("HISTORIAN_DATABASE_URL", self.database.url())
                .env("HOLDFAST_HISTORIAN_BUS", "kafka")
                .env("SCADA_KAFKA_BROKERS", brokers);
        }
        let mut password = None;
        if let Some(vhost) = &self.vhost {
            command
                .env("HOLDFAST_CLOUD_BUS", "rabbitmq")
                .env("HOLDFAST_CLOUD_RABBITMQ_URL", vhost.url());
            let credentials = vhost.url().split_once('@').unwrap().0;
            password = Some(credentials.rsplit_once(':').unwrap().1.to_owned());
        }
        let output = command.output().await.unwrap();
        let said = [text(&output.stdout), text(&output.stderr)].concat();
        assert!(password.is_none_or(|password| !said.contains(&password)), "{said}");
        output
    }

    async fn json(&self, line: &str) -> Value {
        let output = self.holdfast(line).await;
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What `holdfast status` sees, which needs somebody: nobody serves anything here.
    async fn status(&self) -> Value {
        serde_json::from_slice(&self.holdfast("status --json").await.stdout).unwrap()
    }

    async fn refused(&self, line: &str) -> String {
        let output = self.holdfast(line).await;
        assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn message(id: &str, tenant: Uuid) -> Message {
    let body = format!("{{ \"tenant_id\":\"{tenant}\", \"note\": \"{CANARY}\" }}");
    Message::json(EXCHANGE, "telemetry.ingested", id, body)
}

#[tokio::test]
async fn what_the_broker_lacks_is_named_and_made() {
    let ground = Ground::new("bus", true).await;
    let missing = ground.refused("bus check").await;
    assert!(missing.contains(QUEUE) && missing.contains("holdfast bus declare"), "{missing}");
    let declared = ground.json("bus declare --json").await;
    assert!(declared.as_array().unwrap().iter().all(|row| row["state"] == "declared"));
    let names = |rows: &Value| {
        let all = rows.as_array().unwrap();
        all.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names(&declared).contains(&EXCHANGE.to_owned()));
    assert!(names(&declared).contains(&"farmiq.cloud-telemetry-service.dlq.queue".to_owned()));
    let checked = ground.json("bus check --json").await;
    assert!(checked.as_array().unwrap().iter().all(|row| row["state"] == "ok"), "{checked}");
    assert_eq!(names(&checked), names(&declared));

    let vhost = ground.vhost.as_ref().unwrap();
    vhost.ctl(&["delete_queue", "-p", vhost.name(), QUEUE]).await.unwrap();
    let output = ground.holdfast("bus check").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("differ: {QUEUE};")), "{output:?}");
    let row = text(&output.stdout).lines().find(|line| line.contains(QUEUE)).unwrap().to_owned();
    assert!(row.contains("missing"), "{row}");

    let inline = Ground::new("inline", false).await;
    let refused = inline.refused("bus check").await;
    assert!(refused.contains("cloud.bus is inline") && refused.contains("--url"), "{refused}");
}

/// Publishes messages to the work queue and gives each of them up.
async fn give_up(url: &str, letters: &[(&str, &str, Uuid)]) {
    let address = Address::parse(url).unwrap();
    let publisher = Arc::new(RabbitPublisher::new(address.clone(), PublisherOptions::default()));
    let batch = letters.iter().map(|(id, _, tenant)| message(id, *tenant)).collect();
    assert!(publisher.publish(batch).await.iter().all(Result::is_ok));
    let topology = cloud::topology(&cloud::consume::groups()).unwrap();
    let queue: WorkQueue = topology.queues.into_iter().find(|one| one.name == QUEUE).unwrap();
    let mut consumer = RabbitConsumer::new(address, queue, publisher, ConsumerOptions::default());
    let mut left = letters.len();
    while left > 0 {
        let mut batch = consumer.next().await.unwrap();
        for at in 0..batch.len() {
            let id = batch.deliveries()[at].message.message_id.clone();
            let (_, code, _) = letters.iter().find(|(one, ..)| *one == id).unwrap();
            batch.dead_letter(at, Cause::new(*code, "it cannot be stored"));
        }
        left -= usize::try_from(batch.commit().await.unwrap().dead_lettered).unwrap();
    }
}

/// What both kinds of bus must do with the letters a, b (cause `unit`) and c (cause `range`, another tenant).
async fn work_through(ground: &Ground, tenant: Uuid) {
    let status = ground.status().await;
    assert_eq!(status["dead_letters"]["consumers"], 3, "{status:#}");
    assert!(status["needs"].to_string().contains("consumers gave up 3 messages"), "{status:#}");
    let listed = ground.json("dlq list --json").await;
    let groups = listed["groups"].as_array().unwrap();
    let counts: Vec<_> =
        groups.iter().map(|g| (g["cause_code"].clone(), g["count"].clone())).collect();
    assert_eq!(counts, [("unit".into(), 2.into()), ("range".into(), 1.into())]);
    assert_eq!(groups[0]["queue"], QUEUE);
    let table = text(&ground.holdfast("dlq list").await.stdout);
    assert!(table.contains(QUEUE) && table.contains("unit"), "{table}");
    let each = ground.json(&format!("dlq list --each --tenant {tenant} --since 1h --json")).await;
    assert_eq!(each.as_array().unwrap().len(), 2, "{each}");
    assert!(!each.to_string().contains(CANARY), "a list shows no body");

    let shown = text(&ground.holdfast("dlq show a").await.stdout);
    assert!(shown.contains(CANARY) && shown.contains("it cannot be stored"), "{shown}");
    assert!(ground.refused("dlq show nobody").await.contains("dlq list --each"));
    let exported = text(&ground.holdfast("dlq export --cause unit").await.stdout);
    assert_eq!(exported.lines().count(), 2);
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert_eq!(first["body"], text(&message("a", tenant).body), "byte for byte");

    assert!(ground.refused("dlq replay").await.contains("--all"));
    let dry = ground.json("dlq replay --cause unit --dry-run --json").await;
    assert_eq!((&dry["matched"], &dry["changed"]), (&2.into(), &0.into()));
    assert_eq!(ground.json("dlq list --json").await["total"], 3, "a dry run changes nothing");
    let wet = ground.json("dlq replay --cause unit --limit 1 --json").await;
    assert_eq!(wet["changed"], 1, "{wet}");

    let client = ground.client().await;
    let records = audit::latest(&client, 10).await.unwrap();
    let seen: Vec<_> = records
        .iter()
        .rev()
        .map(|one| (one.action.as_str(), one.dry_run, one.changed, one.outcome.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("dlq.export", false, Some(0), "done"),
            ("dlq.replay", true, Some(0), "done"),
            ("dlq.replay", false, Some(1), "done"),
        ]
    );
    assert_eq!(records[0].parameters["cause"], "unit");
    assert!(records.iter().all(|one| one.actor_kind == "user" && !one.actor.is_empty()));
    assert!(!format!("{records:?}").contains(CANARY));
}

#[tokio::test]
async fn an_operator_works_through_the_broker_s_dead_letters() {
    let ground = Ground::new("broker", true).await;
    ground.json("bus declare --json").await;
    let (tenant, other) = (Uuid::now_v7(), Uuid::now_v7());
    let url = ground.vhost.as_ref().unwrap().url().to_owned();
    give_up(&url, &[("a", "unit", tenant), ("b", "unit", tenant), ("c", "range", other)]).await;
    work_through(&ground, tenant).await;
    // The one that went back is in its queue; the others are where they were.
    assert_eq!(ground.json("dlq list --json").await["total"], 2);
    let by_tenant = format!("dlq replay --tenant {other} --json");
    assert_eq!(ground.json(&by_tenant).await["changed"], 1);
    assert_eq!(ground.json("dlq list --json").await["total"], 1);
    assert_eq!(ground.status().await["dead_letters"]["consumers"], 1);
    // Where they cannot be counted, nobody is told that there are none.
    let vhost = ground.vhost.as_ref().unwrap();
    let letters = "farmiq.cloud-telemetry-service.dlq.queue";
    vhost.ctl(&["delete_queue", "-p", vhost.name(), letters]).await.unwrap();
    let status = ground.status().await;
    assert_eq!(status["dead_letters"]["consumers"], Value::Null, "{status:#}");
    assert!(status["needs"].to_string().contains("dead letters are not known"), "{status:#}");
    let screen = text(&ground.holdfast("status").await.stdout);
    assert!(screen.contains("consumers not known"), "{screen}");
}

#[tokio::test]
async fn an_operator_works_through_the_inline_dead_letters() {
    let ground = Ground::new("inline", false).await;
    let (tenant, other) = (Uuid::now_v7(), Uuid::now_v7());
    let store = Store::new(pg::Pool::new(&pg::Options::new(ground.database.url())).unwrap());
    for (id, code, tenant) in [("a", "unit", tenant), ("b", "unit", tenant), ("c", "range", other)]
    {
        let letter = DeadLetter {
            message: message(id, tenant),
            queue: Some(QUEUE.to_owned()),
            cause: Cause::new(code, "it cannot be stored"),
            attempts: 4,
            replayed: 0,
            dead_lettered_at: Some(jiff::Timestamp::now()),
            deaths: Vec::new(),
        };
        store.store(letter).await.unwrap();
    }
    work_through(&ground, tenant).await;
    // The cloud delivers what is marked; a is, because it is the oldest.
    let client = ground.client().await;
    let kept = cloud::dead_letters::list(&client, &Wanted::default(), 0, 10).await.unwrap();
    let marked: Vec<_> = kept.iter().map(|one| one.replay_at.is_some()).collect();
    assert_eq!(marked, [true, false, false]);
}

/// `--wait` returns when the cloud has delivered, and not before.
#[tokio::test]
async fn a_replay_that_waits_ends_when_the_cloud_has_delivered() {
    let ground = Ground::new("wait", false).await;
    let client = ground.client().await;
    let store = Store::new(pg::Pool::new(&pg::Options::new(ground.database.url())).unwrap());
    let (event, tenant) = (Uuid::now_v7(), Uuid::now_v7());
    let envelope = serde_json::json!({"event_id": event, "event_type": "telemetry.ingested", "tenant_id": tenant,
        "farm_id": Uuid::now_v7(), "barn_id": Uuid::now_v7(), "device_id": Uuid::now_v7(), "occurred_at": jiff::Timestamp::now(),
        "trace_id": "trace-1", "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"}});
    let letter = DeadLetter {
        message: Message::json(
            EXCHANGE,
            "telemetry.ingested",
            event.to_string(),
            envelope.to_string(),
        ),
        queue: Some(QUEUE.to_owned()),
        cause: Cause::new("unit", "it could not be stored then"),
        attempts: 4,
        replayed: 0,
        dead_lettered_at: Some(jiff::Timestamp::now()),
        deaths: Vec::new(),
    };
    store.store(letter).await.unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let mut waiting = command
        .args(["dlq", "replay", "--all", "--wait", "--json"])
        .env("HOLDFAST_CLOUD_DATABASE_URL", ground.database.url())
        .env_remove("HOLDFAST_CONFIG")
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let number = async |query: &str| -> i64 { client.query_one(query, &[]).await.unwrap().get(0) };
    let asked = "SELECT count(*) FROM bus_dead_letter WHERE replay_at IS NOT NULL";
    testkit::eventually(LONG, "the replay is asked for", async || number(asked).await == 1)
        .await
        .unwrap();
    assert!(waiting.try_wait().unwrap().is_none(), "nobody has delivered it yet");
    let config = cloud::Config::load(None, |name| match name {
        "HOLDFAST_CLOUD_DATABASE_URL" => Some(ground.database.url().to_owned()),
        "HOLDFAST_CLOUD_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    });
    let cloud = cloud::Cloud::start(config.unwrap()).await.unwrap();
    let output = tokio::time::timeout(LONG, waiting.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["matched"], &done["changed"]), (&1.into(), &1.into()), "{done}");
    assert_eq!(number("SELECT count(*) FROM bus_dead_letter").await, 0);
    let stored = format!("SELECT count(*) FROM telemetry_reading WHERE event_id = '{event}'");
    assert_eq!(number(&stored).await, 1, "it is stored when the command ends");
    cloud.stop().await;
}
