//! Consuming a group's topics in batches, committed after the handler's store.
//!
//! A thread polls the client library, also while handlers work, so that the consumer stays a member of its group. What it
//! reads waits in [`Partitions`]; [`Consumer::next`] takes from there, and a batch is settled there ([`super::held`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{ClientConfig, Message as _};
use tokio::sync::Notify;

use super::cluster::{Cluster, words};
use super::events::Watched;
use super::held::HeldBatch;
use super::partitions::{PartitionId, Partitions};
use super::publisher::KafkaPublisher;
use super::rebalance::{Rebalances, list_of, list_of_ids};
use super::record::{Received, received};
use crate::{Batch, Binding, ConsumeError, Consumer, Metrics, Retry};

/// How long a poll waits for a message, and how soon a stalled consumer looks again.
const POLL: Duration = Duration::from_millis(50);
/// The most messages that are read before they are put where `next` finds them.
const READ_TOGETHER: usize = 1000;
/// With its room full for so long, a consumer pauses its partitions and goes on polling.
const STALLED_AFTER: Duration = Duration::from_millis(500);
/// Messages behind others that are to come again do not count against `prefetch`, up to so many times it.
const PARKED_TIMES: usize = 4;
/// Offsets that moved without a commit, by messages that nobody wants, are committed so often.
const TIDY_EVERY: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What it wants: the topics are subscribed to, the patterns are matched here.
    pub bindings: Vec<Binding>,
    /// Where messages go that are given up.
    pub dead_letter_topic: String,
    /// When a failed message comes again.
    pub retry: Retry,
}

/// Offsets in the caller's own store.
pub trait StoredOffsets: Send + Sync {
    /// The next offset to read of each of these partitions; those that are not in the answer start at the earliest. An
    /// error, in words without secrets, makes it asked again.
    fn load<'a>(
        &'a self,
        partitions: &'a [PartitionId],
    ) -> BoxFuture<'a, Result<BTreeMap<PartitionId, i64>, String>>;
}

/// Where offsets are kept.
#[derive(Clone, Default)]
pub enum Offsets {
    /// By Kafka, as the group's.
    #[default]
    Group,
    /// By the caller, in the transaction that stores a batch. Kafka's are written for tools that show the lag, and not read.
    Stored(Arc<dyn StoredOffsets>),
}

impl std::fmt::Debug for Offsets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Offsets::Group => "Group",
            Offsets::Stored(_) => "Stored",
        })
    }
}

/// How a consumer works.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// What the brokers' operator sees as the client's name.
    pub name: String,
    /// Where offsets are kept.
    pub offsets: Offsets,
    /// The most messages that wait to be handled.
    pub prefetch: usize,
    /// The most memory of messages that the client library has fetched ahead.
    pub prefetch_kbytes: usize,
    /// The most messages of a batch.
    pub batch: usize,
    /// How long a batch that has a message waits for more.
    pub linger: Duration,
    /// How long a commit tries to get dead letters confirmed, before their messages come again.
    pub copy_within: Duration,
    /// After this time without a sign of life the group gives a consumer's partitions to others.
    pub session_timeout: Duration,
    /// What is counted where.
    pub metrics: Metrics,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            name: "holdfast-consumer".to_owned(),
            offsets: Offsets::Group,
            prefetch: 10_000,
            prefetch_kbytes: 32 << 10,
            batch: 1000,
            linger: Duration::from_millis(5),
            copy_within: Duration::from_secs(30),
            session_timeout: Duration::from_secs(30),
            metrics: Metrics::none(),
        }
    }
}

pub(crate) type Client = BaseConsumer<Rebalances>;

/// What a consumer, its thread and its batches share.
pub(crate) struct Shared {
    pub(crate) group: Group,
    pub(crate) offsets: Offsets,
    pub(crate) copies: Arc<KafkaPublisher>,
    pub(crate) copy_within: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) runtime: tokio::runtime::Handle,
    state: Mutex<State>,
    /// Told when messages were settled or taken.
    settled: Condvar,
    /// Told when `next` may find something.
    pub(crate) changed: Notify,
    /// Held during a commit, so that offsets go to the broker one after the other.
    pub(crate) committing: tokio::sync::Mutex<()>,
    closing: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) partitions: Partitions,
    /// There while the thread has one.
    pub(crate) client: Option<Arc<Client>>,
    trouble: Option<ConsumeError>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Something was settled, is to come again, or left room.
    pub(crate) fn tell(&self) {
        self.settled.notify_all();
        self.changed.notify_one();
    }

    pub(crate) fn wait_settled<'a>(
        &self,
        state: MutexGuard<'a, State>,
        within: Duration,
    ) -> MutexGuard<'a, State> {
        self.settled.wait_timeout(state, within).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Consumes a group's topics. It connects at the first [`Consumer::next`], on a thread of its own that ends when this is
/// dropped.
pub struct KafkaConsumer {
    shared: Arc<Shared>,
    options: ConsumerOptions,
    config: ClientConfig,
    started: bool,
}

impl KafkaConsumer {
    /// A consumer of the group at the cluster, made inside a runtime. `copies` publishes dead letters.
    pub fn new(
        cluster: &Cluster,
        group: Group,
        copies: Arc<KafkaPublisher>,
        options: ConsumerOptions,
    ) -> KafkaConsumer {
        let mut config = cluster.config(&options.name);
        config
            .set("group.id", &group.name)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", options.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (options.session_timeout.as_millis() / 10).to_string())
            .set("queued.min.messages", options.prefetch.max(1).to_string())
            .set("queued.max.messages.kbytes", options.prefetch_kbytes.max(1).to_string())
            .set("topic.metadata.refresh.interval.ms", "30000");
        let shared = Arc::new(Shared {
            group,
            offsets: options.offsets.clone(),
            copies,
            copy_within: options.copy_within,
            metrics: options.metrics.clone(),
            runtime: tokio::runtime::Handle::current(),
            state: Mutex::default(),
            settled: Condvar::new(),
            changed: Notify::new(),
            committing: tokio::sync::Mutex::default(),
            closing: AtomicBool::new(false),
        });
        KafkaConsumer { shared, options, config, started: false }
    }

    fn start(&mut self) -> Result<(), ConsumeError> {
        if self.started {
            return Ok(());
        }
        let (shared, config) = (Arc::clone(&self.shared), self.config.clone());
        let prefetch = self.options.prefetch.max(1);
        let name = "kafka-consumer".to_owned();
        let thread = move || Worker { shared, config, prefetch, topics: HashMap::new() }.run();
        std::thread::Builder::new()
            .name(name)
            .spawn(thread)
            .map_err(|error| ConsumeError::Misconfigured(error.to_string().into()))?;
        self.started = true;
        Ok(())
    }

    async fn next_batch(&mut self) -> Result<Batch, ConsumeError> {
        self.start()?;
        let limit = self.options.batch.max(1);
        let mut full_by: Option<Instant> = None;
        loop {
            let changed = self.shared.changed.notified();
            let wait = {
                let mut state = self.shared.state();
                if let Some(trouble) = state.trouble.take() {
                    return Err(trouble);
                }
                let now = Instant::now();
                let free = state.partitions.waiting().0;
                let due = state.partitions.next_due();
                let is_due = due.is_some_and(|due| due <= now);
                // One that is due has waited long enough; others may wait a little for company.
                if is_due || free >= limit || (free > 0 && full_by.is_some_and(|by| by <= now)) {
                    let taken = state.partitions.take(limit, now);
                    if !taken.is_empty() {
                        drop(state);
                        self.shared.settled.notify_all();
                        return Ok(self.hand_out(taken));
                    }
                }
                if free > 0 {
                    full_by.get_or_insert(now + self.options.linger);
                }
                full_by.into_iter().chain(due.filter(|due| *due > now)).min()
            };
            match wait {
                None => changed.await,
                Some(until) => {
                    let _ = tokio::time::timeout_at(until.into(), changed).await;
                }
            }
        }
    }

    fn hand_out(&self, taken: Vec<(super::partitions::Ticket, Received)>) -> Batch {
        let mut deliveries = Vec::with_capacity(taken.len());
        let mut held = Vec::with_capacity(taken.len());
        for (ticket, Received { delivery, raw_key }) in taken {
            deliveries.push(delivery);
            held.push((ticket, raw_key));
        }
        let again = deliveries.iter().filter(|delivery| delivery.redelivered).count();
        self.shared.metrics.consumed.increment(deliveries.len() as u64);
        self.shared.metrics.redelivered.increment(again as u64);
        Batch::new(deliveries, Box::new(HeldBatch::new(held, Arc::clone(&self.shared))))
    }
}

impl Consumer for KafkaConsumer {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, ConsumeError>> {
        Box::pin(self.next_batch())
    }
}

/// The thread leaves the group and ends by itself.
impl Drop for KafkaConsumer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.tell();
    }
}

impl std::fmt::Debug for KafkaConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaConsumer")
            .field("group", &self.shared.group.name)
            .finish_non_exhaustive()
    }
}

/// The consumer's thread.
struct Worker {
    shared: Arc<Shared>,
    config: ClientConfig,
    prefetch: usize,
    /// Names of topics, each once.
    topics: HashMap<String, Arc<str>>,
}

impl Worker {
    fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        while !self.shared.is_closing() {
            match self.open() {
                Ok(client) => {
                    pause = FIRST_PAUSE;
                    self.shared.metrics.connects.increment(1);
                    self.shared.state().client = Some(Arc::clone(&client));
                    self.work(&client);
                    self.close(client);
                }
                Err(error) => {
                    self.trouble(ConsumeError::Misconfigured(words(&error)));
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn open(&self) -> Result<Arc<Client>, KafkaError> {
        let context = Rebalances { shared: Arc::clone(&self.shared), watched: Watched::default() };
        let client = Client::from_config_and_context(&self.config, context)?;
        let mut topics: Vec<&str> =
            self.shared.group.bindings.iter().map(|binding| binding.exchange.as_str()).collect();
        topics.sort_unstable();
        topics.dedup();
        client.subscribe(&topics)?;
        Ok(Arc::new(client))
    }

    /// Leaves the group. Tickets are void from here; what was settled is committed while the partitions are given back.
    fn close(&self, client: Arc<Client>) {
        let offsets = self.shared.state().partitions.to_commit(None);
        if !offsets.is_empty() {
            // Failing, the messages come again.
            let _ = client.commit(&list_of(&offsets), CommitMode::Sync);
        }
        let mut state = self.shared.state();
        state.client = None;
        state.partitions.clear();
        drop(state);
        drop(client);
    }

    fn work(&mut self, client: &Arc<Client>) {
        let mut full_since: Option<Instant> = None;
        let mut tidied = Instant::now();
        while !self.shared.is_closing() {
            let (free, parked) = self.shared.state().partitions.waiting();
            let full = free >= self.prefetch || parked >= self.prefetch * PARKED_TIMES;
            full_since = if full { full_since.or_else(|| Some(Instant::now())) } else { None };
            let stalled = full_since.is_some_and(|since| since.elapsed() >= STALLED_AFTER);
            self.pause_and_resume(client, stalled);
            if tidied.elapsed() >= TIDY_EVERY {
                tidied = Instant::now();
                self.tidy(client);
            }
            if full && !stalled {
                drop(self.shared.wait_settled(self.shared.state(), POLL));
            } else if !self.read(client) {
                return;
            }
        }
    }

    /// Reads what is there. False when the client is at its end.
    fn read(&mut self, client: &Client) -> bool {
        let mut read = Vec::new();
        let mut wait = POLL;
        let mut goes_on = true;
        while read.len() < READ_TOGETHER {
            match client.poll(wait) {
                None => break,
                Some(Ok(record)) => {
                    let topic = self.topic(record.topic());
                    let message = received(&record, &topic);
                    let bindings = &self.shared.group.bindings;
                    let wanted = bindings.iter().any(|one| one.wants(&message.delivery.message));
                    let id: PartitionId = (topic, record.partition());
                    // An assignment happens inside a poll, on this thread.
                    let seen = self.shared.state().partitions.epoch();
                    read.push((id, record.offset(), seen, wanted.then_some(message)));
                }
                Some(Err(error)) => {
                    goes_on = self.failed(&error);
                    break;
                }
            }
            wait = Duration::ZERO;
        }
        if !read.is_empty() {
            let mut state = self.shared.state();
            for (id, offset, seen, message) in read {
                state.partitions.receive(&id, offset, seen, message);
            }
            drop(state);
            self.shared.changed.notify_one();
        }
        goes_on
    }

    fn topic(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.topics.get(name) {
            return Arc::clone(known);
        }
        let topic: Arc<str> = name.into();
        self.topics.insert(name.to_owned(), Arc::clone(&topic));
        topic
    }

    fn failed(&self, error: &KafkaError) -> bool {
        let group = &self.shared.group.name;
        match (error, error.rdkafka_error_code()) {
            (KafkaError::MessageConsumptionFatal(_), _) => {
                tracing::error!(%group, error = %words(error), "the consumer is made anew");
                return false;
            }
            (
                _,
                Some(
                    Code::TopicAuthorizationFailed
                    | Code::GroupAuthorizationFailed
                    | Code::UnknownTopicOrPartition
                    | Code::UnknownTopic,
                ),
            ) => self.trouble(ConsumeError::Misconfigured(words(error))),
            // The client mends it by itself.
            _ => tracing::warn!(%group, error = %words(error), "consuming is troubled"),
        }
        true
    }

    fn trouble(&self, trouble: ConsumeError) {
        self.shared.state().trouble = Some(trouble);
        self.shared.changed.notify_one();
    }

    fn pause_and_resume(&self, client: &Client, stalled: bool) {
        let (pause, resume) = self.shared.state().partitions.pauses(stalled);
        // A partition that is not ours any more is refused, rightly.
        if !pause.is_empty() {
            let _ = client.pause(&list_of_ids(&pause));
        }
        if !resume.is_empty() {
            let _ = client.resume(&list_of_ids(&resume));
        }
    }

    fn tidy(&self, client: &Client) {
        let Ok(_held) = self.shared.committing.try_lock() else { return };
        let mut state = self.shared.state();
        let offsets = state.partitions.to_commit(None);
        if !offsets.is_empty() && client.commit(&list_of(&offsets), CommitMode::Async).is_ok() {
            state.partitions.committed(&offsets);
        }
    }
}
