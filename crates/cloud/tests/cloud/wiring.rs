//! A store for a test: what a consumer was given, kept once by id, as every real one does.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use bus::{Binding, Consumer, Message};
use cloud::Work;
use cloud::consume::Group;
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::site::LONG;

pub(crate) const TELEMETRY: &str = "farmiq.telemetry.exchange";

/// What a consumer stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
struct Stored {
    ids: HashSet<String>,
    messages: Vec<Message>,
    deliveries: usize,
}

impl Store {
    pub(crate) fn put(&self, message: &Message) {
        let mut stored = self.0.lock().unwrap();
        stored.deliveries += 1;
        if stored.ids.insert(message.message_id.clone()) {
            stored.messages.push(message.clone());
        }
    }

    /// How many different messages.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().messages.len()
    }

    /// How many, the same ones counted again.
    pub(crate) fn deliveries(&self) -> usize {
        self.0.lock().unwrap().deliveries
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.0.lock().unwrap().messages.clone()
    }

    pub(crate) async fn has(&self, count: usize) {
        eventually(LONG, "the consumer has all", async || {
            let len = self.len();
            if len >= count { Ok(()) } else { Err(len) }
        })
        .await
        .unwrap();
        assert_eq!(self.len(), count, "not one more");
    }

    /// The ids in the order they were first stored, by key.
    pub(crate) fn by_key(&self) -> BTreeMap<String, Vec<String>> {
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in self.messages() {
            keys.entry(message.key.unwrap_or_default()).or_default().push(message.message_id);
        }
        keys
    }

    /// Works on a group's messages into this store.
    pub(crate) fn work(&self, group: Group) -> Work {
        let store = self.clone();
        Work::new(group, move |consumer, _, stop| store.keep(consumer, stop))
    }

    /// Stores what the consumer gives, until told to stop or it is closed.
    pub(crate) fn keep(
        &self,
        mut consumer: Box<dyn Consumer>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let store = self.clone();
        async move {
            loop {
                let batch = tokio::select! {
                    batch = consumer.next() => batch,
                    () = stop.cancelled() => return,
                };
                let Ok(batch) = batch else { return };
                for delivery in batch.deliveries() {
                    store.put(&delivery.message);
                }
                // A commit that is lost means that they come again.
                let _ = batch.commit().await;
            }
        }
    }
}

/// The groups of the services: all telemetry, and a second one that wants readings too.
pub(crate) fn telemetry() -> Group {
    Group {
        service: "cloud-telemetry-service",
        queue: "farmiq.cloud-telemetry-service.ingest.queue".to_owned(),
        bindings: vec![Binding::new(TELEMETRY, "telemetry.#")],
    }
}

pub(crate) fn analytics() -> Group {
    Group {
        service: "cloud-analytics-service",
        queue: "farmiq.cloud-analytics-service.kpi.queue".to_owned(),
        bindings: vec![Binding::new(TELEMETRY, "telemetry.ingested")],
    }
}
