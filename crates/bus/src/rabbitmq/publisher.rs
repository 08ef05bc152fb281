//! Publishing with confirms.
//!
//! A lane is a channel in confirm mode that one batch uses at a time. All lanes are on one connection, which
//! only publishes. When anything about it is in doubt, the connection is given up and the next publish makes
//! a new one: what was not confirmed is reported, and its owner publishes it again.

use std::collections::{HashSet, VecDeque};
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{Channel, Confirmation, Connection};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::address::{Address, Backoff, words};
use super::answer::LOOK;
use super::declare::soft;
use super::properties::{Outgoing, outgoing};
use crate::{Message, Metrics, PublishError, Publisher};

/// How a publisher works.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// What the broker's operator sees as the connection's name.
    pub name: String,
    /// The most messages of a batch that are sent and not confirmed.
    pub window: usize,
    /// The most batches at once.
    pub lanes: usize,
    /// How long to wait for the next confirm.
    pub confirm_within: Duration,
    /// How long to wait for a broker that blocks.
    pub blocked_patience: Duration,
    /// The largest body.
    pub max_body_bytes: usize,
    /// What is counted where.
    pub metrics: Metrics,
}

impl Default for PublisherOptions {
    fn default() -> PublisherOptions {
        PublisherOptions {
            name: "holdfast publisher".to_owned(),
            window: 1000,
            lanes: 2,
            confirm_within: Duration::from_secs(30),
            blocked_patience: Duration::from_secs(1),
            max_body_bytes: 16 << 20,
            metrics: Metrics::none(),
        }
    }
}

/// Publishes to RabbitMQ. It connects at the first publish.
pub struct RabbitPublisher {
    address: Address,
    options: PublisherOptions,
    permits: Semaphore,
    /// Channels that no batch is using.
    idle: Mutex<Vec<Channel>>,
    link: tokio::sync::Mutex<Link>,
}

#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    backoff: Backoff,
    /// After a failed connect: what it said, and until when that is the answer.
    failed: Option<(Instant, Arc<str>)>,
}

/// Why a batch ended early.
enum Stop {
    /// The broker blocks: what was sent may arrive yet, and the connection stays.
    Blocked,
    /// The connection is in doubt.
    Broken(Arc<str>),
    /// The broker closed the channel over something that is not there or not allowed.
    Misconfigured(Arc<str>),
}

impl Stop {
    fn from(error: &lapin::Error) -> Stop {
        match soft(error) {
            Some(_) => Stop::Misconfigured(words(error)),
            None => Stop::Broken(words(error)),
        }
    }
}

type InFlight = BoxFuture<'static, Result<Confirmation, lapin::Error>>;

impl RabbitPublisher {
    /// A publisher for the broker at `address`.
    pub fn new(address: Address, options: PublisherOptions) -> RabbitPublisher {
        let permits = Semaphore::new(options.lanes.max(1));
        let idle = Mutex::new(Vec::new());
        RabbitPublisher { address, options, permits, idle, link: tokio::sync::Mutex::default() }
    }

    /// True while the broker blocks publishing.
    pub async fn is_blocked(&self) -> bool {
        let link = self.link.lock().await;
        link.connection.as_ref().is_some_and(|connection| connection.status().blocked())
    }

    /// Connects if there is no connection; for readiness.
    pub async fn ready(&self) -> Result<(), PublishError> {
        self.connection().await.map(drop)
    }

    /// Sends messages and waits for their confirms: one result for each, in order.
    pub(crate) async fn send(&self, batch: &[Outgoing]) -> Vec<Result<(), PublishError>> {
        let failed = |error: PublishError| vec![Err(error); batch.len()];
        // The semaphore is never closed.
        let Ok(_permit) = self.permits.acquire().await else {
            return failed(PublishError::Unreachable("the publisher is closed".into()));
        };
        let (connection, channel) = match self.lane().await {
            Ok(lane) => lane,
            Err(error) => return failed(error),
        };
        if !self.wait_unblocked(&connection).await {
            self.put_back(channel);
            return failed(PublishError::Blocked);
        }
        // Should this future be dropped here, the channel goes with it, and with it its unconfirmed messages.
        let (results, stop) = self.send_on(&connection, &channel, batch).await;
        match stop {
            None => self.put_back(channel),
            Some(Stop::Blocked) => tracing::warn!("the broker blocks publishing"),
            Some(Stop::Misconfigured(error)) => tracing::error!(%error, "publishing was refused"),
            Some(Stop::Broken(error)) => {
                tracing::warn!(%error, "publishing failed; the connection is given up");
                self.give_up(&connection).await;
            }
        }
        results
    }

    async fn send_on(
        &self,
        connection: &Connection,
        channel: &Channel,
        batch: &[Outgoing],
    ) -> (Vec<Result<(), PublishError>>, Option<Stop>) {
        let mut results: Vec<Result<(), PublishError>> = Vec::with_capacity(batch.len());
        let mut returned: HashSet<Identity> = HashSet::new();
        let mut in_flight: VecDeque<InFlight> = VecDeque::with_capacity(self.options.window);
        let window = self.options.window.max(1);
        let mut stop = None;
        let mut sent = 0;
        while stop.is_none() && (sent < batch.len() || !in_flight.is_empty()) {
            if sent < batch.len() && in_flight.len() < window {
                let mut publish = publish_one(channel.clone(), &batch[sent]);
                // The first poll puts the frames into the connection's queue, so the order is ours; what
                // remains is waiting.
                match poll_fn(|context| Poll::Ready(publish.as_mut().poll(context))).await {
                    Poll::Ready(result) => in_flight.push_back(Box::pin(ready(result))),
                    Poll::Pending => in_flight.push_back(publish),
                }
                sent += 1;
                self.options.metrics.in_flight.increment(1);
                continue;
            }
            let Some(mut first) = in_flight.pop_front() else { break };
            match self.wait_confirm(connection, &mut first).await {
                Ok(confirmation) => {
                    let refused = confirmation.is_nack();
                    results.push(if refused { Err(PublishError::Refused) } else { Ok(()) });
                    if let Some(message) = confirmation.take_message() {
                        returned.insert(Identity::of_returned(&message));
                    }
                }
                Err(reason) => stop = Some(reason),
            }
        }
        self.options.metrics.in_flight.decrement(sent as f64);
        // A return comes before the confirm of its own message, but the client may have attached it to
        // another confirm of the batch. So they are matched when all are in.
        for (outgoing, result) in batch.iter().zip(&mut results) {
            if !returned.is_empty() && returned.contains(&Identity::of(outgoing)) {
                *result = Err(PublishError::Unroutable {
                    exchange: outgoing.exchange.clone(),
                    routing_key: outgoing.routing_key.clone(),
                });
            }
        }
        if let Some(stop) = &stop {
            // Those before `sent` were in the connection's hands, whatever became of them. A message that
            // counted as confirmed may be one that was returned, its return lost with the connection or
            // attached to a confirm that we no longer hear: the broker sends a return before any later
            // confirm, so it is among those already seen.
            let (unconfirmed, unsent) = match stop {
                Stop::Blocked => {
                    let why = "the broker blocks publishing".into();
                    (PublishError::Unconfirmed(why), PublishError::Blocked)
                }
                Stop::Broken(why) => (
                    PublishError::Unconfirmed(Arc::clone(why)),
                    PublishError::Unreachable(Arc::clone(why)),
                ),
                Stop::Misconfigured(why) => {
                    let error = PublishError::Misconfigured(Arc::clone(why));
                    (error.clone(), error)
                }
            };
            results.resize(sent, Err(unconfirmed));
            results.resize(batch.len(), Err(unsent));
        }
        (results, stop)
    }

    /// Waits for one confirm, as long as the broker neither blocks nor stays silent for too long.
    async fn wait_confirm(
        &self,
        connection: &Connection,
        confirm: &mut InFlight,
    ) -> Result<Confirmation, Stop> {
        // The broker confirms many at once, so most of them are there already.
        if let Some(confirmed) = (&mut *confirm).now_or_never() {
            return confirmed.map_err(|error| Stop::from(&error));
        }
        let started = Instant::now();
        let mut blocked_since = None;
        loop {
            let alive = connection.status().connected();
            if let Ok(confirmed) = tokio::time::timeout(LOOK, &mut *confirm).await {
                return confirmed.map_err(|error| Stop::from(&error));
            }
            if !alive {
                return Err(Stop::Broken("the connection was lost".into()));
            }
            let now = Instant::now();
            if self.see_blocked(connection) {
                let since = *blocked_since.get_or_insert(now);
                if now - since >= self.options.blocked_patience {
                    return Err(Stop::Blocked);
                }
            } else if now - started >= self.options.confirm_within {
                return Err(Stop::Broken("no confirm in time".into()));
            }
        }
    }

    fn see_blocked(&self, connection: &Connection) -> bool {
        let blocked = connection.status().blocked();
        self.options.metrics.blocked.set(if blocked { 1.0 } else { 0.0 });
        blocked
    }

    /// False when the broker still blocks after the patience for it.
    async fn wait_unblocked(&self, connection: &Connection) -> bool {
        let deadline = Instant::now() + self.options.blocked_patience;
        while self.see_blocked(connection) {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK.min(self.options.blocked_patience)).await;
        }
        true
    }

    async fn lane(&self) -> Result<(Arc<Connection>, Channel), PublishError> {
        let connection = self.connection().await?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(channel) = idle.filter(|channel| channel.status().connected()) {
            return Ok((connection, channel));
        }
        let opened = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        // A blocked connection writes nothing, so that opening a channel would hang.
        if !self.wait_unblocked(&connection).await {
            return Err(PublishError::Blocked);
        }
        let opened = tokio::time::timeout(self.options.confirm_within, opened).await;
        let why = match opened {
            Ok(Ok(channel)) => return Ok((connection, channel)),
            Ok(Err(error)) => words(&error),
            Err(_) => "no channel in time".into(),
        };
        self.give_up(&connection).await;
        Err(PublishError::Unreachable(why))
    }

    fn put_back(&self, channel: Channel) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    async fn connection(&self) -> Result<Arc<Connection>, PublishError> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection
            && connection.status().connected()
        {
            return Ok(Arc::clone(connection));
        }
        link.connection = None;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if let Some((until, why)) = &link.failed
            && Instant::now() < *until
        {
            return Err(PublishError::Unreachable(Arc::clone(why)));
        }
        match self.address.connect(&self.options.name).await {
            Ok(connection) => {
                self.options.metrics.connects.increment(1);
                let connection = Arc::new(connection);
                *link = Link { connection: Some(Arc::clone(&connection)), ..Link::default() };
                Ok(connection)
            }
            Err(why) => {
                let pause = link.backoff.next();
                tracing::warn!(error = %why, ?pause, "the broker cannot be reached");
                link.failed = Some((Instant::now() + pause, Arc::clone(&why)));
                Err(PublishError::Unreachable(why))
            }
        }
    }

    /// Closes a connection that is in doubt, unless another one has taken its place.
    async fn give_up(&self, connection: &Arc<Connection>) {
        let mut link = self.link.lock().await;
        if link.connection.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
            link.connection = None;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        drop(link);
        // A dead link would let us wait for its answer; nobody does.
        let connection = Arc::clone(connection);
        tokio::spawn(async move {
            let closing = connection.close(200, "given up".into());
            let _ = tokio::time::timeout(LOOK * 10, closing).await;
        });
    }
}

impl Publisher for RabbitPublisher {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>> {
        Box::pin(async move {
            let started = Instant::now();
            let limit = self.options.max_body_bytes;
            let checked: Vec<_> = batch.iter().map(|message| message.check(limit)).collect();
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

impl std::fmt::Debug for RabbitPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitPublisher").field("address", &self.address).finish_non_exhaustive()
    }
}

fn publish_one(channel: Channel, outgoing: &Outgoing) -> InFlight {
    let exchange: ShortString = outgoing.exchange.as_str().into();
    let routing_key: ShortString = outgoing.routing_key.as_str().into();
    let properties = outgoing.properties.clone();
    let body = outgoing.body.clone();
    Box::pin(async move {
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        channel.basic_publish(exchange, routing_key, options, &body, properties).await?.await
    })
}

/// What a returned message is recognised by. Two messages that agree in it go the same way.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    message_id: Option<String>,
    exchange: String,
    routing_key: String,
}

impl Identity {
    fn of(outgoing: &Outgoing) -> Identity {
        Identity {
            message_id: outgoing.properties.message_id().as_ref().map(ToString::to_string),
            exchange: outgoing.exchange.clone(),
            routing_key: outgoing.routing_key.clone(),
        }
    }

    fn of_returned(message: &lapin::message::BasicReturnMessage) -> Identity {
        Identity {
            message_id: message.properties.message_id().as_ref().map(ToString::to_string),
            exchange: message.exchange.to_string(),
            routing_key: message.routing_key.to_string(),
        }
    }
}
