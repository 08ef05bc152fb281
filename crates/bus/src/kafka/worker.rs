//! The consumer's thread: polls the client library, also while handlers work, so that the consumer stays a member of its group.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{ClientConfig, Message as _};

use super::cluster::words;
use super::consumer::{Client, Shared};
use super::events::Watched;
use super::partitions::PartitionId;
use super::rebalance::{Rebalances, list_of, list_of_ids};
use super::record::received;
use crate::ConsumeError;

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

/// The consumer's thread.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    config: ClientConfig,
    prefetch: usize,
    /// Names of topics, each once.
    topics: HashMap<String, Arc<str>>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, config: ClientConfig, prefetch: usize) -> Worker {
        Worker { shared, config, prefetch, topics: HashMap::new() }
    }

    /// Until the consumer is dropped.
    pub(crate) fn run(mut self) {
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
                    self.shared.pause(pause);
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
                    let wanted = message.is_for(&self.shared.group.name)
                        && bindings.iter().any(|one| one.wants(&message.delivery.message));
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
