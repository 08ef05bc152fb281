//! Dead letters that a broker keeps, over HTTP: by cause, a dry run, a replay with its progress; one at a time, and each token its own tenants'.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::{Cause, Consumer};
use cloud::tokens::{Role, Tenants};
use cloud::{Cloud, Work};
use event::id::{Epoch, TenantId};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::operate::Asker;
use crate::site::{Site, batch, config, placed, token};
use crate::wiring::{Store, telemetry};

/// Kafka makes topics and gathers its groups in its own time, and more so on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// Gives up what comes, with the unit of each reading as its cause, until it is mended.
#[derive(Clone, Default)]
struct Broken {
    mended: Arc<AtomicBool>,
    store: Store,
}

impl Broken {
    fn work(&self) -> Work {
        let broken = self.clone();
        Work::new(telemetry(), move |consumer, _, stop| broken.clone().run(consumer, stop))
    }

    async fn run(self, mut consumer: Box<dyn Consumer>, stop: CancellationToken) {
        loop {
            let batch = tokio::select! {
                batch = consumer.next() => batch,
                () = stop.cancelled() => return,
            };
            let Ok(mut batch) = batch else { return };
            for at in 0..batch.len() {
                let message = batch.deliveries()[at].message.clone();
                if self.mended.load(Ordering::SeqCst) {
                    self.store.put(&message);
                    continue;
                }
                let event: Value = serde_json::from_slice(&message.body).unwrap();
                let unit = event["payload"]["unit"].as_str().unwrap();
                batch.dead_letter(at, Cause::new(format!("odd_{unit}"), "no such unit"));
            }
            let _ = batch.commit().await;
        }
    }
}

async fn ended(asker: &Asker, id: &Value) -> Value {
    let path = format!("/dead-letters/replays/{id}");
    eventually(LONG, "the replay has ended", async || {
        let (status, said) = asker.get(&path).await;
        assert_eq!(status, 200, "{said}");
        if said["state"] == "running" { Err(said) } else { Ok(Some(said)) }
    })
    .await
    .unwrap()
}

async fn has_letters(asker: &Asker, count: u64) -> Value {
    eventually(LONG, "the letters are there", async || {
        let (status, said) = asker.get("/dead-letters").await;
        if status == 200 && said["total"] == count { Ok(Some(said)) } else { Err((status, said)) }
    })
    .await
    .unwrap()
}

async fn work_through(name: &str, pairs: &[(&str, &str)]) {
    let broken = Broken::default();
    let roles = ("ROLES", "ingestion,relay,telemetry");
    let pairs: Vec<_> = pairs.iter().copied().chain([roles]).collect();
    let site = Site::with_works(name, &pairs, vec![broken.work()]).await;
    let (ours, theirs) = (site.tenant, TenantId::mint());
    let client = site.client().await;
    let (_, stranger) = token(&client, Role::Edge, Tenants::Only(vec![theirs])).await;
    for (tenant, bearer, units) in
        [(ours, &site.token, &["K", "K", "X"][..]), (theirs, &stranger, &["K", "K"])]
    {
        let events = units.iter().enumerate().map(|(at, unit)| {
            let mut event = site.reading();
            event["tenant_id"] = json!(tenant);
            event["payload"]["unit"] = json!(unit);
            placed(event, "barn-7", Epoch::mint(), at as u64 + 1)
        });
        let sent = site.post().bearer_auth(bearer).body(batch(events.collect()).to_string());
        let said: Value = sent.send().await.unwrap().json().await.unwrap();
        assert!(said["results"].as_array().unwrap().iter().all(|one| one["status"] == "accepted"));
    }
    let viewer = Asker::new(&site, Role::Viewer, Tenants::Only(vec![ours])).await;
    let operator = Asker::new(&site, Role::Operator, Tenants::Only(vec![ours])).await;
    let other = Asker::new(&site, Role::Operator, Tenants::Only(vec![theirs])).await;
    let admin = Asker::new(&site, Role::Admin, Tenants::All).await;
    let machine = Asker::new(&site, Role::Edge, Tenants::All).await;

    let seen = has_letters(&admin, 5).await;
    assert_eq!((&seen["looked_at"], &seen["more"]), (&json!(5), &json!(false)), "{seen}");
    assert_eq!(seen["groups"].as_array().unwrap().len(), 3, "{seen}");
    let (_, seen) = viewer.get("/dead-letters").await;
    let groups = seen["groups"].as_array().unwrap();
    let counts: Vec<_> = groups.iter().map(|one| (&one["cause"], &one["count"])).collect();
    assert_eq!(counts, [(&json!("odd_K"), &json!(2)), (&json!("odd_X"), &json!(1))], "{seen}");
    assert_eq!(groups[0]["queue"], telemetry().queue);
    assert_eq!(seen["total"], Value::Null, "how many others have is not said");
    assert!(!seen.to_string().contains(&theirs.to_string()));
    assert!(!seen.to_string().contains("metric_value"), "no body is shown");
    assert_eq!(machine.get("/dead-letters").await.0, 403);
    let (_, summary) = viewer.get("/summary").await;
    assert_eq!(summary["tenants"][0]["bus_dead"], 3, "{summary}");

    let post = async |asker: &Asker, body: Value| {
        asker.ask(Method::POST, "/dead-letters/replay", body).await
    };
    assert_eq!(post(&viewer, json!({"tenant_id": ours})).await.0, 403);
    assert_eq!(post(&operator, json!({"all": true})).await.0, 400, "which tenant?");
    assert_eq!(post(&operator, json!({"tenant_id": theirs})).await.0, 403);
    assert_eq!(post(&admin, json!({"all": true, "per_second": 0})).await.0, 400);
    let dry = json!({"tenant_id": ours, "reason": "odd_K", "dry_run": true});
    let (status, begun) = post(&operator, dry).await;
    assert_eq!((status, &begun["state"]), (202, &json!("running")), "{begun}");
    let done = ended(&operator, &begun["replay_id"]).await;
    assert_eq!((&done["state"], &done["dry_run"]), (&json!("done"), &json!(true)), "{done}");
    assert_eq!((&done["matched"], &done["changed"]), (&json!(2), &json!(0)), "{done}");
    let path = format!("/dead-letters/replays/{}", begun["replay_id"]);
    assert_eq!(other.get(&path).await.0, 404, "it is another tenant's");
    assert_eq!(viewer.get(&path).await.0, 403);
    assert_eq!(operator.get("/dead-letters/replays/999").await.0, 404);
    has_letters(&admin, 5).await;

    broken.mended.store(true, Ordering::SeqCst);
    let second = Cloud::start_with(config(site.database.url(), &pairs), vec![broken.work()]).await;
    let second = second.unwrap();
    let slow = json!({"tenant_id": ours, "per_second": 1});
    let (status, begun) = post(&operator, slow).await;
    assert_eq!(status, 202, "{begun}");
    let (status, refused) = post(&admin, json!({"all": true})).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("replay_runs")), "{refused}");
    // Another replica knows of it, and begins none either.
    let elsewhere = operator.at(second.http());
    let (_, said) = elsewhere.get(&format!("/dead-letters/replays/{}", begun["replay_id"])).await;
    assert_eq!(said["state"], "running", "{said}");
    assert_eq!(post(&admin.at(second.http()), json!({"all": true})).await.0, 409);
    let done = ended(&elsewhere, &begun["replay_id"]).await;
    assert_eq!((&done["state"], &done["left"]), (&json!("done"), &json!(0)), "{done}");
    assert_eq!((&done["matched"], &done["changed"]), (&json!(3), &json!(3)), "{done}");
    broken.store.has(3).await;
    let left = has_letters(&admin, 2).await;
    assert!(!left.to_string().contains(&ours.to_string()), "{left}");

    let deeds = "SELECT string_agg(dry_run || ' ' || outcome || ' ' || changed || ' ' || actor_kind, ', ' ORDER BY id)
        FROM operator_audit WHERE action = 'dlq.replay'";
    assert_eq!(site.text(deeds).await, "true done 0 token, false done 3 token");
    // A replica that was killed in the middle has left a record that nobody works on.
    let killed = "INSERT INTO operator_audit (actor_kind, actor, action, parameters, dry_run)
        VALUES ('user', 'somebody', 'dlq.replay', '{}', false) RETURNING id";
    let killed: i64 = client.query_one(killed, &[]).await.unwrap().get(0);
    let (_, said) = admin.get(&format!("/dead-letters/replays/{killed}")).await;
    assert_eq!(said["state"], "cut_off", "{said}");
    second.stop().await;
    site.cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_s_dead_letters_are_listed_and_replayed_over_http() {
    let vhost = testkit::rabbitmq().await.unwrap();
    work_through("letters_rabbit", &[("BUS", "rabbitmq"), ("RABBITMQ_URL", vhost.url())]).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_s_dead_letters_are_listed_and_replayed_over_http() {
    let options = testkit::rig::KafkaOptions::default();
    let Some(kafka) = testkit::private_kafka(options).await.unwrap() else { return };
    let servers = kafka.servers();
    let topics = [("KAFKA_PARTITIONS", "3"), ("KAFKA_REPLICATION", "1")];
    let pairs = [("BUS", "kafka"), ("KAFKA_BROKERS", servers.as_str()), topics[0], topics[1]];
    work_through("letters_kafka", &pairs).await;
}

#[tokio::test]
async fn a_broker_that_is_away_is_said() {
    let pairs = [("BUS", "rabbitmq"), ("RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:1/%2f")];
    let site = Site::with("letters_away", &pairs).await;
    let admin = Asker::new(&site, Role::Admin, Tenants::All).await;
    // It has no queue, so nobody is asked; with one, the broker is.
    assert_eq!(admin.get("/dead-letters").await.0, 200);
    site.cloud.stop().await;
    let config = config(site.database.url(), &pairs);
    let cloud = Cloud::start_with(config, vec![Broken::default().work()]).await.unwrap();
    let admin = admin.at(cloud.http());
    let (status, said) = admin.get("/dead-letters").await;
    assert_eq!(status, 503, "{said}");
    let (status, begun) =
        admin.ask(Method::POST, "/dead-letters/replay", json!({"all": true})).await;
    assert_eq!(status, 202, "{begun}");
    let done = ended(&admin, &begun["replay_id"]).await;
    assert_eq!(done["state"], "failed", "{done}");
    assert!(!done["error"].as_str().unwrap().contains("guest"), "{done}");
    cloud.stop().await;
}
