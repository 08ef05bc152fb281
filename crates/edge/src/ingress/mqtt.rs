//! Receiving from the broker.
//!
//! Two connections. The first takes batches and status, in a session that the broker forgets: what
//! it loses the nodes send again. The second takes bare events, in a session that the broker keeps
//! under a stable name: nobody would send those again, so the broker holds them while the edge is
//! away. Batches and events come by shared subscription, so that replicas divide them.
//!
//! How many bare events the broker holds is its own setting (`max_queued_messages`; Mosquitto's
//! default is 1,000, which a longer outage of the edge may pass).
//!
//! Promises: every message is acknowledged by hand, after its commit. What is held in memory is
//! bounded in number and bytes; beyond it the connection is not read. A connection that breaks is
//! made again, with backoff, subscriptions included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqtt::rumqttc::{
    AsyncClient, Event, EventLoop, Outgoing, Packet, Publish, QoS, SubscribeFilterInput,
};
use mqtt::{Backoff, Broker, Session, Trouble};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::acknowledge::{Puback, Uplink};
use super::{Incoming, Source};
use crate::health::{Health, Line};
use crate::signal::Signal;

/// Messages held at one time. The broker's own window (`max_inflight_messages`) is usually smaller.
pub(crate) const MAX_HELD_MESSAGES: usize = 2_048;
/// The largest packet that MQTT knows. A smaller limit would break the connection on a large
/// message, again and again, because an unacknowledged message comes back; instead it is read,
/// clipped and quarantined.
const MAX_PACKET_BYTES: usize = 268_435_455;
/// Requests on their way to the event loop: PUBACKs of everything held, and acks.
const QUEUE: usize = 2 * MAX_HELD_MESSAGES;
const INFLIGHT_ACKS: u16 = 100;
const RETRY_BASE: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// How long a stopping edge waits for its last PUBACKs to leave.
const GOODBYE: Duration = Duration::from_secs(2);
const GROUP: &str = "$share/holdfast-edge";

/// A message in memory. Its share of the bound goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) incoming: Incoming,
    pub(crate) puback: Option<Puback>,
    _bytes: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// What bounds the messages in memory.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// In KiB, because a semaphore counts in 32 bits.
    kib: Arc<Semaphore>,
    max_kib: u32,
    places: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(max_bytes: u64) -> Room {
        let max_kib = u32::try_from(max_bytes / 1024).unwrap_or(u32::MAX).max(1);
        let kib = Arc::new(Semaphore::new(max_kib as usize));
        Room { kib, max_kib, places: Arc::new(Semaphore::new(MAX_HELD_MESSAGES)) }
    }

    async fn hold(&self, incoming: Incoming, puback: Option<Puback>) -> Option<Held> {
        let kib = u32::try_from(incoming.body.len().div_ceil(1024)).unwrap_or(u32::MAX);
        let share = kib.clamp(1, self.max_kib);
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.kib).acquire_many_owned(share).await.ok()?;
        Some(Held { incoming, puback, _bytes: bytes, _place: place })
    }
}

/// What both connections share.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    pub(crate) broker: Broker,
    pub(crate) replica: String,
    pub(crate) keepalive: Duration,
    pub(crate) room: Room,
    pub(crate) health: Arc<Health>,
    pub(crate) uplink: Arc<Uplink>,
}

impl Receiver {
    fn session(&self, line: Line) -> Session {
        let suffix = match line {
            Line::Batches => "",
            Line::Events => "-events",
        };
        Session {
            client_id: format!("holdfast-{}{suffix}", self.replica),
            clean: line == Line::Batches,
            keepalive: self.keepalive,
            inflight: INFLIGHT_ACKS,
            max_packet_bytes: MAX_PACKET_BYTES,
            manual_acks: true,
            queue: QUEUE,
            ..Session::default()
        }
    }

    /// Checks that the options can work at all, so that a wrong file is told at start.
    pub(crate) fn check(&self) -> Result<(), mqtt::Error> {
        self.broker.options(&self.session(Line::Batches)).map(drop)
    }

    /// Receives until `stop`, then stays for the PUBACKs of what was received until `drained`.
    pub(crate) async fn run(
        self,
        line: Line,
        sender: mpsc::Sender<Held>,
        mut stop: Signal,
        mut drained: Signal,
    ) {
        let session = self.session(line);
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        let mut sender = Some(sender);
        while !drained.is_said() {
            let (client, events) = match self.broker.connect(&session) {
                Ok(pair) => pair,
                Err(error) => {
                    tracing::error!(%error, "the broker's client cannot be made");
                    return;
                }
            };
            let mut connection = Connection { receiver: &self, line, client, events };
            let trouble =
                connection.serve(&mut sender, &mut stop, &mut drained, &mut backoff).await;
            self.health.set_connected(line, false);
            if line == Line::Batches {
                self.uplink.set(None);
            }
            // Nothing can be acknowledged any more by a connection that is gone.
            drop(connection);
            let Some(trouble) = trouble else { return };
            let pause = backoff.next(&mut rand::rng());
            match &trouble {
                Trouble::Refused(reason) => tracing::error!(?line, reason, "the broker says no"),
                other => {
                    tracing::warn!(?line, reason = %other, ?pause, "no connection to the broker")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = drained.heard() => return,
            }
        }
    }

    fn filters(&self, line: Line) -> Vec<SubscribeFilterInput> {
        let filters: Vec<String> = match line {
            Line::Batches => vec![
                format!("{GROUP}/iot/+/live"),
                format!("{GROUP}/iot/+/backfill"),
                "iot/+/status".to_owned(),
            ],
            Line::Events => vec![format!("{GROUP}/iot/+/event")],
        };
        let filters = filters.into_iter();
        filters.map(|filter| SubscribeFilterInput::new(filter, QoS::AtLeastOnce)).collect()
    }
}

/// One connection, from its making to its end.
struct Connection<'a> {
    receiver: &'a Receiver,
    line: Line,
    client: AsyncClient,
    events: EventLoop,
}

impl Connection<'_> {
    /// Until the connection breaks, or (with `None`) until everything received was seen to.
    async fn serve(
        &mut self,
        sender: &mut Option<mpsc::Sender<Held>>,
        stop: &mut Signal,
        drained: &mut Signal,
        backoff: &mut Backoff,
    ) -> Option<Trouble> {
        loop {
            let event = tokio::select! {
                event = self.events.poll() => event,
                () = stop.heard(), if sender.is_some() => {
                    *sender = None;
                    continue;
                }
                () = drained.heard() => {
                    self.leave().await;
                    return None;
                }
            };
            match event {
                Ok(Event::Incoming(Packet::ConnAck(_))) => {
                    let filters = self.receiver.filters(self.line);
                    if let Err(error) = self.client.try_subscribe_many(filters) {
                        return Some(Trouble::Link(error.to_string()));
                    }
                }
                Ok(Event::Incoming(Packet::SubAck(_))) => {
                    backoff.reset();
                    self.receiver.health.set_connected(self.line, true);
                    if self.line == Line::Batches {
                        self.receiver.uplink.set(Some(self.client.clone()));
                    }
                }
                Ok(Event::Incoming(Packet::Publish(publish))) => {
                    let Some(open) = sender.clone() else { continue };
                    tokio::select! {
                        () = self.take(publish, &open) => {}
                        // A message that waits for room when the edge stops is not taken; it comes
                        // again.
                        () = stop.heard() => *sender = None,
                    }
                }
                Ok(_) => {}
                Err(error) => return Some(Trouble::from(&error)),
            }
        }
    }

    async fn take(&self, publish: Publish, sender: &mpsc::Sender<Held>) {
        let puback = self.client.prepare_ack(&publish);
        let puback = puback.map(|packet| Puback { client: self.client.clone(), packet });
        let topic = String::from_utf8_lossy(&publish.topic).into_owned();
        let mut incoming = Incoming::new(Source::Mqtt, topic, publish.payload);
        incoming.retained = publish.retain;
        if let Some(held) = self.receiver.room.hold(incoming, puback).await {
            self.receiver.health.received(Instant::now());
            // The channel has a place for every message that there is room for; it is closed only
            // when all is over.
            let _ = sender.send(held).await;
        }
    }

    /// Lets the last PUBACKs leave, and says goodbye.
    async fn leave(&mut self) {
        if self.client.try_disconnect_with_timeout(GOODBYE).is_err() {
            return;
        }
        let _ = tokio::time::timeout(GOODBYE, async {
            while !matches!(
                self.events.poll().await,
                Err(_) | Ok(Event::Outgoing(Outgoing::Disconnect))
            ) {}
        })
        .await;
    }
}
