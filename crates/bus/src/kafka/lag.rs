//! How far groups are behind: the end of each partition less the group's offset, and how many members the group has.
//!
//! A client for each group is kept between looks: the library asks for offsets by the group that a client is configured with. None of them joins its group,
//! and none consumes. A partition without an offset is read from its beginning, and so it counts from there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, DefaultConsumerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::admin::AdminError;
use super::cluster::Cluster;
use crate::Depth;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const NAME: &str = "holdfast-lag";

/// Looks at groups again and again.
pub struct LagProbe {
    cluster: Cluster,
    groups: Vec<(String, BTreeSet<String>)>,
    clients: Vec<Arc<BaseConsumer>>,
}

impl std::fmt::Debug for LagProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LagProbe").field("groups", &self.groups).finish_non_exhaustive()
    }
}

impl LagProbe {
    /// For these groups, each with its topics. Nothing is asked yet.
    pub fn new(cluster: Cluster, groups: Vec<(String, BTreeSet<String>)>) -> LagProbe {
        LagProbe { cluster, groups, clients: Vec::new() }
    }

    /// Looks at each group, in the order given.
    pub async fn look(&mut self) -> Result<Vec<Depth>, AdminError> {
        while let Some((group, _)) = self.groups.get(self.clients.len()) {
            let mut config = self.cluster.config(NAME);
            config.set("group.id", group).set("enable.auto.commit", "false");
            let client = BaseConsumer::from_config_and_context(&config, DefaultConsumerContext)?;
            self.clients.push(Arc::new(client));
        }
        let mut depths = Vec::with_capacity(self.groups.len());
        for ((group, topics), client) in self.groups.iter().zip(&self.clients) {
            let (client, name, topics) = (Arc::clone(client), group.clone(), topics.clone());
            let looking = tokio::task::spawn_blocking(move || look(&client, name, &topics));
            depths.push(looking.await.unwrap_or(Err(AdminError::Ending))?);
        }
        Ok(depths)
    }
}

fn look(
    client: &BaseConsumer,
    name: String,
    topics: &BTreeSet<String>,
) -> Result<Depth, AdminError> {
    let mut partitions = TopicPartitionList::new();
    for topic in topics {
        let metadata = client.fetch_metadata(Some(topic), ANSWER_WITHIN)?;
        let found = metadata.topics().iter().filter(|found| found.name() == topic);
        let ids: Vec<i32> =
            found.flat_map(|found| found.partitions()).map(|one| one.id()).collect();
        if ids.is_empty() {
            return Err(AdminError::NoTopic(topic.clone()));
        }
        for id in ids {
            partitions.add_partition(topic, id);
        }
    }
    // One request to each broker gives the offsets of all of its partitions, and not one for each of them.
    let ends = at(client, &partitions, Offset::End)?;
    let firsts = at(client, &partitions, Offset::Beginning)?;
    let committed = client.committed_offsets(partitions, ANSWER_WITHIN)?;
    let mut waiting = 0;
    for end in ends.elements() {
        let Offset::Offset(last) = end.offset() else { continue };
        let place = (end.topic(), end.partition());
        let of = |list: &TopicPartitionList| match list.find_partition(place.0, place.1)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        // What retention has taken waits no more.
        let first = of(&firsts).unwrap_or(0);
        let next = of(&committed).map_or(first, |next| next.max(first));
        waiting += u64::try_from(last - next).unwrap_or(0);
    }
    let groups = client.fetch_group_list(Some(&name), ANSWER_WITHIN)?;
    let group = groups.groups().iter().find(|group| group.name() == name);
    let members = group.map_or(0, |group| group.members().len() as u64);
    Ok(Depth { name, waiting, consumers: Some(members) })
}

/// The first or the next offset of each partition.
fn at(
    client: &BaseConsumer,
    partitions: &TopicPartitionList,
    place: Offset,
) -> Result<TopicPartitionList, AdminError> {
    let mut asked = TopicPartitionList::with_capacity(partitions.count());
    for one in partitions.elements() {
        asked.add_partition_offset(one.topic(), one.partition(), place)?;
    }
    Ok(client.offsets_for_times(asked, ANSWER_WITHIN)?)
}
