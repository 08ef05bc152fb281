//! Telling the broker and the node, after the commit and never before.
//!
//! A PUBACK goes to the connection that its message came by, or nowhere: every connection has a
//! client of its own, so that a packet number of an earlier connection can not acknowledge another
//! message. Acks are retained and best effort: a node that misses one sends again, and is
//! acknowledged again.

use std::sync::{Arc, Mutex, PoisonError};

use event::id::NodeId;
use event::names::Topic;
use event::wire::{Ack, Command};
use mqtt::rumqttc::{AsyncClient, ManualAck, PublishOptions, QoS};

use crate::metrics::Metrics;

/// The way back to the broker for one message.
#[derive(Debug)]
pub(crate) struct Puback {
    pub(crate) client: AsyncClient,
    pub(crate) packet: ManualAck,
}

impl Puback {
    /// Acknowledges. A connection that is gone needs none: its messages come again.
    pub(crate) async fn send(self) {
        let _ = self.client.manual_ack(self.packet).await;
    }
}

/// Where acks are published: the connection that is up now, if any.
#[derive(Debug)]
pub(crate) struct Uplink {
    client: Mutex<Option<AsyncClient>>,
    metrics: Arc<Metrics>,
}

impl Uplink {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Uplink {
        Uplink { client: Mutex::new(None), metrics }
    }

    pub(crate) fn set(&self, client: Option<AsyncClient>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Publishes acks without waiting: a broker that does not keep up must not hold up the next
    /// commit.
    pub(crate) fn publish(&self, acks: &[(NodeId, Ack)]) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (node, ack) in acks {
            let published = client.as_ref().is_some_and(|client| {
                let topic = Topic::Ack(node.clone()).to_string();
                let options = PublishOptions::new(QoS::AtLeastOnce).retained();
                client.try_publish(topic, ack.to_json(), options).is_ok()
            });
            self.metrics.ack(published);
        }
    }

    /// Asks a node for something, if there is a connection. Whoever asks asks again until it is done.
    pub(crate) fn command(&self, node: &NodeId, command: &Command) -> bool {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.is_some_and(|client| {
            let topic = Topic::Command(node.clone()).to_string();
            let options = PublishOptions::new(QoS::AtLeastOnce);
            client.try_publish(topic, command.to_json(), options).is_ok()
        })
    }
}
