//! A dead-letter topic, as an operator reads it.
//!
//! A topic is a log: reading changes nothing, and a dead letter goes when its retention is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, DefaultConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use super::admin::AdminError;
use super::cluster::Cluster;
use super::record::read_letter;
use crate::{DeadLetter, Filter, Position};

/// Reading a topic ends after this time, whatever is left of it.
const READ_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);
/// The client library wants a name; the group is never joined.
const READER: &str = "holdfast-dead-letters";

/// A topic with messages that were given up.
#[derive(Debug, Clone)]
pub struct DeadLetterTopic {
    cluster: Cluster,
    topic: Arc<str>,
}

impl DeadLetterTopic {
    /// The dead letters in `topic`.
    pub fn new(cluster: Cluster, topic: &str) -> DeadLetterTopic {
        DeadLetterTopic { cluster, topic: topic.into() }
    }

    /// Reads up to `limit` dead letters that match, each with the place of its original where that is known. Those of one
    /// partition are in order, oldest first.
    pub async fn list(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(DeadLetter, Option<Position>)>, AdminError> {
        let (this, filter) = (self.clone(), filter.clone());
        let reading = tokio::task::spawn_blocking(move || this.read(&filter, limit));
        reading.await.unwrap_or(Err(AdminError::Ending))
    }

    fn read(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(DeadLetter, Option<Position>)>, AdminError> {
        let mut config = self.cluster.config(READER);
        config.set("group.id", READER).set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "earliest");
        let client = BaseConsumer::from_config_and_context(&config, DefaultConsumerContext)?;
        let metadata = client.fetch_metadata(Some(&self.topic), ANSWER_WITHIN)?;
        let partitions: BTreeSet<i32> = metadata
            .topics()
            .iter()
            .filter(|topic| topic.name() == &*self.topic)
            .flat_map(|topic| topic.partitions().iter().map(|partition| partition.id()))
            .collect();
        if partitions.is_empty() {
            return Err(AdminError::NoTopic(self.topic.to_string()));
        }
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in &partitions {
            list.add_partition_offset(&self.topic, *partition, Offset::Beginning)?;
        }
        client.assign(&list)?;
        let mut open = partitions;
        let mut letters = Vec::new();
        let deadline = Instant::now() + READ_WITHIN;
        while !open.is_empty() && letters.len() < limit {
            if Instant::now() >= deadline {
                return Err(AdminError::TooLate { what: "reading the dead letters" });
            }
            match client.poll(POLL) {
                None => {}
                Some(Ok(record)) if open.contains(&record.partition()) => {
                    let (letter, position) = read_letter(&record);
                    if filter.matches(&letter) {
                        letters.push((letter, position));
                    }
                }
                // Written after this partition was read to its end.
                Some(Ok(_)) => {}
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    open.remove(&partition);
                }
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Ok(letters)
    }
}
