//! An edge that keeps a frontier instead of a database, and remembers everything it was sent.

use super::{LONG, node_id};
use event::farm::Envelope;
use event::id::{Epoch, TenantId};
use event::ledger::{Frontier, Seen};
use event::names::Topic;
use event::wire::{self, Ack, Batch, Gap, Limits, Status};
use mqtt::rumqttc::{AsyncClient, Event, Packet, PublishOptions, QoS};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use testkit::eventually;
use tokio::task::JoinHandle;

/// What the edge has seen.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) frontiers: BTreeMap<Epoch, Frontier>,
    /// How often each seq arrived, of whatever epoch.
    pub(crate) arrivals: BTreeMap<u64, u32>,
    pub(crate) events: BTreeMap<u64, String>,
    pub(crate) event_ids: HashSet<String>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) live_batches: u64,
    pub(crate) backfill_batches: u64,
    pub(crate) duplicates: u64,
    pub(crate) statuses: Vec<Status>,
    pub(crate) acking: bool,
}

impl Memory {
    /// Takes a batch in as the edge would; returns its ack.
    pub(crate) fn take(&mut self, body: &[u8], limits: &Limits) -> Ack {
        let json = wire::decode(body, limits).unwrap();
        let batch = Batch::parse(&json, limits).unwrap();
        let frontier = self.frontiers.entry(batch.epoch).or_default();
        for record in &batch.records {
            // What a node sends is what the edge accepts.
            let event: &RawValue = record.event;
            let envelope = Envelope::parse_from_node(event.get(), TenantId::mint()).unwrap();
            self.event_ids.insert(envelope.event_id.to_string());
            if frontier.observe(record.seq).unwrap() == Seen::Duplicate {
                self.duplicates += 1;
            }
            *self.arrivals.entry(record.seq).or_default() += 1;
            self.events.insert(record.seq, event.get().to_owned());
        }
        for gap in &batch.gaps {
            frontier.declare_lost(gap.from_seq, gap.to_seq).unwrap();
            self.gaps.push(gap.clone());
        }
        Ack::of(batch.epoch, frontier)
    }
}

/// The edge, connected to the broker without the node's link.
pub(crate) struct FakeEdge {
    pub(crate) client: AsyncClient,
    seen: Arc<Mutex<Memory>>,
    task: JoinHandle<()>,
}

impl FakeEdge {
    /// Connects to a broker that lets anybody in.
    pub(crate) async fn start(broker: SocketAddr) -> FakeEdge {
        let address = format!("mqtt://{broker}").parse().unwrap();
        let tls = mqtt::Tls::default();
        FakeEdge::connect(mqtt::Broker { address, tls, credentials: None }).await
    }

    /// Connects, and waits until it hears everything.
    pub(crate) async fn connect(broker: mqtt::Broker) -> FakeEdge {
        let session = mqtt::Session {
            client_id: "edge".to_owned(),
            clean: false,
            queue: 1000,
            inflight: 100,
            max_packet_bytes: 2 << 20,
            ..mqtt::Session::default()
        };
        let (client, mut event_loop) = broker.connect(&session).unwrap();
        let seen = Arc::new(Mutex::new(Memory { acking: true, ..Memory::default() }));
        let (ready, is_ready) = tokio::sync::watch::channel(0u32);
        let task = {
            let (client, seen) = (client.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                loop {
                    match event_loop.poll().await {
                        Ok(Event::Incoming(Packet::ConnAck(_))) => {
                            for topic in ["iot/+/live", "iot/+/backfill", "iot/+/status"] {
                                client.try_subscribe(topic, QoS::AtLeastOnce).unwrap();
                            }
                        }
                        Ok(Event::Incoming(Packet::SubAck(_))) => ready.send_modify(|n| *n += 1),
                        Ok(Event::Incoming(Packet::Publish(publish))) => {
                            let topic =
                                Topic::parse(&String::from_utf8_lossy(&publish.topic)).unwrap();
                            handle(&client, &seen, &topic, &publish.payload);
                        }
                        Ok(_) => {}
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                    }
                }
            })
        };
        let edge = FakeEdge { client, seen, task };
        eventually(LONG, "the edge to subscribe", async || *is_ready.borrow() >= 3).await.unwrap();
        edge
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Memory> {
        self.seen.lock().unwrap()
    }

    /// Whether acks are sent.
    pub(crate) fn set_acking(&self, acking: bool) {
        self.seen().acking = acking;
    }

    /// Publishes a body on the node's ack topic.
    pub(crate) async fn publish_ack(&self, body: String) {
        let topic = Topic::Ack(node_id()).to_string();
        let options = PublishOptions::at_least_once().retained();
        let notice = self.client.publish_tracked(topic, body, options).await.unwrap();
        notice.wait_completion_async().await.unwrap();
    }

    /// Publishes a body on the node's command topic.
    #[allow(dead_code, reason = "each test file uses its own part of the edge")]
    pub(crate) async fn publish_command(&self, body: String) {
        let topic = Topic::Command(node_id()).to_string();
        let options = PublishOptions::at_least_once();
        let notice = self.client.publish_tracked(topic, body, options).await.unwrap();
        notice.wait_completion_async().await.unwrap();
    }

    /// The frontier of the only epoch there is.
    pub(crate) fn frontier(&self) -> Frontier {
        self.seen().frontiers.values().next().cloned().unwrap_or_default()
    }

    /// Waits until every seq up to `head` is accounted for.
    pub(crate) async fn has_all(&self, head: u64) {
        let all = eventually(LONG, "every record to arrive", async || {
            let frontier = self.frontier();
            match frontier.acked() >= head {
                true => Ok(()),
                false => Err(format!("acked {} of {head}", frontier.acked())),
            }
        });
        all.await.unwrap();
    }
}

impl Drop for FakeEdge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn handle(client: &AsyncClient, seen: &Mutex<Memory>, topic: &Topic, body: &[u8]) {
    let mut seen = seen.lock().unwrap();
    match topic {
        Topic::Live(_) => seen.live_batches += 1,
        Topic::Backfill(_) => seen.backfill_batches += 1,
        Topic::Status(_) => {
            seen.statuses.push(Status::parse(body).unwrap());
            return;
        }
        _ => return,
    }
    let ack = seen.take(body, &Limits::MQTT);
    if seen.acking {
        let topic = Topic::Ack(topic.node().clone()).to_string();
        let options = PublishOptions::at_least_once().retained();
        client.try_publish(topic, ack.to_json(), options).unwrap();
    }
}
