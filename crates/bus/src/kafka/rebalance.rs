//! What happens when the group gives partitions and takes them. It runs on the consumer's own thread, inside a poll.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use super::cluster::words;
use super::consumer::{Offsets, Shared};
use super::events::Watched;
use super::partitions::PartitionId;

/// How long batches in hand may still be committed when their partitions are taken away.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to learn stored offsets, and how often a wait looks whether the consumer is closing.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Rebalances {
    pub(crate) shared: Arc<Shared>,
    pub(crate) watched: Watched,
}

impl ClientContext for Rebalances {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watched.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watched.error(error, reason);
    }
}

impl ConsumerContext for Rebalances {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let ids = ids(list);
        let group = &self.shared.group.name;
        let done = match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                tracing::info!(%group, partitions = ids.len(), "partitions assigned");
                self.start_at_stored(&ids, list);
                self.shared.state().partitions.assign(ids);
                consumer.incremental_assign(list)
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                let lost = consumer.assignment_lost();
                tracing::info!(%group, partitions = ids.len(), lost, "partitions revoked");
                self.leave(consumer, &ids, lost);
                self.shared.state().partitions.revoke(&ids);
                consumer.incremental_unassign(list)
            }
            _ => return,
        };
        if let Err(error) = done {
            // The group moves on without us and assigns again.
            tracing::warn!(%group, error = %words(&error), "a rebalance was not taken up");
        }
        self.shared.changed.notify_one();
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(error = %words(&error), "offsets not taken; they go with the next commit");
            let mut state = self.shared.state();
            for id in ids(offsets) {
                state.partitions.uncommitted(&id);
            }
        }
    }
}

impl Rebalances {
    /// Sets the offsets that the caller has stored. Without them nothing could be delivered rightly, so it asks until it knows.
    fn start_at_stored(&self, ids: &[PartitionId], list: &mut TopicPartitionList) {
        let Offsets::Stored(stored) = &self.shared.offsets else { return };
        let group = &self.shared.group.name;
        while !self.shared.is_closing() {
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let (stored, asked) = (Arc::clone(stored), ids.to_vec());
            self.shared.runtime.spawn(async move {
                let _ = tell.send(stored.load(&asked).await);
            });
            let answer = loop {
                match told.recv_timeout(PAUSE) {
                    Err(RecvTimeoutError::Timeout) if !self.shared.is_closing() => {}
                    Err(_) => break Err("the consumer is closing".to_owned()),
                    Ok(answer) => break answer,
                }
            };
            match answer {
                Ok(offsets) => {
                    for (topic, partition) in ids {
                        let known = offsets.get(&(Arc::clone(topic), *partition));
                        let from =
                            known.map_or(Offset::Beginning, |offset| Offset::Offset(*offset));
                        // The partition is in the list, and the offset is one.
                        let _ = list.set_partition_offset(topic, *partition, from);
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(%group, %error, "stored offsets cannot be read; asking again");
                    self.shared.pause(PAUSE);
                }
            }
        }
    }

    /// Lets batches in hand be committed, and commits. Of what was lost already nothing can be committed.
    fn leave(&self, consumer: &BaseConsumer<Self>, ids: &[PartitionId], lost: bool) {
        let mut state = self.shared.state();
        state.partitions.leave(ids);
        let deadline = Instant::now() + LEAVE_PATIENCE;
        while !lost && !self.shared.is_closing() && state.partitions.in_hand(ids) > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait_settled(state, left.min(PAUSE));
        }
        let offsets = state.partitions.to_commit(Some(ids));
        drop(state);
        if lost || offsets.is_empty() {
            return;
        }
        if let Err(error) = consumer.commit(&list_of(&offsets), CommitMode::Sync) {
            let group = &self.shared.group.name;
            tracing::info!(%group, error = %words(&error), "last offsets not taken; messages come again");
        }
    }
}

fn ids(list: &TopicPartitionList) -> Vec<PartitionId> {
    list.elements().iter().map(|one| (Arc::from(one.topic()), one.partition())).collect()
}

/// Offsets as the client library wants them.
pub(crate) fn list_of(offsets: &[(PartitionId, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), offset) in offsets {
        // An offset of a message is one.
        let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
    }
    list
}

/// Partitions as the client library wants them.
pub(crate) fn list_of_ids(ids: &[PartitionId]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(ids.len());
    for (topic, partition) in ids {
        list.add_partition(topic, *partition);
    }
    list
}
