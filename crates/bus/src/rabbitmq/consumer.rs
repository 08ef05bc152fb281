//! Consuming a work queue in batches, acknowledged after the handler's store.
//!
//! The connection of a consumer only consumes and acknowledges. Copies for the retry queues and the
//! dead letters go by a publisher, on another connection, so that a broker that blocks publishing still gets
//! acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, try_join, try_join_all};
use jiff::Timestamp;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::address::{Address, Backoff, words};
use super::answer::answer;
use super::declare::soft;
use super::properties::{
    self, ATTEMPTS, CAUSE_CODE, CAUSE_MESSAGE, DEAD_LETTERED_AT, Incoming, ORIGINAL_QUEUE, Outgoing,
};
use super::publisher::RabbitPublisher;
use super::topology::{WorkQueue, retry_queue};
use crate::batch::{Mark, Settle};
use crate::retry::Verdict;
use crate::{Batch, Cause, Committed, ConsumeError, Consumer, Delivery, Metrics};

/// Between two tries to publish a copy.
const COPY_PAUSE: Duration = Duration::from_millis(500);
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// How often a consumer that waits for messages looks at whether its link is still there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How a consumer works.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// What the broker's operator sees as the connection's name.
    pub name: String,
    /// The most messages held and not acknowledged.
    pub prefetch: u16,
    /// The most messages of a batch.
    pub batch: usize,
    /// How long a batch that has a message waits for more.
    pub linger: Duration,
    /// How long a commit tries to get its copies confirmed, before it gives the messages back.
    pub copy_within: Duration,
    /// What is counted where.
    pub metrics: Metrics,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            name: "holdfast consumer".to_owned(),
            prefetch: 1000,
            batch: 500,
            linger: Duration::from_millis(5),
            copy_within: Duration::from_secs(30),
            metrics: Metrics::none(),
        }
    }
}

/// Consumes a work queue. It connects at the first [`Consumer::next`].
pub struct RabbitConsumer {
    address: Address,
    options: ConsumerOptions,
    shared: Arc<Shared>,
    session: Option<Session>,
    /// Received and not yet given out, so that a dropped `next` loses nothing.
    held: Vec<lapin::message::Delivery>,
}

/// What a consumer and its batches share.
struct Shared {
    queue: WorkQueue,
    copies: Arc<RabbitPublisher>,
    copy_within: Duration,
    metrics: Metrics,
}

struct Session {
    /// Lives as long as the channel.
    _connection: Connection,
    channel: Channel,
    deliveries: lapin::Consumer,
    /// Told when a batch was dropped: its messages come back when the channel is closed.
    abandoned: Arc<Notify>,
}

impl RabbitConsumer {
    /// A consumer of `queue` at `address`. `copies` publishes to retry and dead-letter queues.
    pub fn new(
        address: Address,
        queue: WorkQueue,
        copies: Arc<RabbitPublisher>,
        options: ConsumerOptions,
    ) -> RabbitConsumer {
        let shared = Arc::new(Shared {
            queue,
            copies,
            copy_within: options.copy_within,
            metrics: options.metrics.clone(),
        });
        RabbitConsumer { address, options, shared, session: None, held: Vec::new() }
    }

    async fn next_batch(&mut self) -> Result<Batch, ConsumeError> {
        loop {
            self.mend().await?;
            let Some(session) = &mut self.session else { continue };
            let first = tokio::select! {
                biased;
                () = session.abandoned.notified() => {
                    self.give_back().await;
                    continue;
                }
                first = session.deliveries.next(), if self.held.is_empty() => Some(first),
                () = std::future::ready(()) , if !self.held.is_empty() => None,
                // The end of the link ends the stream, too; this is for a stream that was not told.
                () = tokio::time::sleep(LOOK_EVERY) => continue,
            };
            match first {
                None => {}
                Some(Some(Ok(delivery))) => self.held.push(delivery),
                Some(end) => {
                    let error = end.and_then(Result::err).map(|error| words(&error));
                    let queue = &self.shared.queue.name;
                    tracing::warn!(%queue, error = error.as_deref(), "the consumer's link was lost");
                    self.session = None;
                    continue;
                }
            }
            let deadline = Instant::now() + self.options.linger;
            while self.held.len() < self.options.batch.max(1) {
                match tokio::time::timeout_at(deadline, session.deliveries.next()).await {
                    Ok(Some(Ok(delivery))) => self.held.push(delivery),
                    // A broken stream is found by the next call; what is held is void then, too.
                    Ok(_) | Err(_) => break,
                }
            }
            let (channel, abandoned) = (session.channel.clone(), Arc::clone(&session.abandoned));
            return Ok(self.hand_out(channel, abandoned));
        }
    }

    fn hand_out(&mut self, channel: Channel, abandoned: Arc<Notify>) -> Batch {
        let mut deliveries = Vec::with_capacity(self.held.len());
        let mut held = Vec::with_capacity(self.held.len());
        for delivery in std::mem::take(&mut self.held) {
            let one = Held {
                tag: delivery.delivery_tag,
                exchange: delivery.exchange.to_string(),
                routing_key: delivery.routing_key.to_string(),
                properties: delivery.properties,
            };
            let body = Bytes::from(delivery.data);
            let queue = &self.shared.queue.name;
            deliveries.push(one.incoming().delivery(body, delivery.redelivered, queue));
            held.push(one);
        }
        let again = deliveries.iter().filter(|delivery| delivery.redelivered).count();
        self.shared.metrics.consumed.increment(deliveries.len() as u64);
        self.shared.metrics.redelivered.increment(again as u64);
        let shared = Arc::clone(&self.shared);
        let batch = HeldBatch { held, settled: false, channel, abandoned, shared };
        Batch::new(deliveries, Box::new(batch))
    }

    /// Closes the channel, by which everything that is not acknowledged goes back to the queue.
    async fn give_back(&mut self) {
        if let Some(session) = self.session.take() {
            let closing = session.channel.close(200, "messages given back".into());
            let _ = tokio::time::timeout(CLOSE_WITHIN, closing).await;
        }
    }

    /// Makes sure of a session, with backoff.
    async fn mend(&mut self) -> Result<(), ConsumeError> {
        if self.session.as_ref().is_some_and(|session| !session.channel.status().connected()) {
            self.session = None;
        }
        let mut backoff = Backoff::default();
        while self.session.is_none() {
            // They came by a session that is gone.
            self.held.clear();
            match self.open().await {
                Ok(session) => {
                    self.shared.metrics.connects.increment(1);
                    self.session = Some(session);
                }
                Err(Closed::Refused(why)) => return Err(ConsumeError::Misconfigured(why)),
                Err(Closed::Unreachable(error)) => {
                    let pause = backoff.next();
                    let queue = &self.shared.queue.name;
                    tracing::warn!(%queue, %error, ?pause, "the broker cannot be reached");
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Ok(())
    }

    async fn open(&self) -> Result<Session, Closed> {
        let connection =
            self.address.connect(&self.options.name).await.map_err(Closed::Unreachable)?;
        let opened = async {
            let channel = connection.create_channel().await?;
            channel.basic_qos(self.options.prefetch.max(1), BasicQosOptions::default()).await?;
            let deliveries = channel
                .basic_consume(
                    self.shared.queue.name.as_str().into(),
                    "".into(),
                    BasicConsumeOptions::default(),
                    FieldTable::default(),
                )
                .await?;
            Ok((channel, deliveries))
        };
        let opened = answer(|| connection.status().connected(), opened).await;
        let (channel, deliveries) = opened.map_err(|error| match soft(&error) {
            Some(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED) => {
                Closed::Refused(words(&error))
            }
            _ => Closed::Unreachable(words(&error)),
        })?;
        let abandoned = Arc::default();
        Ok(Session { _connection: connection, channel, deliveries, abandoned })
    }
}

/// Why there is no session.
enum Closed {
    Unreachable(Arc<str>),
    Refused(Arc<str>),
}

impl Consumer for RabbitConsumer {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, ConsumeError>> {
        Box::pin(self.next_batch())
    }
}

impl std::fmt::Debug for RabbitConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitConsumer")
            .field("address", &self.address)
            .field("queue", &self.shared.queue.name)
            .finish_non_exhaustive()
    }
}

/// A delivery without its body, which is in the batch.
struct Held {
    /// The broker's number for it on the channel.
    tag: u64,
    exchange: String,
    routing_key: String,
    properties: BasicProperties,
}

impl Held {
    fn incoming(&self) -> Incoming<'_> {
        Incoming {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            properties: &self.properties,
        }
    }
}

struct HeldBatch {
    held: Vec<Held>,
    settled: bool,
    channel: Channel,
    abandoned: Arc<Notify>,
    shared: Arc<Shared>,
}

/// Which number of a commit a copy counts for.
#[derive(Clone, Copy)]
enum Kind {
    Retried,
    Deferred,
    DeadLettered,
}

impl HeldBatch {
    async fn commit(
        mut self: Box<Self>,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
    ) -> Result<Committed, ConsumeError> {
        let mut committed = Committed::default();
        let mut done = Vec::new();
        let mut moving = Vec::new();
        let mut copies = Vec::new();
        for ((held, delivery), mark) in self.held.iter().zip(deliveries).zip(marks) {
            match self.shared.queue.retry.decide(mark, delivery.attempts) {
                Verdict::Done => done.push(held),
                Verdict::Again { delay, attempts, cause } => {
                    let kind = if cause.is_some() { Kind::Retried } else { Kind::Deferred };
                    let to = retry_queue(&self.shared.queue.name, delay);
                    copies.push(self.copy(held, &to, delivery.message.body, attempts, cause, kind));
                    moving.push((held, kind));
                }
                Verdict::GiveUp { attempts, cause } => {
                    let (to, cause) = (&self.shared.queue.dead_letter_queue, Some(cause));
                    let kind = Kind::DeadLettered;
                    copies.push(self.copy(held, to, delivery.message.body, attempts, cause, kind));
                    moving.push((held, kind));
                }
            }
        }
        // What is stored is acknowledged first: it does not wait for a broker that blocks copies.
        self.settle_on_channel(&done, &[]).await?;
        committed.done = done.len() as u64;
        let confirmed = self.publish_copies(copies).await;
        let (mut moved, mut given_back) = (Vec::new(), Vec::new());
        for ((held, kind), confirmed) in moving.into_iter().zip(confirmed) {
            if !confirmed {
                committed.returned += 1;
                given_back.push(held);
                continue;
            }
            moved.push(held);
            match kind {
                Kind::Retried => committed.retried += 1,
                Kind::Deferred => committed.deferred += 1,
                Kind::DeadLettered => committed.dead_lettered += 1,
            }
        }
        self.settle_on_channel(&moved, &given_back).await?;
        self.settled = true;
        self.shared.metrics.settled(&committed);
        Ok(committed)
    }

    /// Acknowledges some messages and gives others back to their queue. When that cannot be said on the channel the batch
    /// stays unsettled, by which the channel is given up and the broker delivers again what it has not heard of.
    async fn settle_on_channel(
        &self,
        done: &[&Held],
        given_back: &[&Held],
    ) -> Result<(), ConsumeError> {
        let acks = done.iter().map(|held| async {
            self.channel.basic_ack(held.tag, BasicAckOptions::default()).await
        });
        let nacks = given_back.iter().map(|held| async {
            let options = BasicNackOptions { multiple: false, requeue: true };
            self.channel.basic_nack(held.tag, options).await
        });
        let said = async { try_join(try_join_all(acks), try_join_all(nacks)).await };
        let said = answer(|| self.channel.status().connected(), said).await;
        said.map(drop).map_err(|error| {
            let queue = &self.shared.queue.name;
            tracing::warn!(%queue, error = %words(&error), "a batch could not be acknowledged");
            ConsumeError::Lost
        })
    }

    fn copy(
        &self,
        held: &Held,
        to: &str,
        body: Bytes,
        attempts: u32,
        cause: Option<Cause>,
        kind: Kind,
    ) -> Outgoing {
        let mut headers = vec![
            (ORIGINAL_QUEUE, properties::text(self.shared.queue.name.as_str())),
            (ATTEMPTS, properties::number(attempts)),
        ];
        if let Some(cause) = cause {
            headers.push((CAUSE_CODE, properties::text(cause.code)));
            headers.push((CAUSE_MESSAGE, properties::text(cause.message)));
        }
        if matches!(kind, Kind::DeadLettered) {
            headers.push((DEAD_LETTERED_AT, properties::text(Timestamp::now().to_string())));
        }
        held.incoming().copy(to, body, headers)
    }

    /// Publishes the copies, trying again for a while: a message given back would be delivered at once, and
    /// the broker counts that.
    async fn publish_copies(&self, copies: Vec<Outgoing>) -> Vec<bool> {
        let deadline = Instant::now() + self.shared.copy_within;
        let mut confirmed = vec![false; copies.len()];
        let mut waiting: Vec<(usize, Outgoing)> = copies.into_iter().enumerate().collect();
        while !waiting.is_empty() {
            let (places, batch): (Vec<usize>, Vec<Outgoing>) = waiting.into_iter().unzip();
            let results = self.shared.copies.send(&batch).await;
            let mut failure = None;
            waiting = Vec::new();
            for ((place, copy), result) in places.into_iter().zip(batch).zip(results) {
                match result {
                    Ok(()) => confirmed[place] = true,
                    Err(error) => {
                        failure = Some(error);
                        waiting.push((place, copy));
                    }
                }
            }
            if let Some(error) = failure {
                let queue = &self.shared.queue.name;
                tracing::warn!(%queue, copies = waiting.len(), %error, "copies not confirmed");
                if Instant::now() + COPY_PAUSE >= deadline {
                    break;
                }
                tokio::time::sleep(COPY_PAUSE).await;
            }
        }
        confirmed
    }
}

impl Settle for HeldBatch {
    fn settle(
        self: Box<Self>,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
    ) -> BoxFuture<'static, Result<Committed, ConsumeError>> {
        Box::pin(self.commit(deliveries, marks))
    }

    fn abandon(self: Box<Self>, _deliveries: Vec<Delivery>) {}
}

/// A batch that was dropped, or whose commit was, is still in the channel's hands.
impl Drop for HeldBatch {
    fn drop(&mut self) {
        if !self.settled {
            self.abandoned.notify_one();
        }
    }
}
