//! Topics and a group of one test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bus::kafka::{
    Cluster, ConsumerOptions, Group, KafkaConsumer, KafkaPublisher, Offsets, PublisherOptions, Tls,
    admin,
};
use bus::{About, Batch, Binding, Consumer as _, Message, Publisher as _, Retry};
use testkit::PrivateKafka;
use testkit::rig::KafkaOptions;
use testkit::rig::certificates::{Authority, Issued};
use testkit::rig::kafka::KafkaSecurity;
use tokio::time::timeout;

/// A day of a certificate's end that is far enough from today.
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// The password of everybody on a secured cluster.
pub(crate) const SECRET: &str = "canary-password";
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// The shortest that a broker allows.
const SESSION: Duration = Duration::from_secs(6);

/// A cluster whose second listener asks for a certificate of the authority and the password of one of the users. Who comes by the plain
/// listener, and `admin`, may do everything.
pub(crate) async fn secured(authority: &Authority, users: &[&str]) -> Option<PrivateKafka> {
    let broker = authority.issue("broker", &[], SystemTime::now() + WEEK).unwrap();
    let security = KafkaSecurity {
        authority: authority.certificate(),
        certificate: broker.certificate,
        key: broker.key,
        mutual: true,
        users: users.iter().map(|name| ((*name).to_owned(), SECRET.to_owned())).collect(),
    };
    let options = KafkaOptions {
        security: Some(security),
        settings: "super.users=User:ANONYMOUS;User:admin\n".to_owned(),
        ..KafkaOptions::default()
    };
    testkit::private_kafka(options).await.unwrap()
}

/// A cluster as somebody with this certificate sees it who trusts that authority.
pub(crate) fn by(cluster: &Cluster, identity: &Issued, authority: &Authority) -> Cluster {
    let identity = Some((identity.certificate.clone(), identity.key.clone()));
    cluster.clone().with_tls(Tls { ca_file: Some(authority.certificate()), identity })
}

/// Where a test publishes and consumes.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) topic: String,
    pub(crate) dlq: String,
    pub(crate) group: String,
}

impl Site {
    /// On the shared broker.
    pub(crate) async fn shared(partitions: usize) -> Option<Site> {
        let kafka = testkit::kafka().await.unwrap()?;
        let site = Site {
            cluster: Cluster::parse(kafka.servers()).unwrap(),
            topic: kafka.name("readings"),
            dlq: kafka.name("dlq"),
            group: kafka.name("group"),
        };
        site.make(partitions, 1).await;
        Some(site)
    }

    /// On a cluster of the test's own.
    pub(crate) async fn on(servers: &str, partitions: usize, replication: usize) -> Site {
        let site = Site {
            cluster: Cluster::parse(servers).unwrap(),
            topic: "readings".to_owned(),
            dlq: "dlq".to_owned(),
            group: "group".to_owned(),
        };
        site.make(partitions, replication).await;
        site
    }

    /// On a cluster of three: three copies, two of them written before a confirm, as SCADA's topics have it in production. Not their 200
    /// partitions: brokers that share a test's machine would be busy with nothing else.
    pub(crate) async fn on_three(servers: &str, partitions: usize) -> Site {
        let site = Site::on(servers, partitions, 3).await;
        let kept = WEEK;
        let durable = |name: &str, partitions| {
            let spec = admin::TopicSpec::new(name, partitions, 3).min_in_sync(2);
            spec.retention(kept).segment(Duration::from_secs(3600))
        };
        let topics = [durable(&site.topic, partitions), durable(&site.dlq, 1)];
        admin::apply(&site.cluster, &topics).await.unwrap();
        // Any broker may be asked, and one may not have heard of it yet.
        testkit::eventually(LONG, "the topics are as they should be", async || {
            let drifts = admin::diff(&site.cluster, &topics).await.unwrap();
            if drifts.is_empty() { Ok(()) } else { Err(drifts) }
        })
        .await
        .unwrap();
        site
    }

    async fn make(&self, partitions: usize, replication: usize) {
        let topics = [
            admin::TopicSpec::new(&self.topic, partitions, replication),
            admin::TopicSpec::new(&self.dlq, 1, replication),
        ];
        admin::apply(&self.cluster, &topics).await.unwrap();
    }

    pub(crate) fn publisher(&self) -> Arc<KafkaPublisher> {
        Arc::new(KafkaPublisher::new(self.cluster.clone(), PublisherOptions::default()))
    }

    /// One that gives a message up soon.
    pub(crate) fn impatient(&self) -> Arc<KafkaPublisher> {
        let options =
            PublisherOptions { confirm_within: Duration::from_secs(5), ..Default::default() };
        Arc::new(KafkaPublisher::new(self.cluster.clone(), options))
    }

    pub(crate) fn group(&self) -> Group {
        Group {
            name: self.group.clone(),
            bindings: vec![Binding::new(&self.topic, "reading.#")],
            dead_letter_topic: self.dlq.clone(),
            retry: Retry::new([50, 150].map(Duration::from_millis).into(), 3).unwrap(),
        }
    }

    pub(crate) fn consumer(&self) -> KafkaConsumer {
        self.consumer_with(Offsets::Group)
    }

    pub(crate) fn consumer_with(&self, offsets: Offsets) -> KafkaConsumer {
        let options = ConsumerOptions {
            offsets,
            batch: 50,
            prefetch: 200,
            session_timeout: SESSION,
            ..ConsumerOptions::default()
        };
        KafkaConsumer::new(&self.cluster, self.group(), self.publisher(), options)
    }

    /// Message `n`, one of `keys` keys.
    pub(crate) fn message(&self, n: usize, keys: usize) -> Message {
        let mut message = Message::json(
            &self.topic,
            "reading.stored",
            format!("id-{n}"),
            format!("{{ \"n\":{n} }}"),
        );
        message.key = Some(format!("key-{}", n % keys));
        message
    }
}

pub(crate) async fn next(consumer: &mut KafkaConsumer) -> Batch {
    timeout(LONG, consumer.next()).await.expect("a batch in time").unwrap()
}

pub(crate) fn ids(batch: &Batch) -> Vec<String> {
    batch.deliveries().iter().map(|one| one.message.message_id.clone()).collect()
}

/// Publishes messages as an outbox does: of each key in order, and what failed for a reason of the destination again. Returns how many
/// failures there were.
pub(crate) async fn publish_all(
    publisher: &KafkaPublisher,
    messages: impl IntoIterator<Item = Message>,
) -> usize {
    let mut left: Vec<Message> = messages.into_iter().collect();
    let mut failures = 0;
    while !left.is_empty() {
        let batch: Vec<Message> = left.drain(..left.len().min(200)).collect();
        let results =
            timeout(LONG, publisher.publish(batch.clone())).await.expect("results in time");
        let mut again = Vec::new();
        for (message, result) in batch.into_iter().zip(results) {
            if let Err(error) = result {
                assert_eq!(error.about(), About::Destination, "{error}");
                failures += 1;
                again.push(message);
            }
        }
        left.splice(0..0, again);
    }
    failures
}

/// Consumes until every message up to `count` was seen; returns the order in which each key's first came, and how many deliveries there were.
pub(crate) async fn consume_all(
    consumer: &mut KafkaConsumer,
    count: usize,
) -> (BTreeMap<String, Vec<usize>>, usize) {
    let mut seen = BTreeSet::new();
    let mut by_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut deliveries = 0;
    while seen.len() < count {
        let batch = next(consumer).await;
        for one in batch.deliveries() {
            deliveries += 1;
            let n: usize = one.message.message_id.strip_prefix("id-").unwrap().parse().unwrap();
            if seen.insert(n) {
                by_key.entry(one.message.key.clone().unwrap()).or_default().push(n);
            }
        }
        // A lost commit means that they come again, which the set does not mind.
        let _ = timeout(LONG, batch.commit()).await.expect("a commit in time");
    }
    assert_eq!(seen, (0..count).collect::<BTreeSet<usize>>());
    (by_key, deliveries)
}

pub(crate) fn assert_in_order(by_key: &BTreeMap<String, Vec<usize>>) {
    for (key, numbers) in by_key {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}
