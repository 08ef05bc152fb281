//! Publishing with confirms.
//!
//! One idempotent producer, which keeps the order of each partition and drops what it has sent twice. A call hands its
//! messages to the producer's queue and waits for the report of each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cluster::{Cluster, is_topic, words};
use super::events::{Health, Watched};
use super::record::{Outgoing, outgoing};
use crate::{Message, Metrics, PublishError, Publisher};

/// How often a call that waits looks at what it waits for.
const LOOK: Duration = Duration::from_millis(100);
/// What the reports may take beyond the time in which the producer itself gives a message up.
const GRACE: Duration = Duration::from_secs(10);
/// How long a cluster that has fallen silent has to answer a question.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// Headers and key of a message, beside its body.
const OVERHEAD_BYTES: usize = 64 << 10;
const UNKNOWN_TOPIC_AFTER_MS: &str = "5000";
const IN_FLIGHT: &str = "5";

/// How a publisher works.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// What the brokers' operator sees as the client's name.
    pub name: String,
    /// How long a batch of a partition waits for more messages.
    pub linger: Duration,
    /// The largest batch of a partition.
    pub batch_bytes: usize,
    /// The most messages in the producer's queue.
    pub queue_messages: usize,
    /// The most memory of that queue.
    pub queue_kbytes: usize,
    /// How long to wait for a confirm.
    pub confirm_within: Duration,
    /// How long to wait for a cluster that cannot be reached.
    pub unreachable_patience: Duration,
    /// The largest body.
    pub max_body_bytes: usize,
    /// What is counted where.
    pub metrics: Metrics,
}

impl Default for PublisherOptions {
    fn default() -> PublisherOptions {
        PublisherOptions {
            name: "holdfast-publisher".to_owned(),
            linger: Duration::from_millis(5),
            batch_bytes: 256 << 10,
            queue_messages: 100_000,
            queue_kbytes: 64 << 10,
            confirm_within: Duration::from_secs(30),
            unreachable_patience: Duration::from_secs(2),
            max_body_bytes: 900_000,
            metrics: Metrics::none(),
        }
    }
}

/// The messages of one call, and what became of each.
struct Call {
    left: AtomicUsize,
    results: Mutex<Vec<Option<Result<(), Code>>>>,
    changed: Notify,
}

impl Call {
    fn report(&self, at: usize, result: Result<(), Code>) {
        let late = result == Err(Code::MessageTimedOut);
        self.results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 || late {
            self.changed.notify_one();
        }
    }

    fn has_late(&self) -> bool {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.contains(&Some(Err(Code::MessageTimedOut)))
    }
}

/// Takes the producer's reports.
struct Reports {
    watched: Watched,
    /// Told at every report: there may be room in the queue.
    room: Arc<Notify>,
    metrics: Metrics,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watched.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watched.error(error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<(Arc<Call>, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Self::DeliveryOpaque) {
        let (call, at) = *opaque;
        let result = match result {
            Ok(_) => {
                if self.watched.health.up() {
                    self.metrics.connects.increment(1);
                }
                Ok(())
            }
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        call.report(at, result);
        self.room.notify_waiters();
    }
}

type Producer = ThreadedProducer<Reports>;

/// Publishes to Kafka. It connects at the first publish.
pub struct KafkaPublisher {
    cluster: Cluster,
    options: PublisherOptions,
    health: Arc<Health>,
    room: Arc<Notify>,
    producer: Mutex<Option<Arc<Producer>>>,
}

impl KafkaPublisher {
    /// A publisher for the cluster.
    pub fn new(cluster: Cluster, options: PublisherOptions) -> KafkaPublisher {
        let (health, room) = (Arc::default(), Arc::default());
        KafkaPublisher { cluster, options, health, room, producer: Mutex::new(None) }
    }

    /// Asks the cluster for an answer; for readiness.
    pub async fn ready(&self) -> Result<(), PublishError> {
        let producer = self.producer()?;
        self.probe(&producer, None, self.options.unreachable_patience).await
    }

    fn producer(&self) -> Result<Arc<Producer>, PublishError> {
        let mut held = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*held {
            if producer.client().fatal_error().is_none() {
                return Ok(Arc::clone(producer));
            }
            tracing::warn!("the producer has lost its sequence; a new one is made");
        }
        let misconfigured = |error: KafkaError| PublishError::Misconfigured(words(&error));
        let producer = Arc::new(self.make().map_err(misconfigured)?);
        self.options.metrics.connects.increment(1);
        if let Some(old) = held.replace(Arc::clone(&producer)) {
            end(old);
        }
        Ok(producer)
    }

    fn make(&self) -> Result<Producer, KafkaError> {
        let options = &self.options;
        let mut config = self.cluster.config(&options.name);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("max.in.flight.requests.per.connection", IN_FLIGHT)
            .set("partitioner", "murmur2_random")
            .set("linger.ms", options.linger.as_millis().to_string())
            .set("batch.size", options.batch_bytes.to_string())
            .set("queue.buffering.max.messages", options.queue_messages.max(1).to_string())
            .set("queue.buffering.max.kbytes", options.queue_kbytes.max(1).to_string())
            .set("message.timeout.ms", options.confirm_within.as_millis().to_string())
            .set("message.max.bytes", (options.max_body_bytes + OVERHEAD_BYTES).to_string())
            .set("topic.metadata.propagation.max.ms", UNKNOWN_TOPIC_AFTER_MS);
        let context = Reports {
            watched: Watched { health: Arc::clone(&self.health) },
            room: Arc::clone(&self.room),
            metrics: options.metrics.clone(),
        };
        Producer::from_config_and_context(&config, context)
    }

    /// Asks for metadata. What the cluster answers about the topic does not matter.
    async fn probe(
        &self,
        producer: &Arc<Producer>,
        topic: Option<Arc<str>>,
        within: Duration,
    ) -> Result<(), PublishError> {
        let producer = Arc::clone(producer);
        let asked = tokio::task::spawn_blocking(move || {
            producer.client().fetch_metadata(topic.as_deref(), within).map(drop)
        });
        match asked.await {
            Ok(Ok(())) => {
                if self.health.up() {
                    self.options.metrics.connects.increment(1);
                }
                Ok(())
            }
            Ok(Err(error)) => Err(PublishError::Unreachable(self.health.lost(words(&error)))),
            Err(_) => Err(PublishError::Unreachable("the process is ending".into())),
        }
    }

    /// Sends records and waits for their confirms: one result for each, in order.
    pub(crate) async fn send(&self, batch: &[Outgoing]) -> Vec<Result<(), PublishError>> {
        let all = |error: PublishError| vec![Err(error); batch.len()];
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(error) => return all(error),
        };
        let patience = self.options.unreachable_patience;
        if self.health.down().is_some()
            && let Some(first) = batch.first()
            && let Err(error) =
                self.probe(&producer, Some(Arc::clone(&first.topic)), patience).await
        {
            return all(error);
        }
        let mut codes = self.send_together(&producer, batch).await;
        // The broker measures a request by its batch, and refuses all of it. By itself, a message is its own judge.
        for (outgoing, code) in batch.iter().zip(&mut codes) {
            if *code == Err(Code::MessageSizeTooLarge) && batch.len() > 1 {
                let alone = self.send_together(&producer, std::slice::from_ref(outgoing)).await;
                *code = alone.into_iter().next().unwrap_or(*code);
            }
        }
        // A producer that may write nowhere ends as a whole, and its end says why.
        let fatal = producer.client().fatal_error().map(|(code, _)| code);
        let results = batch.iter().zip(codes);
        results
            .map(|(outgoing, code)| {
                code.map_err(|code| self.failed(fatal.unwrap_or(code), outgoing))
            })
            .collect()
    }

    async fn send_together(
        &self,
        producer: &Arc<Producer>,
        batch: &[Outgoing],
    ) -> Vec<Result<(), Code>> {
        let call = Arc::new(Call {
            left: AtomicUsize::new(batch.len()),
            results: Mutex::new(vec![None; batch.len()]),
            changed: Notify::new(),
        });
        let gauge = &self.options.metrics.in_flight;
        gauge.increment(batch.len() as f64);
        let deadline = Instant::now() + self.options.confirm_within + GRACE;
        for (at, outgoing) in batch.iter().enumerate() {
            self.enqueue(producer, outgoing, &call, at).await;
        }
        let mut purged = false;
        let (mut left, mut quiet_since) = (batch.len(), Instant::now());
        while left > 0 && Instant::now() < deadline {
            let _ = tokio::time::timeout(LOOK, call.changed.notified()).await;
            let now_left = call.left.load(Ordering::Acquire);
            if now_left != left {
                (left, quiet_since) = (now_left, Instant::now());
            }
            if purged {
                continue;
            }
            // What waits behind a message that was given up must not overtake it, and what waits for a cluster that is away
            // is better in its owner's hands. What is in flight stays: it may be written already.
            purged = call.has_late() || self.is_away();
            if !purged && quiet_since.elapsed() >= self.options.unreachable_patience {
                // Not every way of not being let in is reported by the client library.
                let topic = batch.first().map(|first| Arc::clone(&first.topic));
                purged = self.probe(producer, topic, PROBE_WITHIN).await.is_err();
                quiet_since = Instant::now();
            }
            if purged {
                producer.purge(PurgeConfig::default().queue());
            }
        }
        gauge.decrement(batch.len() as f64);
        let results = call.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.iter().map(|result| result.unwrap_or(Err(Code::MessageTimedOut))).collect()
    }

    fn is_away(&self) -> bool {
        let patience = self.options.unreachable_patience;
        self.health.down().is_some_and(|(since, _)| since.elapsed() >= patience)
    }

    /// Hands a record to the producer; when its queue is full, waits for room.
    async fn enqueue(&self, producer: &Producer, outgoing: &Outgoing, call: &Arc<Call>, at: usize) {
        let deadline = Instant::now() + self.options.confirm_within;
        let mut opaque = Box::new((Arc::clone(call), at));
        loop {
            let mut record = BaseRecord::with_opaque_to(&outgoing.topic, opaque)
                .payload(&outgoing.body[..])
                .headers(outgoing.headers.clone());
            record.key = outgoing.key.as_deref();
            let (error, refused) = match producer.send(record) {
                Ok(()) => return,
                Err(refused) => refused,
            };
            let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
            if code != Code::QueueFull || Instant::now() >= deadline || self.is_away() {
                call.report(at, Err(code));
                return;
            }
            opaque = refused.delivery_opaque;
            // A report between the two lines is not heard; the next look finds the room.
            let _ = tokio::time::timeout(LOOK, self.room.notified()).await;
        }
    }

    fn failed(&self, code: Code, outgoing: &Outgoing) -> PublishError {
        let refused = |problem| PublishError::Rejected { what: "body", problem };
        match code {
            Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => {
                refused("is larger than the topic takes")
            }
            Code::InvalidRecord => refused("is refused by the topic"),
            Code::UnknownTopic | Code::UnknownTopicOrPartition => {
                PublishError::NoTopic(Arc::clone(&outgoing.topic))
            }
            Code::UnknownPartition
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::PolicyViolation => {
                PublishError::Misconfigured(format!("topic {}: {code}", outgoing.topic).into())
            }
            Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::KafkaStorageError => PublishError::Refused,
            Code::QueueFull => PublishError::Unreachable("the producer's queue is full".into()),
            Code::PurgeQueue => {
                let why = self.health.down().map(|(_, why)| why);
                PublishError::Unreachable(why.unwrap_or_else(|| "taken back before sending".into()))
            }
            other => PublishError::Unconfirmed(match self.health.down() {
                Some((_, why)) => why,
                None => other.to_string().into(),
            }),
        }
    }
}

impl Publisher for KafkaPublisher {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>> {
        Box::pin(async move {
            let started = Instant::now();
            let limit = self.options.max_body_bytes;
            let check = |message: &Message| {
                message.check(limit)?;
                if is_topic(&message.exchange) {
                    return Ok(());
                }
                Err(PublishError::Malformed { what: "exchange", problem: "is no topic's name" })
            };
            let checked: Vec<_> = batch.iter().map(check).collect();
            let sound = batch.into_iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
            let sound: Vec<Outgoing> = sound.map(|(message, _)| outgoing(message)).collect();
            let mut sent =
                if sound.is_empty() { Vec::new() } else { self.send(&sound).await }.into_iter();
            let lost = || Err(PublishError::Unconfirmed("no result".into()));
            let results: Vec<_> = checked
                .into_iter()
                .map(|checked| checked.and_then(|()| sent.next().unwrap_or_else(lost)))
                .collect();
            self.options.metrics.published(&results, started.elapsed());
            results
        })
    }
}

/// Ends a producer on a thread of its own: it waits for its connections.
fn end(producer: Arc<Producer>) {
    // Without a thread it ends here, which is slow and no harm.
    let _ = std::thread::Builder::new().name("kafka-end".to_owned()).spawn(move || drop(producer));
}

impl Drop for KafkaPublisher {
    fn drop(&mut self) {
        let held = self.producer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(producer) = held {
            end(producer);
        }
    }
}

impl std::fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaPublisher").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
