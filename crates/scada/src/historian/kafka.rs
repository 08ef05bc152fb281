//! The historian as a member of a consumer group on Kafka.
//!
//! Promise: a partition goes on where the transaction that stored its last batch says, whatever Kafka's own offsets are; one that is
//! not known there starts at the earliest. Dead letters are confirmed in `scada.l2.dlq` before that transaction (`consume`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::kafka::{
    Cluster, ConsumerOptions, Group, KafkaConsumer, KafkaPublisher, Offsets, PartitionId,
    PublisherOptions, StoredOffsets,
};
use bus::{Consumer, Retry};
use event::names::kafka::Topic;
use futures_util::future::BoxFuture;

use super::metrics::Metrics;
use super::offsets::{self, Partition};
use super::topology::bindings;

const NAME: &str = "holdfast-historian";
/// Waiting messages, as batches: one is being stored while the next ones are fetched.
const BATCHES_AHEAD: usize = 4;

/// What the historian was told about Kafka.
#[derive(Debug, Clone)]
pub struct KafkaBus {
    /// The cluster.
    pub cluster: Cluster,
    /// The same cluster as somebody who may read dead letters and send them back, where the historian itself may not.
    pub operator: Option<Cluster>,
    /// After this time without a sign of life a replica's partitions are given to others.
    pub session_timeout: Duration,
}

/// Where partitions go on, as the historian's own transactions say.
struct OwnOffsets {
    pool: pg::Pool,
    group: String,
}

impl StoredOffsets for OwnOffsets {
    fn load<'a>(
        &'a self,
        partitions: &'a [PartitionId],
    ) -> BoxFuture<'a, Result<BTreeMap<PartitionId, i64>, String>> {
        Box::pin(async move {
            let asked: Vec<Partition> =
                partitions.iter().map(|(topic, number)| (topic.to_string(), *number)).collect();
            let found = offsets::load(&self.pool, &self.group, &asked).await;
            let found = found.map_err(|error| error.to_string())?;
            let known = |((topic, number), next): (Partition, i64)| ((topic.into(), number), next);
            Ok(found.into_iter().map(known).collect())
        })
    }
}

/// Makes consumers of the group, one after the other.
pub(super) fn consumers(
    bus: KafkaBus,
    group: String,
    batch: usize,
    pool: pg::Pool,
    metrics: &Metrics,
) -> impl FnMut() -> Option<Box<dyn Consumer>> + Send + 'static {
    let copies = Arc::new(KafkaPublisher::new(
        bus.cluster.clone(),
        PublisherOptions {
            name: NAME.to_owned(),
            metrics: metrics.bus.clone(),
            ..PublisherOptions::default()
        },
    ));
    let stored: Arc<dyn StoredOffsets> = Arc::new(OwnOffsets { pool, group: group.clone() });
    let group = Group {
        name: group,
        bindings: bindings(),
        dead_letter_topic: Topic::Dlq.name().to_owned(),
        retry: Retry::broker(),
    };
    let metrics = metrics.bus.clone();
    move || {
        let options = ConsumerOptions {
            name: NAME.to_owned(),
            offsets: Offsets::Stored(Arc::clone(&stored)),
            prefetch: batch.saturating_mul(BATCHES_AHEAD),
            batch,
            session_timeout: bus.session_timeout,
            metrics: metrics.clone(),
            ..ConsumerOptions::default()
        };
        let copies = Arc::clone(&copies);
        Some(Box::new(KafkaConsumer::new(&bus.cluster, group.clone(), copies, options)))
    }
}
