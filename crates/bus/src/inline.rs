//! The bus inside one process.
//!
//! Purpose: the same contract as a broker's on one machine. Publish hands each message to every group
//! bound to it and resolves when all of them have settled it: committed it, or had it taken by the
//! caller's [`DeadLetters`]. So whoever publishes (the relay, from its outbox) is the durability; nothing
//! is kept here.
//!
//! Promises: `Ok` only after every group has settled. One slow or failing message does not hold back
//! the delivery of its neighbours. Memory is bounded by the capacity of each group.
//!
//! It fails with `Unconfirmed` when a group does not settle in time, and `Unreachable` when a group's
//! consumer is gone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::batch::{Mark, Settle};
use crate::retry::Verdict;
use crate::{
    Batch, Binding, Committed, ConsumeError, Consumer, DeadLetter, DeadLetters, Delivery, Depth,
    Message, Metrics, PublishError, Publisher, Retry,
};

/// How the inline bus runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a failed message comes again.
    pub retry: Retry,
    /// How long a publish waits for the groups.
    pub settle_within: Duration,
    /// The most messages that wait for one group.
    pub capacity: usize,
    /// The most messages of a batch.
    pub batch: usize,
    /// The largest body.
    pub max_body_bytes: usize,
    /// What is counted where.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            retry: Retry::inline(),
            settle_within: Duration::from_secs(60),
            capacity: 10_000,
            batch: 500,
            max_body_bytes: 16 << 20,
            metrics: Metrics::none(),
        }
    }
}

/// A message on its way to one group.
struct Item {
    message: Arc<Message>,
    attempts: u32,
    redelivered: bool,
    /// How often it was replayed as a dead letter.
    replayed: u32,
    /// Its place in the batch that was published.
    index: usize,
    /// Tells the publisher that this group has settled it. Has room for every item of the call.
    settled: mpsc::Sender<usize>,
    /// Counts it as held by the group for as long as it lives.
    _held: Arc<()>,
}

impl Item {
    fn done(self) {
        // The publisher may have given up waiting; then it publishes again.
        let _ = self.settled.try_send(self.index);
    }

    /// True when the publisher has given up waiting: it will publish again, so this one is void.
    fn is_void(&self) -> bool {
        self.settled.is_closed()
    }
}

/// A message of a call, and the group it goes to.
struct Parcel {
    index: usize,
    group: usize,
    message: Arc<Message>,
    replayed: u32,
}

struct Group {
    name: String,
    bindings: Vec<Binding>,
    queue: mpsc::Sender<Item>,
    /// Every item of the group has a clone of it.
    held: Arc<()>,
}

/// The publishing side. Groups are added before it is shared.
pub struct Bus {
    options: Options,
    groups: Vec<Group>,
    dead_letters: Arc<dyn DeadLetters>,
}

impl Bus {
    /// A bus without groups, with the place where messages go that are given up.
    pub fn new(options: Options, dead_letters: Arc<dyn DeadLetters>) -> Bus {
        Bus { options, groups: Vec::new(), dead_letters }
    }

    /// Adds a consumer group. Its name goes into its dead letters.
    pub fn group(&mut self, name: impl Into<String>, bindings: Vec<Binding>) -> GroupConsumer {
        let (sender, receiver) = mpsc::channel(self.options.capacity.max(1));
        let name = name.into();
        let shared = Arc::new(Shared {
            name: name.clone(),
            // Weak, so that the group ends when the bus does.
            queue: sender.downgrade(),
            retry: self.options.retry.clone(),
            dead_letters: Arc::clone(&self.dead_letters),
            metrics: self.options.metrics.clone(),
        });
        self.groups.push(Group { name, bindings, queue: sender, held: Arc::new(()) });
        GroupConsumer { receiver, batch: self.options.batch.max(1), shared }
    }

    /// How much each group holds and has not settled: what waits, what is in hand, and what comes again later.
    pub fn depths(&self) -> Vec<Depth> {
        let depth = |group: &Group| Depth {
            name: group.name.clone(),
            waiting: (Arc::strong_count(&group.held) - 1) as u64,
            consumers: Some(u64::from(!group.queue.is_closed())),
        };
        self.groups.iter().map(depth).collect()
    }

    async fn publish_batch(&self, batch: Vec<Message>) -> Vec<Result<(), PublishError>> {
        let mut states = Vec::with_capacity(batch.len());
        let mut parcels = Vec::new();
        for (index, message) in batch.into_iter().enumerate() {
            let checked = message.check(self.options.max_body_bytes);
            let message = Arc::new(message);
            let wanting: Vec<usize> = match &checked {
                Ok(()) => self.wanting(&message).collect(),
                Err(_) => Vec::new(),
            };
            states.push(match checked {
                Err(error) => State::Failed(error),
                Ok(()) if wanting.is_empty() => State::Failed(PublishError::Unroutable {
                    exchange: message.exchange.clone(),
                    routing_key: message.routing_key.clone(),
                }),
                Ok(()) => State::Waiting(wanting.len()),
            });
            parcels.extend(wanting.into_iter().map(|group| Parcel {
                index,
                group,
                message: Arc::clone(&message),
                replayed: 0,
            }));
        }
        self.hand_over(states, parcels).await
    }

    /// Delivers dead letters to the one group that gave them up, each with how often it was replayed, this time
    /// included. One result for each; `Ok` when the group has settled it, which it has also when it gave it up again.
    pub async fn deliver_to(
        &self,
        group: &str,
        letters: Vec<(Message, u32)>,
    ) -> Vec<Result<(), PublishError>> {
        let Some(group) = self.groups.iter().position(|known| known.name == group) else {
            let error = PublishError::Misconfigured(format!("there is no group {group}").into());
            return vec![Err(error); letters.len()];
        };
        let states = letters.iter().map(|_| State::Waiting(1)).collect();
        let parcels = letters.into_iter().enumerate().map(|(index, (message, replayed))| Parcel {
            index,
            group,
            message: Arc::new(message),
            replayed,
        });
        self.hand_over(states, parcels.collect()).await
    }

    /// Puts each parcel into its group's queue and waits until the groups have settled them.
    async fn hand_over(
        &self,
        mut states: Vec<State>,
        parcels: Vec<Parcel>,
    ) -> Vec<Result<(), PublishError>> {
        let deadline = Instant::now() + self.options.settle_within;
        let (settled, mut results) = mpsc::channel(parcels.len().max(1));
        let mut wait = Ok(());
        for Parcel { index, group, message, replayed } in parcels {
            let (settled, group) = (settled.clone(), &self.groups[group]);
            let held = Arc::clone(&group.held);
            let item = Item {
                message,
                attempts: 0,
                redelivered: false,
                replayed,
                index,
                settled,
                _held: held,
            };
            match tokio::time::timeout_at(deadline, group.queue.send(item)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => wait = Err("a group's consumer is gone"),
                Err(_) => {
                    wait = Err("a group has no room");
                    break;
                }
            }
        }
        drop(settled);
        while let Ok(Some(index)) = tokio::time::timeout_at(deadline, results.recv()).await {
            states[index].settle_one();
        }
        // Every sender is gone before the deadline only when each item was settled or its consumer was
        // dropped with it.
        let late = Instant::now() >= deadline;
        let unsettled = match wait {
            Err(why) => PublishError::Unreachable(why.into()),
            Ok(()) if late => PublishError::Unconfirmed("a group did not settle in time".into()),
            Ok(()) => PublishError::Unreachable("a group's consumer is gone".into()),
        };
        states.into_iter().map(|state| state.result(&unsettled)).collect()
    }

    fn wanting<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = usize> + 'a {
        let wants =
            move |group: &Group| group.bindings.iter().any(|binding| binding.wants(message));
        self.groups.iter().enumerate().filter(move |(_, group)| wants(group)).map(|(at, _)| at)
    }
}

impl Publisher for Bus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>> {
        Box::pin(async move {
            let started = Instant::now();
            let results = self.publish_batch(batch).await;
            self.options.metrics.published(&results, started.elapsed());
            results
        })
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("groups", &self.groups.len()).finish_non_exhaustive()
    }
}

/// A message of a publish call.
enum State {
    Failed(PublishError),
    /// So many groups have not settled it.
    Waiting(usize),
}

impl State {
    fn settle_one(&mut self) {
        if let State::Waiting(groups) = self {
            *groups = groups.saturating_sub(1);
        }
    }

    fn result(self, unsettled: &PublishError) -> Result<(), PublishError> {
        match self {
            State::Failed(error) => Err(error),
            State::Waiting(0) => Ok(()),
            State::Waiting(_) => Err(unsettled.clone()),
        }
    }
}

/// What a group's consumer and its batches share.
struct Shared {
    name: String,
    queue: mpsc::WeakSender<Item>,
    retry: Retry,
    dead_letters: Arc<dyn DeadLetters>,
    metrics: Metrics,
}

impl Shared {
    /// Delivers an item to the group again after a time. Nobody waits for it: if the bus or the group's
    /// consumer goes away meanwhile, the item is dropped and its publisher learns it.
    fn again(self: &Arc<Self>, item: Item, delay: Duration) {
        let shared = Arc::clone(self);
        // Called outside a runtime only while the process ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(delay).await;
                if !item.is_void()
                    && let Some(queue) = shared.queue.upgrade()
                {
                    let _ = queue.send(item).await;
                }
            });
        }
    }

    async fn settle_one(
        self: &Arc<Self>,
        item: Item,
        delivery: Delivery,
        mark: Mark,
        committed: &mut Committed,
    ) {
        match self.retry.decide(mark, item.attempts) {
            Verdict::Done => {
                committed.done += 1;
                item.done();
            }
            Verdict::Again { delay, attempts, cause } => {
                match cause {
                    Some(_) => committed.retried += 1,
                    None => committed.deferred += 1,
                }
                self.again(Item { attempts, redelivered: true, ..item }, delay);
            }
            Verdict::GiveUp { attempts, cause } => {
                let letter = DeadLetter {
                    message: delivery.message,
                    queue: Some(self.name.clone()),
                    cause,
                    attempts,
                    replayed: item.replayed,
                    dead_lettered_at: Some(Timestamp::now()),
                    deaths: Vec::new(),
                };
                let id = letter.message.message_id.clone();
                match self.dead_letters.store(letter).await {
                    Ok(()) => {
                        committed.dead_lettered += 1;
                        item.done();
                    }
                    Err(error) => {
                        tracing::warn!(
                            group = %self.name, message_id = %id, %error,
                            "a dead letter could not be kept; the message comes again"
                        );
                        committed.returned += 1;
                        // Without this attempt, so that it ends in the same verdict.
                        let delay = self.retry.delays()[0];
                        self.again(Item { redelivered: true, ..item }, delay);
                    }
                }
            }
        }
    }
}

/// The consuming side of a group.
pub struct GroupConsumer {
    receiver: mpsc::Receiver<Item>,
    batch: usize,
    shared: Arc<Shared>,
}

impl Consumer for GroupConsumer {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, ConsumeError>> {
        Box::pin(async move {
            loop {
                let mut items = Vec::new();
                if self.receiver.recv_many(&mut items, self.batch).await == 0 {
                    return Err(ConsumeError::Closed);
                }
                items.retain(|item| !item.is_void());
                if items.is_empty() {
                    continue;
                }
                let deliveries: Vec<Delivery> = items
                    .iter()
                    .map(|item| Delivery {
                        message: Message::clone(&item.message),
                        attempts: item.attempts,
                        redelivered: item.redelivered,
                        position: None,
                    })
                    .collect();
                let again = deliveries.iter().filter(|delivery| delivery.redelivered).count();
                self.shared.metrics.consumed.increment(deliveries.len() as u64);
                self.shared.metrics.redelivered.increment(again as u64);
                let shared = Arc::clone(&self.shared);
                return Ok(Batch::new(deliveries, Box::new(Held { items, shared })));
            }
        })
    }
}

impl std::fmt::Debug for GroupConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupConsumer").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The items behind a batch.
struct Held {
    items: Vec<Item>,
    shared: Arc<Shared>,
}

impl Settle for Held {
    fn settle(
        self: Box<Self>,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
    ) -> BoxFuture<'static, Result<Committed, ConsumeError>> {
        Box::pin(async move {
            let mut committed = Committed::default();
            for ((item, delivery), mark) in self.items.into_iter().zip(deliveries).zip(marks) {
                self.shared.settle_one(item, delivery, mark, &mut committed).await;
            }
            self.shared.metrics.settled(&committed);
            Ok(committed)
        })
    }

    fn abandon(self: Box<Self>, _deliveries: Vec<Delivery>) {
        for item in self.items {
            self.shared.again(Item { redelivered: true, ..item }, Duration::ZERO);
        }
    }
}
