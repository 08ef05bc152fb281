//! Topics, compared with what is wanted and made so.
//!
//! Users and access rules are not here: the client library has no safe call for them, and `docs/spec/bus.md` says how an operator sets
//! them.
//!
//! The six topics of SCADA are in `event::names::kafka::Profile::topics`, each with what [`TopicSpec`] wants to know.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use bus::kafka::{Cluster, admin};
//!
//! let cluster = Cluster::parse("127.0.0.1:9092")?;
//! let wanted = [admin::TopicSpec::new("scada.l2.events", 200, 3)
//!     .min_in_sync(2)
//!     .retention(Duration::from_secs(30 * 24 * 3600))
//!     .segment(Duration::from_secs(6 * 3600))];
//! for drift in admin::diff(&cluster, &wanted).await? {
//!     eprintln!("{drift}");
//! }
//! let applied = admin::apply(&cluster, &wanted).await?;
//! assert!(applied.left.is_empty(), "what only an operator can change");
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic,
    ResourceSpecifier, TopicReplication,
};
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, DefaultConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use super::cluster::{Cluster, is_topic, words};
use super::events::Watched;

const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Making a thousand partitions takes a small cluster some seconds.
const DONE_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
const NAME: &str = "holdfast-admin";

const RETENTION: &str = "retention.ms";
const SEGMENT: &str = "segment.ms";
const MIN_IN_SYNC: &str = "min.insync.replicas";

/// Why topics could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The cluster could not be asked, or it refused.
    #[error("{0}")]
    Cluster(std::sync::Arc<str>),
    /// The cluster refused a change.
    #[error("topic {topic}: {code}")]
    Refused {
        /// The topic.
        topic: String,
        /// What the cluster says.
        code: Code,
    },
    /// The name is none.
    #[error("{0:?} is no name of a topic")]
    Name(String),
    /// There is no such topic.
    #[error("there is no topic {0}")]
    NoTopic(String),
    /// More dead letters were replayed than a look can remember.
    #[error("the topic has too many marks of replayed dead letters: wait for its retention")]
    TooManyMarks,
    /// It took too long.
    #[error("{what} took too long")]
    TooLate {
        /// What did.
        what: &'static str,
    },
    /// The process is ending.
    #[error("the process is ending")]
    Ending,
}

impl From<KafkaError> for AdminError {
    fn from(error: KafkaError) -> AdminError {
        AdminError::Cluster(words(&error))
    }
}

/// A topic as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    name: String,
    partitions: usize,
    replication: usize,
    settings: BTreeMap<&'static str, String>,
}

impl TopicSpec {
    /// A topic with so many partitions and copies of each, and the cluster's own settings.
    pub fn new(name: impl Into<String>, partitions: usize, replication: usize) -> TopicSpec {
        TopicSpec { name: name.into(), partitions, replication, settings: BTreeMap::new() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long messages are kept.
    pub fn retention(self, time: Duration) -> TopicSpec {
        self.set(RETENTION, time.as_millis().to_string())
    }

    /// How long a segment is written.
    pub fn segment(self, time: Duration) -> TopicSpec {
        self.set(SEGMENT, time.as_millis().to_string())
    }

    /// How many copies must be written before a message is confirmed.
    pub fn min_in_sync(self, copies: usize) -> TopicSpec {
        self.set(MIN_IN_SYNC, copies.to_string())
    }

    /// Any other setting of a topic, under Kafka's name for it.
    pub fn set(mut self, name: &'static str, value: String) -> TopicSpec {
        self.settings.insert(name, value);
        self
    }
}

/// What is different about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// It is not there.
    Missing,
    /// Another number of partitions. They can be added, and not taken away.
    Partitions {
        /// There are so many.
        is: usize,
        /// So many should be.
        wanted: usize,
    },
    /// Another number of copies. Only an operator changes it, by moving data.
    Replication {
        /// There are so many.
        is: usize,
        /// So many should be.
        wanted: usize,
    },
    /// Another setting.
    Setting {
        /// Kafka's name for it.
        name: &'static str,
        /// What it is.
        is: String,
        /// What it should be.
        wanted: String,
    },
}

/// A topic that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The topic.
    pub topic: String,
    /// In what.
    pub difference: Difference,
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let topic = &self.topic;
        match &self.difference {
            Difference::Missing => write!(f, "{topic}: is missing"),
            Difference::Partitions { is, wanted } => {
                write!(f, "{topic}: {is} partitions instead of {wanted}")
            }
            Difference::Replication { is, wanted } => {
                write!(f, "{topic}: {is} replicas instead of {wanted}")
            }
            Difference::Setting { name, is, wanted } => {
                write!(f, "{topic}: {name} is {is} instead of {wanted}")
            }
        }
    }
}

impl Difference {
    /// True when making it as it is wanted deletes messages: a shorter time to keep them.
    fn deletes(&self) -> bool {
        let Difference::Setting { name: RETENTION, is, wanted } = self else { return false };
        // Below zero is for ever.
        let time = |text: &str| text.parse::<i64>().ok().filter(|ms| *ms >= 0);
        match (time(is), time(wanted)) {
            (Some(is), Some(wanted)) => wanted < is,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// What [`apply`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was different and is no more.
    pub changed: Vec<Drift>,
    /// What only an operator can change.
    pub left: Vec<Drift>,
}

/// Compares topics with what is wanted and changes nothing.
pub async fn diff(cluster: &Cluster, wanted: &[TopicSpec]) -> Result<Vec<Drift>, AdminError> {
    let client = client(cluster)?;
    let there = there(&client, wanted).await?;
    let mut drifts = Vec::new();
    for spec in wanted {
        let mut differs = |difference| drifts.push(Drift { topic: spec.name.clone(), difference });
        let Some((partitions, replication)) = there.get(spec.name.as_str()).copied() else {
            differs(Difference::Missing);
            continue;
        };
        if partitions != spec.partitions {
            differs(Difference::Partitions { is: partitions, wanted: spec.partitions });
        }
        if replication != spec.replication {
            differs(Difference::Replication { is: replication, wanted: spec.replication });
        }
        if spec.settings.is_empty() {
            continue;
        }
        let current = settings(&client, &spec.name).await?;
        for (name, wanted) in &spec.settings {
            let is = current.get(*name).map(|(value, _)| value.clone()).unwrap_or_default();
            if is != *wanted {
                differs(Difference::Setting { name, is, wanted: wanted.clone() });
            }
        }
    }
    Ok(drifts)
}

/// Makes topics as they are wanted. Done twice it changes nothing the second time. It never deletes: partitions that are too many and
/// messages that are kept for too long are left.
pub async fn apply(cluster: &Cluster, wanted: &[TopicSpec]) -> Result<Applied, AdminError> {
    let mut applied = Applied::default();
    let client = client(cluster)?;
    let drifts = diff(cluster, wanted).await?;
    for spec in wanted {
        let own = || drifts.iter().filter(|drift| drift.topic == spec.name);
        let mut alter = false;
        for drift in own() {
            match &drift.difference {
                Difference::Missing => create(&client, spec).await?,
                Difference::Partitions { is, wanted } if wanted > is => {
                    let more = NewPartitions::new(&spec.name, spec.partitions);
                    done(client.create_partitions([&more], &options()).await?)?;
                }
                Difference::Setting { .. } if !drift.difference.deletes() => alter = true,
                Difference::Setting { .. }
                | Difference::Partitions { .. }
                | Difference::Replication { .. } => {
                    applied.left.push(drift.clone());
                    continue;
                }
            }
            applied.changed.push(drift.clone());
        }
        if alter {
            let mut wanted = spec.settings.clone();
            for drift in own().filter(|drift| drift.difference.deletes()) {
                if let Difference::Setting { name, is, .. } = &drift.difference {
                    wanted.insert(name, is.clone());
                }
            }
            alter_settings(&client, &spec.name, &wanted).await?;
        }
    }
    wait_until_there(&client, wanted).await?;
    Ok(applied)
}

/// The first offset of each partition of a topic whose message is of `at` or later; the end where there is none. For a replay.
pub async fn offsets_at(
    cluster: &Cluster,
    topic: &str,
    at: Timestamp,
) -> Result<BTreeMap<i32, i64>, AdminError> {
    let config = cluster.config(NAME);
    let (topic, ms) = (topic.to_owned(), at.as_millisecond());
    let asking = tokio::task::spawn_blocking(move || {
        let client = BaseConsumer::from_config_and_context(&config, DefaultConsumerContext)?;
        let metadata = client.fetch_metadata(Some(&topic), ANSWER_WITHIN)?;
        let mut list = TopicPartitionList::new();
        for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
            list.add_partition_offset(&topic, partition.id(), Offset::Offset(ms))?;
        }
        if list.count() == 0 {
            return Err(AdminError::NoTopic(topic));
        }
        let mut offsets = BTreeMap::new();
        for one in client.offsets_for_times(list, ANSWER_WITHIN)?.elements() {
            let offset = match one.offset() {
                Offset::Offset(offset) => offset,
                _ => client.fetch_watermarks(&topic, one.partition(), ANSWER_WITHIN)?.1,
            };
            offsets.insert(one.partition(), offset);
        }
        Ok(offsets)
    });
    asking.await.unwrap_or(Err(AdminError::Ending))
}

type Client = std::sync::Arc<AdminClient<Watched>>;

fn client(cluster: &Cluster) -> Result<Client, AdminError> {
    let config = cluster.config(NAME);
    Ok(AdminClient::from_config_and_context(&config, Watched::default())?.into())
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(DONE_WITHIN)).operation_timeout(Some(DONE_WITHIN))
}

/// Partitions and replicas of those of the topics that are there.
async fn there(
    client: &Client,
    wanted: &[TopicSpec],
) -> Result<BTreeMap<String, (usize, usize)>, AdminError> {
    if let Some(spec) = wanted.iter().find(|spec| !is_topic(&spec.name)) {
        return Err(AdminError::Name(spec.name.clone()));
    }
    let client = std::sync::Arc::clone(client);
    let asking = tokio::task::spawn_blocking(move || {
        let watched = std::sync::Arc::clone(client.inner().context());
        client.inner().fetch_metadata(None, ANSWER_WITHIN).map_err(|error| {
            // Why no broker answered says more than that none did.
            watched.health.down().map_or_else(|| error.into(), |(_, why)| AdminError::Cluster(why))
        })
    });
    let metadata = asking.await.unwrap_or(Err(AdminError::Ending))?;
    let topics = metadata.topics().iter().filter(|topic| topic.error().is_none());
    let known = topics.map(|topic| {
        // One without a leader is not there yet.
        let led = topic.partitions().iter().filter(|partition| partition.leader() >= 0);
        let copies = topic.partitions().iter().map(|one| one.replicas().len()).max();
        (topic.name().to_owned(), (led.count(), copies.unwrap_or_default()))
    });
    Ok(known.collect())
}

/// The settings of a topic, and whether they are the topic's own.
async fn settings(
    client: &Client,
    topic: &str,
) -> Result<BTreeMap<String, (String, bool)>, AdminError> {
    let resource = ResourceSpecifier::Topic(topic);
    let described = client.describe_configs([&resource], &options()).await?;
    let mut settings = BTreeMap::new();
    for resource in described {
        let resource =
            resource.map_err(|code| AdminError::Refused { topic: topic.to_owned(), code })?;
        for entry in resource.entries {
            let own = entry.source == ConfigSource::DynamicTopic;
            settings.insert(entry.name, (entry.value.unwrap_or_default(), own));
        }
    }
    Ok(settings)
}

async fn create(client: &Client, spec: &TopicSpec) -> Result<(), AdminError> {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let replication = TopicReplication::Fixed(number(spec.replication));
    let mut topic = NewTopic::new(&spec.name, number(spec.partitions), replication);
    for (name, value) in &spec.settings {
        topic = topic.set(name, value);
    }
    let results = client.create_topics([&topic], &options()).await?;
    match results.into_iter().next() {
        // Somebody was quicker.
        Some(Err((_, Code::TopicAlreadyExists))) => Ok(()),
        other => done(other),
    }
}

/// The call replaces all settings of a topic, so those that it has beside ours are given again.
async fn alter_settings(
    client: &Client,
    topic: &str,
    wanted: &BTreeMap<&'static str, String>,
) -> Result<(), AdminError> {
    let current = settings(client, topic).await?;
    let mut alter = AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (name, (value, own)) in &current {
        if *own && !wanted.contains_key(name.as_str()) {
            alter = alter.set(name, value);
        }
    }
    for (name, value) in wanted {
        alter = alter.set(name, value);
    }
    let altered = client.alter_configs([&alter], &options()).await?;
    for one in altered {
        one.map_err(|(_, code)| AdminError::Refused { topic: topic.to_owned(), code })?;
    }
    Ok(())
}

fn done(
    results: impl IntoIterator<Item = Result<String, (String, Code)>>,
) -> Result<(), AdminError> {
    for result in results {
        result.map_err(|(topic, code)| AdminError::Refused { topic, code })?;
    }
    Ok(())
}

/// A topic that was made is known to every broker a moment later.
async fn wait_until_there(client: &Client, wanted: &[TopicSpec]) -> Result<(), AdminError> {
    let deadline = tokio::time::Instant::now() + DONE_WITHIN;
    loop {
        let there = there(client, wanted).await?;
        let ready = |spec: &TopicSpec| {
            there.get(&spec.name).is_some_and(|(partitions, _)| *partitions >= spec.partitions)
        };
        // Too many partitions stay too many; too few are being made.
        if wanted.iter().all(ready) {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(AdminError::TooLate { what: "making topics" });
        }
        tokio::time::sleep(LOOK).await;
    }
}
