//! Consuming a group's topics in batches, committed after the handler's store.
//!
//! A thread polls the client library ([`super::worker`]). What it
//! reads waits in [`Partitions`]; [`Consumer::next`] takes from there, and a batch is settled there ([`super::held`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use tokio::sync::Notify;

use super::cluster::Cluster;
use super::held::HeldBatch;
use super::partitions::{PartitionId, Partitions, Ticket};
use super::publisher::KafkaPublisher;
use super::rebalance::Rebalances;
use super::record::Received;
use super::worker::Worker;
use crate::{Batch, Binding, ConsumeError, Consumer, Metrics, Retry};

/// How long a goodbye may take, and how often it is looked whether it is said.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
const LEAVE_LOOK: Duration = Duration::from_millis(20);

/// How soon a partition is fetched again after what it has fetched ahead was enough.
const FETCH_AGAIN: Duration = Duration::from_millis(20);

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
    /// What the next [`Consumer::next`] says.
    pub(crate) trouble: Option<ConsumeError>,
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

    /// Lets time pass, unless the consumer closes.
    pub(crate) fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.state();
        while !self.is_closing() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.wait_settled(state, left);
        }
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
    thread: Option<JoinHandle<()>>,
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
            // A full queue is emptied within milliseconds; the library's own second would be the pace.
            .set("fetch.queue.backoff.ms", FETCH_AGAIN.as_millis().to_string())
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
        KafkaConsumer { shared, options, config, thread: None }
    }

    fn start(&mut self) -> Result<(), ConsumeError> {
        if self.shared.is_closing() {
            return Err(ConsumeError::Closed);
        }
        if self.thread.is_some() {
            return Ok(());
        }
        let (shared, config) = (Arc::clone(&self.shared), self.config.clone());
        let prefetch = self.options.prefetch.max(1);
        let name = "kafka-consumer".to_owned();
        let thread = move || Worker::new(shared, config, prefetch).run();
        let started = std::thread::Builder::new().name(name).spawn(thread);
        let refuse = |error: std::io::Error| ConsumeError::Misconfigured(error.to_string().into());
        self.thread = Some(started.map_err(refuse)?);
        Ok(())
    }

    fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.tell();
    }

    async fn closed(&mut self) {
        self.close();
        let Some(thread) = self.thread.take() else { return };
        let deadline = tokio::time::Instant::now() + LEAVE_WITHIN;
        while !thread.is_finished() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LEAVE_LOOK).await;
        }
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

    fn hand_out(&self, taken: Vec<(Ticket, Received)>) -> Batch {
        let mut deliveries = Vec::with_capacity(taken.len());
        let mut held = Vec::with_capacity(taken.len());
        for (ticket, Received { delivery, own }) in taken {
            deliveries.push(delivery);
            held.push((ticket, own));
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

    fn leave(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed())
    }
}

/// The thread leaves the group and ends by itself.
impl Drop for KafkaConsumer {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for KafkaConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaConsumer")
            .field("group", &self.shared.group.name)
            .finish_non_exhaustive()
    }
}
