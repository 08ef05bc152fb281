//! A node or a device at the broker, as a test drives it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use event::wire::{Ack, encode};
use mqtt::rumqttc::{AsyncClient, Event, LastWill, Packet, PublishOptions, QoS};
use mqtt::{Broker, Session};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::site::{LONG, Sender};

/// A client that stays connected, publishes, and remembers the last ack.
pub(crate) struct Device {
    client: AsyncClient,
    acks: watch::Receiver<Option<Ack>>,
    connects: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Device {
    pub(crate) async fn connect(address: &str, node: &str) -> Device {
        Device::with_will(address, node, None).await
    }

    pub(crate) async fn with_will(
        address: &str,
        node: &str,
        last_will: Option<LastWill>,
    ) -> Device {
        let broker = Broker {
            address: address.parse().unwrap(),
            tls: mqtt::Tls::default(),
            credentials: None,
        };
        let session = Session {
            client_id: format!("device-{node}"),
            max_packet_bytes: 16 << 20,
            queue: 1_000,
            last_will,
            ..Session::default()
        };
        let (client, mut events) = broker.connect(&session).unwrap();
        let (heard, acks) = watch::channel(None);
        let (connected, mut connects) = watch::channel(0);
        let (topic, subscriber) = (format!("iot/{node}/ack"), client.clone());
        let task = tokio::spawn(async move {
            loop {
                match events.poll().await {
                    Ok(Event::Incoming(Packet::ConnAck(_))) => {
                        connected.send_modify(|count| *count += 1);
                        subscriber.try_subscribe(&*topic, QoS::AtLeastOnce).unwrap();
                    }
                    Ok(Event::Incoming(Packet::Publish(publish))) => {
                        heard.send_replace(Some(Ack::parse(&publish.payload).unwrap()));
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                }
            }
        });
        tokio::time::timeout(LONG, connects.wait_for(|count| *count > 0)).await.unwrap().unwrap();
        Device { client, acks, connects, task }
    }

    /// Publishes, and returns when the broker has it.
    pub(crate) async fn publish(&self, topic: &str, body: impl Into<Vec<u8>>) {
        self.send(topic, body, false).await;
    }

    pub(crate) async fn retain(&self, topic: &str, body: impl Into<Vec<u8>>) {
        self.send(topic, body, true).await;
    }

    async fn send(&self, topic: &str, body: impl Into<Vec<u8>>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        let sent = async {
            let notice = self.client.publish_tracked(topic, body.into(), options).await.unwrap();
            notice.wait_async().await.unwrap();
        };
        tokio::time::timeout(LONG, sent).await.expect("the broker takes a message");
    }

    /// Publishes without waiting for anything.
    pub(crate) fn throw(&self, topic: &str, body: impl Into<Vec<u8>>) {
        let options = PublishOptions::new(QoS::AtLeastOnce);
        let _ = self.client.try_publish(topic, body.into(), options);
    }

    /// The ack that covers everything up to `seq`.
    pub(crate) async fn acked(&self, seq: u64) -> Ack {
        let mut acks = self.acks.clone();
        let enough = acks.wait_for(|ack| ack.as_ref().is_some_and(|ack| ack.acked_seq >= seq));
        let ack = tokio::time::timeout(LONG, enough).await.expect("an ack comes").unwrap();
        ack.clone().unwrap()
    }

    pub(crate) fn last_ack(&self) -> Option<Ack> {
        self.acks.borrow().clone()
    }

    pub(crate) fn connects(&self) -> usize {
        *self.connects.borrow()
    }

    /// Breaks off without a goodbye.
    pub(crate) fn vanish(self) {
        drop(self);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a node's spool does, in small: it sends every record until an ack covers it.
pub(crate) struct Spool {
    pub(crate) sender: Sender,
    records: Arc<Mutex<BTreeMap<u64, String>>>,
}

impl Spool {
    pub(crate) fn new(sender: Sender, records: u64) -> Spool {
        let records = sender.readings(1..=records).into_iter().collect();
        Spool { sender, records: Arc::new(Mutex::new(records)) }
    }

    /// Sends what is not acked, in batches, without waiting.
    pub(crate) fn send(&self, device: &Device, batch: usize) {
        if let Some(ack) = device.last_ack() {
            self.records.lock().unwrap().retain(|seq, _| !ack.covers(*seq));
        }
        let records: Vec<(u64, String)> =
            self.records.lock().unwrap().iter().map(|(seq, event)| (*seq, event.clone())).collect();
        for part in records.chunks(batch) {
            let part = part.iter().map(|(seq, event)| (*seq, event.as_bytes()));
            device.throw(&self.sender.topic("backfill"), encode(self.sender.epoch, part, &[]));
        }
    }

    /// Sends again and again until all is acked.
    pub(crate) async fn drain(&self, device: &Device, batch: usize, last: u64) {
        let drained = async {
            loop {
                self.send(device, batch);
                let mut acks = device.acks.clone();
                let all = acks.wait_for(|ack| ack.as_ref().is_some_and(|a| a.acked_seq >= last));
                if tokio::time::timeout(std::time::Duration::from_millis(500), all).await.is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, drained).await.expect("everything is acked at last");
    }
}
