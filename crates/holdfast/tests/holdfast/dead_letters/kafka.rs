//! On Kafka: dead letters are in topics, which a replay cannot empty.

use bus::kafka::{
    Cluster, ConsumerOptions, Group, KafkaConsumer, KafkaPublisher, PublisherOptions, admin,
};
use bus::{Binding, Retry};
use testkit::PrivateKafka;
use testkit::rig::KafkaOptions;

use super::*;

async fn broker() -> Option<(PrivateKafka, Cluster)> {
    let kafka = testkit::private_kafka(KafkaOptions::default()).await.unwrap()?;
    let cluster = Cluster::parse(&kafka.servers()).unwrap();
    Some((kafka, cluster))
}

fn publisher(cluster: &Cluster) -> Arc<KafkaPublisher> {
    Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()))
}

fn group(queue: &WorkQueue) -> Group {
    Group {
        name: queue.name.clone(),
        bindings: queue.bindings.clone(),
        dead_letter_topic: queue.dead_letter_queue.clone(),
        retry: Retry::broker(),
    }
}

/// Consumes `count` messages; gives those up that have a cause. Returns their ids.
async fn consume(
    consumer: &mut KafkaConsumer,
    count: usize,
    cause: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(std::time::Duration::from_secs(120), consumer.next());
        let mut batch = next.await.expect("a batch in time").unwrap();
        for at in 0..batch.len() {
            let id = batch.deliveries()[at].message.message_id.clone();
            if let Some(code) = cause(&id) {
                batch.dead_letter(at, Cause::new(code, "it cannot be stored"));
            }
            seen.push(id);
        }
        batch.commit().await.unwrap();
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_works_through_kafka_s_dead_letters() {
    let Some((kafka, cluster)) = broker().await else { return };
    let topology = cloud::topology(&cloud::consume::groups()).unwrap();
    let letters = topology.queues.iter().map(|queue| queue.dead_letter_queue.clone());
    let names: std::collections::BTreeSet<String> = letters.chain([EXCHANGE.to_owned()]).collect();
    let topics: Vec<_> = names.into_iter().map(|name| admin::TopicSpec::new(name, 1, 1)).collect();
    admin::apply(&cluster, &topics).await.unwrap();
    let mut ground = Ground::new("kafka", false).await;
    ground.kafka = Some(kafka.servers());
    let (tenant, other) = (Uuid::now_v7(), Uuid::now_v7());
    let given = [("a", "unit", tenant), ("b", "unit", tenant), ("c", "range", other)];
    let batch = given.iter().map(|(id, _, tenant)| message(id, *tenant)).collect();
    let publisher = publisher(&cluster);
    assert!(publisher.publish(batch).await.iter().all(Result::is_ok));
    let queue = topology.queues.iter().find(|one| one.name == QUEUE).unwrap();
    let one_topic = vec![Binding::new(EXCHANGE, "#")];
    let group = Group { bindings: one_topic, ..group(queue) };
    let options = ConsumerOptions::default();
    let mut consumer = KafkaConsumer::new(&cluster, group, publisher, options);
    let cause = |id: &str| Some(given.iter().find(|(one, ..)| *one == id)?.1.to_owned());
    consume(&mut consumer, 3, cause).await;

    work_through(&ground, tenant).await;
    // The one that went back comes to its group; the others are where they were.
    assert_eq!(ground.json("dlq list --json").await["total"], 2);
    let by_tenant = format!("dlq replay --tenant {other} --json");
    assert_eq!(ground.json(&by_tenant).await["changed"], 1);
    let mut seen = consume(&mut consumer, 2, |id| (id == "c").then(|| "again".to_owned())).await;
    seen.sort();
    assert_eq!(seen, ["a", "c"]);
    let again = ground.json("dlq list --each --cause again --json").await;
    assert_eq!((&again[0]["message_id"], &again[0]["replayed"]), (&"c".into(), &1.into()));
    consumer.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_historian_gave_up_is_listed_and_replayed() {
    let Some((kafka, cluster)) = broker().await else { return };
    let topics = scada::kafka::topics(event::names::kafka::Profile::Dev);
    admin::apply(&cluster, &topics).await.unwrap();
    let mut ground = Ground::new("kafka_scada", false).await;
    ground.database = Database::empty("kafka_scada").await.unwrap();
    ground.kafka = Some(kafka.servers());
    let queue = scada::historian::topology().queues.remove(0);
    let group = Group { name: scada::historian::GROUP.to_owned(), ..group(&queue) };
    let publisher = publisher(&cluster);
    let topic = queue.bindings[0].exchange.clone();
    let odd = Message { exchange: topic, ..message("odd", Uuid::now_v7()) };
    assert!(publisher.publish(vec![odd]).await.iter().all(Result::is_ok));
    let options = ConsumerOptions::default();
    let mut consumer = KafkaConsumer::new(&cluster, group, publisher, options);
    consume(&mut consumer, 1, |_| Some("invalid".to_owned())).await;

    let listed = ground.json("dlq list --scada --json").await;
    assert_eq!(listed["groups"][0]["queue"], scada::historian::GROUP, "{listed}");
    assert_eq!(ground.status().await["dead_letters"]["historian"], 1);
    let dry = ground.json("dlq replay --scada --all --dry-run --json").await;
    assert_eq!((&dry["matched"], &dry["changed"]), (&1.into(), &0.into()));
    let done = ground.json("dlq replay --scada --all --json").await;
    assert_eq!(done["changed"], 1, "{done}");
    assert_eq!(ground.json("dlq list --scada --json").await["total"], 0);
    assert_eq!(ground.status().await["dead_letters"]["historian"], 0);
    assert_eq!(consume(&mut consumer, 1, |_| None).await, ["odd"]);
    let rows = "SELECT action, changed, parameters->>'outcome', (parameters->>'dry_run')::bool,
        actor_kind, parameters::text FROM operator_audit ORDER BY id";
    let rows = ground.client().await.query(rows, &[]).await.unwrap();
    let seen: Vec<(String, i64, String, bool)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    let deed = |changed, dry| ("dlq.replay".to_owned(), changed, "done".to_owned(), dry);
    assert_eq!(seen, [deed(0, true), deed(1, false)]);
    assert!(rows.iter().all(|row| !row.get::<_, String>(5).contains(CANARY)));
    consumer.leave().await;
}
