//! The historian on real Kafka.
//!
//! SCADA's topics have fixed names, so tests on the shared broker see each other's events: each has a plant and a group of its own and
//! looks at those alone. A test that stops the broker has one of its own.

mod faults;
mod letters;
mod replay;
mod replicas;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::kafka::{Cluster, KafkaConsumer, KafkaPublisher, PublisherOptions, admin};
use bus::{Consumer as _, Message, Publisher as _};
use event::names::kafka::{Profile, Topic};
use event::scada::Envelope;
use scada::historian::{Config, Historian};
use testkit::{Database, eventually};
use uuid::Uuid;

use crate::station::{config, database, events_of, expected, stored_of};

/// A rebalance after a kill takes a session's length; a busy machine adds to it.
const LONG: Duration = Duration::from_secs(120);

/// A plant, and the group and database of its historians.
struct Plant {
    servers: String,
    cluster: Cluster,
    group: String,
    name: String,
    database: Database,
    publisher: KafkaPublisher,
}

impl Plant {
    /// On the shared broker.
    async fn shared(name: &str) -> Option<Plant> {
        let kafka = testkit::kafka().await.unwrap()?;
        Some(Plant::on(name, kafka.servers(), &kafka.name("historian")).await)
    }

    async fn on(name: &str, servers: &str, group: &str) -> Plant {
        let cluster = Cluster::parse(servers).unwrap();
        admin::apply(&cluster, &scada::kafka::topics(Profile::Dev)).await.unwrap();
        let id = Uuid::now_v7().simple().to_string().to_uppercase();
        Plant {
            publisher: KafkaPublisher::new(cluster.clone(), PublisherOptions::default()),
            servers: servers.to_owned(),
            cluster,
            group: group.to_owned(),
            name: format!("P{}", &id[20..]),
            database: database(name).await,
        }
    }

    fn pairs(&self) -> [(&str, &str); 7] {
        [
            ("BUS", "kafka"),
            ("KAFKA_BROKERS", &self.servers),
            ("GROUP", &self.group),
            ("BATCH", "100"),
            ("SESSION_TIMEOUT", "6s"),
            ("STALLED_AFTER", "1s"),
            ("DATABASE_URL", self.database.url()),
        ]
    }

    fn config(&self) -> Config {
        config(self.database.url(), &self.pairs())
    }

    async fn historian(&self) -> Historian {
        Historian::start(self.config()).await.unwrap()
    }

    fn events(&self, cycles: usize) -> Vec<Envelope> {
        (1..=4).flat_map(|node| events_of(&self.name, node, cycles)).collect()
    }

    async fn publish(&self, messages: Vec<Message>) {
        let results = self.publisher.publish(messages).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    async fn stored(&self) -> BTreeMap<Uuid, f64> {
        stored_of(&self.client().await, &self.name).await
    }

    /// Waits until all of these are stored, and nothing else is.
    async fn has_stored(&self, made: &[Envelope]) {
        let client = self.client().await;
        eventually(LONG, "all of it is stored", async || {
            let count = stored_of(&client, &self.name).await.len();
            if count >= made.len() { Ok(()) } else { Err(count) }
        })
        .await
        .unwrap();
        assert_eq!(self.stored().await, expected(made));
    }

    /// Events of a key are in their topic in order, and no later one was stored in an earlier transaction. What comes within one
    /// transaction has no order in a table that several replicas write.
    async fn kept_order(&self, made: &[Envelope]) {
        let mut place: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (at, event) in made.iter().enumerate() {
            place.insert(event.event_id.to_string(), (event.partition_key(), at));
        }
        let query = "SELECT event_id::text, created_at FROM telemetry WHERE plant = $1";
        let rows = self.client().await.query(query, &[&self.name]).await.unwrap();
        let times: BTreeMap<String, jiff::Timestamp> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut latest: BTreeMap<&str, jiff::Timestamp> = BTreeMap::new();
        for event in made {
            let id = event.event_id.to_string();
            let (Some(stored), (key, at)) = (times.get(&id), &place[&id]) else { continue };
            let before = latest.entry(key).or_insert(*stored);
            assert!(*before <= *stored, "{key}, event {at}: stored before an earlier one");
            *before = *stored;
        }
        let group = bus::kafka::Group {
            name: format!("{}-order", self.group),
            bindings: scada::historian::bindings(),
            dead_letter_topic: Topic::Dlq.name().to_owned(),
            retry: bus::Retry::broker(),
        };
        let copies = Arc::new(KafkaPublisher::new(self.cluster.clone(), Default::default()));
        let mut reader = KafkaConsumer::new(&self.cluster, group, copies, Default::default());
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        while !place.is_empty() {
            let batch = tokio::time::timeout(LONG, reader.next()).await.expect("a batch").unwrap();
            for one in batch.deliveries() {
                // Published again after a confirm that was lost, it is no news.
                let Some((key, at)) = place.remove(&one.message.message_id) else { continue };
                let before = seen.insert(key.clone(), at);
                assert!(before.is_none_or(|before| before < at), "{key}: {before:?} before {at}");
            }
            batch.commit().await.unwrap();
        }
        reader.leave().await;
    }

    /// Waits until the stored offsets are the topics' ends.
    async fn is_at_the_end(&self) {
        let mut ends: BTreeMap<(String, i32), i64> = BTreeMap::new();
        let future = jiff::Timestamp::now() + jiff::Span::new().hours(1);
        for topic in scada::kafka::topics(Profile::Dev) {
            if topic.name() != "scada.l2.dlq" {
                let found = admin::offsets_at(&self.cluster, topic.name(), future).await.unwrap();
                ends.extend(found.into_iter().map(|(n, end)| ((topic.name().to_owned(), n), end)));
            }
        }
        ends.retain(|_, end| *end > 0);
        let client = self.client().await;
        let query =
            "SELECT topic, partition, next_offset FROM bus_offsets WHERE consumer_group = $1";
        eventually(LONG, "stored offsets at the ends", async || {
            let rows = client.query(query, &[&self.group]).await.unwrap();
            let stored: BTreeMap<(String, i32), i64> =
                rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
            // Other tests publish meanwhile.
            let behind: Vec<_> =
                ends.iter().filter(|(id, end)| stored.get(*id).is_none_or(|at| at < end)).collect();
            if behind.is_empty() { Ok(()) } else { Err(format!("{behind:?} of {stored:?}")) }
        })
        .await
        .unwrap();
    }
}

fn publisher_of(cluster: &Cluster) -> Arc<dyn bus::Publisher> {
    Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()))
}
