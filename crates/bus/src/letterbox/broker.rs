//! The dead letters of a broker: all queues of a RabbitMQ, or all topics of a Kafka, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Letterbox, LetterboxError, Tell};
use crate::rabbitmq::{Address, DeadLetterQueue, PublisherOptions, RabbitPublisher};
use crate::{Filter, Listing, Progress, ReplayOptions, Replayed};

/// The dead letters of a broker.
#[derive(Debug, Clone)]
pub struct BrokerLetterbox {
    broker: Broker,
    /// Queues or topics.
    names: BTreeSet<String>,
}

#[derive(Debug, Clone)]
enum Broker {
    RabbitMq(Address),
    #[cfg(feature = "kafka")]
    Kafka(crate::kafka::Cluster),
}

/// What publishes a letter again; it connects at the first.
enum Sender {
    RabbitMq(RabbitPublisher),
    #[cfg(feature = "kafka")]
    Kafka(crate::kafka::KafkaPublisher),
}

impl BrokerLetterbox {
    /// The dead letters in these queues of a RabbitMQ.
    pub fn rabbitmq(address: Address, queues: BTreeSet<String>) -> BrokerLetterbox {
        BrokerLetterbox { broker: Broker::RabbitMq(address), names: queues }
    }

    /// The dead letters in these topics of a Kafka.
    #[cfg(feature = "kafka")]
    pub fn kafka(cluster: crate::kafka::Cluster, topics: BTreeSet<String>) -> BrokerLetterbox {
        BrokerLetterbox { broker: Broker::Kafka(cluster), names: topics }
    }

    /// The broker, in a word.
    pub fn bus(&self) -> &'static str {
        match self.broker {
            Broker::RabbitMq(_) => "rabbitmq",
            #[cfg(feature = "kafka")]
            Broker::Kafka(_) => "kafka",
        }
    }

    /// The same, each queue or topic by itself.
    pub fn each(&self) -> Vec<Arc<dyn Letterbox>> {
        let one = |name: &String| BrokerLetterbox {
            broker: self.broker.clone(),
            names: [name.clone()].into(),
        };
        self.names.iter().map(|name| Arc::new(one(name)) as Arc<dyn Letterbox>).collect()
    }

    async fn list_all(&self, filter: &Filter, limit: usize) -> Result<Listing, LetterboxError> {
        let mut all = Listing::default();
        for name in &self.names {
            let left = limit.saturating_sub(all.letters.len());
            let found = self.list_one(name, filter, left).await?;
            all.scanned += found.scanned;
            all.total += found.total;
            all.letters.extend(found.letters);
        }
        Ok(all)
    }

    async fn list_one(
        &self,
        name: &str,
        filter: &Filter,
        limit: usize,
    ) -> Result<Listing, LetterboxError> {
        match &self.broker {
            Broker::RabbitMq(address) => {
                let queue = DeadLetterQueue::new(address.clone(), name);
                queue.list(filter, limit).await.map_err(|source| in_queue(name, source))
            }
            #[cfg(feature = "kafka")]
            Broker::Kafka(cluster) => {
                let topic = crate::kafka::DeadLetterTopic::new(cluster.clone(), name);
                topic.listing(filter, limit).await.map_err(|source| in_topic(name, source))
            }
        }
    }

    async fn replay_all(
        &self,
        options: &ReplayOptions,
        tell: &Tell<'_>,
    ) -> Result<Replayed, LetterboxError> {
        let sender = self.sender();
        let (mut all, mut total) = (Replayed::default(), 0);
        for name in &self.names {
            let left = options.limit.saturating_sub(all.replayed.len());
            if left == 0 {
                break;
            }
            let part = ReplayOptions { limit: left, ..options.clone() };
            let before = Progress::of(total, &all);
            let of_one = std::sync::atomic::AtomicU64::new(0);
            let tell_one = |there: u64, report: &Replayed| {
                of_one.store(there, std::sync::atomic::Ordering::Relaxed);
                tell(before.and(Progress::of(there, report)));
            };
            let report = self.replay_one(name, &sender, &part, &tell_one).await?;
            total += of_one.into_inner().max(report.scanned);
            all.scanned += report.scanned;
            all.replayed.extend(report.replayed);
            all.kept.extend(report.kept);
            tell(Progress::of(total, &all));
        }
        Ok(all)
    }

    async fn replay_one(
        &self,
        name: &str,
        sender: &Sender,
        options: &ReplayOptions,
        tell: &(dyn Fn(u64, &Replayed) + Send + Sync),
    ) -> Result<Replayed, LetterboxError> {
        match (&self.broker, sender) {
            (Broker::RabbitMq(address), Sender::RabbitMq(publisher)) => {
                let queue = DeadLetterQueue::new(address.clone(), name);
                let report = queue.replay_telling(publisher, options, tell).await;
                report.map_err(|source| in_queue(name, source))
            }
            #[cfg(feature = "kafka")]
            (Broker::Kafka(cluster), Sender::Kafka(publisher)) => {
                let topic = crate::kafka::DeadLetterTopic::new(cluster.clone(), name);
                let report = topic.replay(publisher, options, tell).await;
                report.map_err(|source| in_topic(name, source))
            }
            // The sender is made for the broker.
            #[cfg(feature = "kafka")]
            _ => Ok(Replayed::default()),
        }
    }

    fn sender(&self) -> Sender {
        match &self.broker {
            Broker::RabbitMq(address) => {
                let options =
                    PublisherOptions { name: "holdfast dlq".to_owned(), ..Default::default() };
                Sender::RabbitMq(RabbitPublisher::new(address.clone(), options))
            }
            #[cfg(feature = "kafka")]
            Broker::Kafka(cluster) => {
                let options = crate::kafka::PublisherOptions {
                    name: "holdfast-dlq".to_owned(),
                    ..Default::default()
                };
                Sender::Kafka(crate::kafka::KafkaPublisher::new(cluster.clone(), options))
            }
        }
    }
}

fn in_queue(queue: &str, source: crate::rabbitmq::TopologyError) -> LetterboxError {
    LetterboxError::Queue { queue: queue.to_owned(), source }
}

#[cfg(feature = "kafka")]
fn in_topic(topic: &str, source: crate::kafka::admin::AdminError) -> LetterboxError {
    LetterboxError::Topic { topic: topic.to_owned(), source }
}

impl Letterbox for BrokerLetterbox {
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listing, LetterboxError>> {
        Box::pin(self.list_all(filter, limit))
    }

    fn replay<'a>(
        &'a self,
        options: &'a ReplayOptions,
        tell: &'a Tell<'a>,
    ) -> BoxFuture<'a, Result<Replayed, LetterboxError>> {
        Box::pin(self.replay_all(options, tell))
    }
}
