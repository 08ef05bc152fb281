//! What a real broker refuses: retried by the schedule, given up at its end, and nobody else's trouble.

use std::sync::Arc;
use std::time::Duration;

use bus::rabbitmq::{
    Address, ConsumerOptions, PublisherOptions, RabbitConsumer, RabbitPublisher, Topology,
    WorkQueue, declare,
};
use bus::{Binding, Consumer as _, Publisher, Retry};
use event::names::kafka::Topic;
use event::scada::Envelope;
use scada::outbox::{Dispatcher, Settings};
use uuid::Uuid;

use crate::plant::{LONG, Plant, cycles};

/// The documented steps, in seconds.
const STEPS: [f64; 6] = [5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0];

/// A row, as its state table sees it.
#[derive(Debug)]
struct Row {
    status: String,
    retries: i32,
    code: Option<String>,
}

impl Plant {
    fn on(&self, publisher: Arc<dyn Publisher>, max_retries: u32) -> Dispatcher {
        let settings = Settings {
            poll: Duration::from_millis(20),
            // Rows whose time a test has moved are found by the sweep.
            recovery: Duration::from_millis(50),
            max_retries,
            ..Settings::new("one")
        };
        Dispatcher::start(&self.options, &settings, publisher).unwrap()
    }

    async fn row(&self, id: Uuid) -> Row {
        let query = "SELECT status, retry_count, last_error_code FROM outbox_events WHERE id = $1";
        let row = self.client().await.query_one(query, &[&id]).await.unwrap();
        Row { status: row.get(0), retries: row.get(1), code: row.get(2) }
    }

    async fn becomes(&self, id: Uuid, status: &str, retries: i32) -> Row {
        let what = format!("{status} after {retries} failures");
        testkit::eventually(LONG, &what, async || {
            let row = self.row(id).await;
            if row.status == status && row.retries == retries { Ok(Some(row)) } else { Err(row) }
        })
        .await
        .unwrap()
    }

    /// By the database's clock: its seconds, and those of the row's due time.
    async fn due(&self, id: Uuid) -> (f64, f64) {
        let query = "SELECT extract(epoch FROM clock_timestamp())::float8, extract(epoch FROM available_at)::float8
             FROM outbox_events WHERE id = $1";
        let row = self.client().await.query_one(query, &[&id]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// Lets the pause of a row be over.
    async fn hurry(&self, id: Uuid) {
        let query = "UPDATE outbox_events SET available_at = now() WHERE id = $1";
        self.client().await.execute(query, &[&id]).await.unwrap();
    }
}

fn queue(name: &str, topics: &[Topic]) -> WorkQueue {
    WorkQueue {
        name: name.to_owned(),
        dead_letter_queue: "test.dlq.queue".to_owned(),
        bindings: topics.iter().map(|topic| Binding::new(topic.name(), "#")).collect(),
        retry: Retry::broker(),
    }
}

fn ids(events: &[Envelope], tag: &str) -> Vec<Uuid> {
    let of_tag = events.iter().filter(|event| event.tag.as_str() == tag);
    of_tag.map(|event| event.event_id.uuid()).collect()
}

#[tokio::test]
async fn what_the_broker_refuses_follows_the_schedule_to_its_end_and_its_neighbours_go_on() {
    let plant = Plant::new("scada_schedule").await;
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    // Nobody is bound to pressure.
    let others = [Topic::TelemetryFlow, Topic::TelemetryTemperature, Topic::Events, Topic::Alarms];
    let mut topology = Topology {
        exchanges: vec![Topic::TelemetryPressure.name().to_owned()],
        queues: vec![queue("test.others.queue", &others)],
    };
    declare(&address, &topology).await.unwrap();
    let made = cycles(4).concat();
    let pressure = ids(&made, "PRESSURE");
    assert_eq!(pressure.len(), 4);
    plant.outbox.write_cycle(&made).await.unwrap();
    let publisher = Arc::new(RabbitPublisher::new(address.clone(), PublisherOptions::default()));
    let limit = u32::try_from(STEPS.len()).unwrap() + 1;
    let (mut before, _) = plant.due(pressure[0]).await;
    let dispatcher = plant.on(Arc::clone(&publisher) as Arc<dyn Publisher>, limit);

    for (step, failures) in STEPS.into_iter().zip(1..) {
        let row = plant.becomes(pressure[0], "PENDING", failures).await;
        assert_eq!(row.code.as_deref(), Some("UNROUTABLE"));
        let (after, due) = plant.due(pressure[0]).await;
        assert!(before + step <= due && due <= after + step, "{step}: {before} {due} {after}");
        // Those behind it wait, and are not blamed.
        assert_eq!(plant.becomes(pressure[1], "PENDING", 0).await.code, None);
        (before, _) = plant.due(pressure[0]).await;
        plant.hurry(pressure[0]).await;
    }
    plant.settled("SENT", i64::try_from(made.len() - pressure.len()).unwrap()).await;
    plant.becomes(pressure[0], "FAILED", i32::try_from(limit).unwrap()).await;
    let query = "SELECT failed_reason FROM outbox_events WHERE id = $1";
    let reason = plant.client().await.query_one(query, &[&pressure[0]]).await.unwrap();
    assert_eq!(reason.get::<_, &str>(0), lease::MAX_ATTEMPTS);

    // The next one of its key has its own attempts. Then somebody is bound, and the rest goes in order.
    plant.becomes(pressure[1], "PENDING", 1).await;
    topology.queues.push(queue("test.pressure.queue", &[Topic::TelemetryPressure]));
    declare(&address, &topology).await.unwrap();
    plant.hurry(pressure[1]).await;
    plant.settled("SENT", i64::try_from(made.len() - 1).unwrap()).await;
    dispatcher.stop().await;
    let bound = topology.queues.remove(1);
    let mut reader = RabbitConsumer::new(address, bound, publisher, ConsumerOptions::default());
    let mut got: Vec<Uuid> = Vec::new();
    while got.len() < 3 {
        let batch = tokio::time::timeout(LONG, reader.next()).await.expect("a batch").unwrap();
        got.extend(
            batch.deliveries().iter().map(|one| one.message.message_id.parse::<Uuid>().unwrap()),
        );
        batch.commit().await.unwrap();
    }
    assert_eq!(got, &pressure[1..], "each once, in the order of its key");
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_rule_or_a_topic_of_kafka_that_is_mended_lets_the_rows_through() {
    use bus::kafka::{Cluster, KafkaPublisher, PublisherOptions, admin};

    let Some(site) = testkit::kafka().await.unwrap() else { return };
    let cluster = Cluster::parse(site.servers()).unwrap();
    let topic = |name: &str, bytes: &str| {
        let spec = admin::TopicSpec::new(site.name(name), 1, 1);
        spec.set("max.message.bytes", bytes.to_owned())
    };
    admin::apply(&cluster, &[topic("good", "100000"), topic("small", "200")]).await.unwrap();
    let plant = Plant::new("scada_rules").await;
    let made = cycles(3).concat();
    plant.outbox.write_cycle(&made).await.unwrap();
    let (large, lost) = (ids(&made, "PRESSURE"), ids(&made, "TEMPERATURE"));
    let aim = "UPDATE outbox_events SET headers = jsonb_set(headers, '{topic}', to_jsonb(
        CASE event_type WHEN 'PRESSURE' THEN $1 WHEN 'TEMPERATURE' THEN $2 ELSE $3 END))";
    let [small, none, good] = ["small", "none", "good"].map(|name| site.name(name));
    plant.client().await.execute(aim, &[&small, &none, &good]).await.unwrap();
    let publisher = Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()));
    let dispatcher = plant.on(publisher, 1_000);
    let row = plant.becomes(large[0], "PENDING", 1).await;
    assert_eq!(row.code.as_deref(), Some("REJECTED"));
    let row = plant.becomes(lost[0], "PENDING", 1).await;
    assert_eq!(row.code.as_deref(), Some("NO_TOPIC"));
    let rest = made.len() - large.len() - lost.len();
    plant.settled("SENT", i64::try_from(rest).unwrap()).await;
    admin::apply(&cluster, &[topic("small", "100000"), topic("none", "100000")]).await.unwrap();
    // A broker takes a moment to heed a new rule, and by then the row has failed once more.
    testkit::eventually(LONG, "all of it is sent", async || {
        plant.hurry(large[0]).await;
        plant.hurry(lost[0]).await;
        let sent = plant.count("SENT").await;
        if sent == i64::try_from(made.len()).unwrap() { Ok(()) } else { Err(sent) }
    })
    .await
    .unwrap();
    dispatcher.stop().await;
}
