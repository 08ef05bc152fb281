//! The line over Kafka: an exchange is a topic, a queue is a consumer group whose offsets Kafka keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::kafka::{
    Cluster, ConsumerOptions, Group, KafkaConsumer, KafkaPublisher, LagProbe, PublisherOptions,
    admin,
};
use bus::rabbitmq::WorkQueue;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{BUS, Line, Make, PAUSE, look};
use crate::behind::Ask;
use crate::cloud::work::Work;
use crate::config::KafkaBus;

impl Line {
    pub(super) async fn run_kafka(self, bus: KafkaBus, stop: CancellationToken) {
        self.readiness.report(BUS, Err("has not been reached yet".to_owned()));
        if bus.declare {
            tokio::select! {
                () = self.make_topics(&bus) => {}
                () = stop.cancelled() => return,
            }
        }
        let options = PublisherOptions {
            name: "holdfast-relay".to_owned(),
            metrics: self.metrics.bus.clone(),
            ..PublisherOptions::default()
        };
        let publisher = Arc::new(KafkaPublisher::new(bus.cluster.clone(), options));
        let looked = Arc::clone(&publisher);
        let look = tokio::spawn(look(self.readiness.clone(), move || {
            let looked = Arc::clone(&looked);
            async move { looked.ready().await.is_ok() }
        }));
        let made =
            |work: &Work| Some((work.clone(), self.consumers(work, &bus.cluster, &publisher)?));
        let groups: Vec<(Work, Make)> = self.own_works().filter_map(made).collect();
        let group = |queue: &WorkQueue| {
            let topics = queue.bindings.iter().map(|binding| binding.exchange.clone());
            (queue.name.clone(), topics.collect::<BTreeSet<String>>())
        };
        let groups_of = self.topology.queues.iter().map(group).collect();
        let probe = Arc::new(Mutex::new(LagProbe::new(bus.cluster.clone(), groups_of)));
        let ask: Ask = Box::new(move || {
            let probe = Arc::clone(&probe);
            Box::pin(
                async move { probe.lock().await.look().await.map_err(|error| error.to_string()) },
            )
        });
        self.carry(publisher, groups, ask, stop).await;
        look.abort();
    }

    fn consumers(
        &self,
        work: &Work,
        cluster: &Cluster,
        copies: &Arc<KafkaPublisher>,
    ) -> Option<Make> {
        let queue = self.topology.queues.iter().find(|queue| queue.name == work.group.queue)?;
        let group = Group {
            name: queue.name.clone(),
            bindings: queue.bindings.clone(),
            dead_letter_topic: queue.dead_letter_queue.clone(),
            retry: queue.retry.clone(),
        };
        let options = ConsumerOptions {
            name: format!("holdfast-{}", work.group.service),
            metrics: self.metrics.bus.clone(),
            ..ConsumerOptions::default()
        };
        let (cluster, copies) = (cluster.clone(), Arc::clone(copies));
        Some(Box::new(move || {
            let (group, copies) = (group.clone(), Arc::clone(&copies));
            Some(Box::new(KafkaConsumer::new(&cluster, group, copies, options.clone())))
        }))
    }

    /// Makes the topics, however long the cluster is away. What is there with other settings stays as it is.
    async fn make_topics(&self, bus: &KafkaBus) {
        let queues = &self.topology.queues;
        let bound =
            queues.iter().flat_map(|queue| &queue.bindings).map(|one| one.exchange.as_str());
        let letters = queues.iter().map(|queue| queue.dead_letter_queue.as_str());
        let exchanges = self.topology.exchanges.iter().map(String::as_str);
        let names: BTreeSet<&str> = exchanges.chain(bound).chain(letters).collect();
        let topic = |name: &&str| admin::TopicSpec::new(*name, bus.partitions, bus.replication);
        let wanted: Vec<admin::TopicSpec> = names.iter().map(topic).collect();
        loop {
            match admin::apply(&bus.cluster, &wanted).await {
                Ok(applied) => {
                    for drift in applied.left {
                        tracing::warn!(%drift, "a topic is not as it should be");
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, pause = ?PAUSE, "topics could not be made");
                    self.readiness.report(BUS, Err("topics could not be made".to_owned()));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
