//! A bus of any kind, with two groups bound to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::rabbitmq::{
    Address, ConsumerOptions, DeadLetterQueue, PublisherOptions, RabbitConsumer, RabbitPublisher,
    Topology, WorkQueue, declare,
};
use bus::{
    Batch, Binding, Committed, Consumer, DeadLetter, DeadLetters, Filter, Message, Publisher,
    Retry, inline,
};
use futures_util::future::BoxFuture;
use tokio::time::timeout;

pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const TELEMETRY: &str = "farmiq.telemetry.exchange";
pub(crate) const INGEST: &str = "farmiq.cloud-telemetry-service.ingest.queue";
pub(crate) const TELEMETRY_DLQ: &str = "farmiq.cloud-telemetry-service.dlq.queue";
pub(crate) const KPI: &str = "farmiq.cloud-analytics-service.kpi.queue";
pub(crate) const ANALYTICS_DLQ: &str = "farmiq.cloud-analytics-service.dlq.queue";
pub(crate) const ATTEMPTS: u32 = 3;

/// Short, so that a test with retries is quick.
pub(crate) fn retry() -> Retry {
    Retry::new([50, 150].map(Duration::from_millis).into(), ATTEMPTS).unwrap()
}

pub(crate) fn topology() -> Topology {
    let queue = |name: &str, dlq: &str, bindings| WorkQueue {
        name: name.to_owned(),
        dead_letter_queue: dlq.to_owned(),
        bindings,
        retry: retry(),
    };
    Topology {
        exchanges: vec![],
        queues: vec![
            queue(INGEST, TELEMETRY_DLQ, vec![Binding::new(TELEMETRY, "telemetry.ingested")]),
            queue(KPI, ANALYTICS_DLQ, vec![Binding::new(TELEMETRY, "telemetry.*")]),
        ],
    }
}

/// Keeps dead letters in memory; the inline bus's sink.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Mutex<Vec<DeadLetter>>);

impl DeadLetters for Kept {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        self.0.lock().unwrap().push(letter);
        Box::pin(std::future::ready(Ok(())))
    }
}

enum Letters {
    Inline(Arc<Kept>),
    RabbitMq {
        queue: Box<DeadLetterQueue>,
        _vhost: testkit::Vhost,
    },
    #[cfg(feature = "kafka")]
    Kafka(bus::kafka::DeadLetterTopic),
}

/// A bus with the groups of [`INGEST`] and [`KPI`].
pub(crate) struct World {
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) ingest: Box<dyn Consumer>,
    pub(crate) kpi: Box<dyn Consumer>,
    /// Where [`World::message`] is published.
    pub(crate) exchange: String,
    /// The name of the group [`INGEST`] in this world.
    pub(crate) ingest_name: String,
    /// True when a message that nobody wants is an error.
    pub(crate) knows_who_wants: bool,
    letters: Letters,
}

impl World {
    pub(crate) fn inline() -> World {
        let kept = Arc::new(Kept::default());
        let options = inline::Options { retry: retry(), batch: 100, ..Default::default() };
        let mut bus = inline::Bus::new(options, Arc::clone(&kept) as Arc<dyn DeadLetters>);
        let [ingest, kpi] =
            topology().queues.try_into().map(|queues: [WorkQueue; 2]| queues).unwrap();
        let ingest = Box::new(bus.group(ingest.name, ingest.bindings));
        let kpi = Box::new(bus.group(kpi.name, kpi.bindings));
        World {
            publisher: Arc::new(bus),
            ingest,
            kpi,
            exchange: TELEMETRY.to_owned(),
            ingest_name: INGEST.to_owned(),
            knows_who_wants: true,
            letters: Letters::Inline(kept),
        }
    }

    pub(crate) async fn rabbitmq() -> World {
        let vhost = testkit::rabbitmq().await.unwrap();
        let address = Address::parse(vhost.url()).unwrap();
        let topology = topology();
        declare(&address, &topology).await.unwrap();
        let publisher =
            Arc::new(RabbitPublisher::new(address.clone(), PublisherOptions::default()));
        let consumer = |at: usize| {
            let queue = topology.queues[at].clone();
            let options = ConsumerOptions { batch: 100, prefetch: 200, ..Default::default() };
            Box::new(RabbitConsumer::new(address.clone(), queue, Arc::clone(&publisher), options))
        };
        World {
            ingest: consumer(0),
            kpi: consumer(1),
            publisher,
            exchange: TELEMETRY.to_owned(),
            ingest_name: INGEST.to_owned(),
            knows_who_wants: true,
            letters: Letters::RabbitMq {
                queue: Box::new(DeadLetterQueue::new(address, TELEMETRY_DLQ)),
                _vhost: vhost,
            },
        }
    }

    /// On the shared Kafka, with topics and groups of this test's own; one partition, so that order is total.
    #[cfg(feature = "kafka")]
    pub(crate) async fn kafka() -> Option<World> {
        use bus::kafka::{
            Cluster, ConsumerOptions, DeadLetterTopic, Group, KafkaConsumer, KafkaPublisher,
            PublisherOptions, admin,
        };
        let site = testkit::kafka().await.unwrap()?;
        let cluster = Cluster::parse(site.servers()).unwrap();
        let topics = [TELEMETRY, TELEMETRY_DLQ, ANALYTICS_DLQ]
            .map(|name| admin::TopicSpec::new(site.name(name), 1, 1));
        admin::apply(&cluster, &topics).await.unwrap();
        let publisher = Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()));
        let consumer = |at: usize| {
            let queue = &topology().queues[at];
            let here =
                |binding: &Binding| Binding::new(site.name(&binding.exchange), &binding.pattern);
            let group = Group {
                name: site.name(&queue.name),
                bindings: queue.bindings.iter().map(here).collect(),
                dead_letter_topic: site.name(&queue.dead_letter_queue),
                retry: retry(),
            };
            let options = ConsumerOptions { batch: 100, prefetch: 200, ..Default::default() };
            Box::new(KafkaConsumer::new(&cluster, group, Arc::clone(&publisher), options))
        };
        Some(World {
            ingest: consumer(0),
            kpi: consumer(1),
            publisher,
            exchange: site.name(TELEMETRY),
            ingest_name: site.name(INGEST),
            knows_who_wants: false,
            letters: Letters::Kafka(DeadLetterTopic::new(cluster, &site.name(TELEMETRY_DLQ))),
        })
    }

    /// Message `n`, as it is published in this world.
    pub(crate) fn message(&self, n: usize) -> Message {
        Message { exchange: self.exchange.clone(), ..message(n) }
    }

    /// The dead letters of the group [`INGEST`].
    pub(crate) async fn dead_letters(&self) -> Vec<DeadLetter> {
        match &self.letters {
            Letters::Inline(kept) => kept.0.lock().unwrap().clone(),
            Letters::RabbitMq { queue, .. } => {
                queue.list(&Filter::default(), 1000).await.unwrap().letters
            }
            #[cfg(feature = "kafka")]
            Letters::Kafka(topic) => {
                let listed = topic.list(&Filter::default(), 1000).await.unwrap();
                listed.into_iter().map(|(letter, _)| letter).collect()
            }
        }
    }
}

/// The body of message `n`: not as a serializer would write it, so that a rewrite shows.
pub(crate) fn body(n: usize) -> String {
    format!("{{ \"event_id\" :\"{n}\",\"payload\":{{\"metric_value\": 26.40}} }}")
}

pub(crate) fn message(n: usize) -> Message {
    let mut message = Message::json(TELEMETRY, "telemetry.ingested", format!("id-{n}"), body(n));
    message.key = Some(format!("device-{}", n % 7));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    message.headers.insert("traceparent".to_owned(), trace.to_owned());
    message.headers.insert("trace_id".to_owned(), format!("trace-{n}"));
    message
}

pub(crate) async fn next(consumer: &mut Box<dyn Consumer>) -> Batch {
    timeout(LONG, consumer.next()).await.expect("a batch in time").unwrap()
}

/// Reads and commits until `count` messages were done, each handled by `handle`, which may mark it.
pub(crate) async fn drain(
    consumer: &mut Box<dyn Consumer>,
    count: u64,
    mut handle: impl FnMut(&mut Batch, usize),
) -> Committed {
    let mut total = Committed::default();
    while total.done + total.dead_lettered < count {
        let mut batch = next(consumer).await;
        for index in 0..batch.len() {
            handle(&mut batch, index);
        }
        let one = timeout(LONG, batch.commit()).await.expect("a commit in time").unwrap();
        total.done += one.done;
        total.retried += one.retried;
        total.deferred += one.deferred;
        total.dead_lettered += one.dead_lettered;
        total.returned += one.returned;
    }
    total
}
