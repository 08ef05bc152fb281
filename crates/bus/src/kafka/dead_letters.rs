//! A dead-letter topic, as an operator reads it.
//!
//! A topic is a log: reading changes nothing, and a dead letter goes when its retention is over. One that was replayed has a mark
//! further on in the same topic ([`super::replay`]), and is left out here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, DefaultConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use super::admin::AdminError;
use super::cluster::Cluster;
use super::record::{Entry, Place, read_entry};
use crate::{DeadLetter, Filter, Listing, Position};

/// Reading a topic ends after this time, whatever is left of it.
const READ_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);
/// The group by which dead letters are read. The client library wants one, and asks who coordinates it; it is never joined and has no
/// offsets.
pub const DEAD_LETTER_READER: &str = "holdfast-dead-letters";
/// The most marks of replayed letters that are remembered during a look.
const MAX_MARKS: usize = 1_000_000;
/// The most bytes of bodies that one look holds.
const MAX_HELD_BYTES: usize = 256 << 20;

/// A topic with messages that were given up.
#[derive(Debug, Clone)]
pub struct DeadLetterTopic {
    cluster: Cluster,
    pub(super) topic: Arc<str>,
}

/// A dead letter, and where it and its original are.
pub(super) struct Found {
    pub(super) letter: DeadLetter,
    /// Where the original is.
    pub(super) position: Option<Position>,
    pub(super) raw_key: Option<Bytes>,
    /// Where it is in its own topic; more than once where a consumer was killed between burying it and its transaction.
    pub(super) places: Vec<Place>,
}

/// What a look found.
#[derive(Default)]
pub(super) struct Look {
    pub(super) found: Vec<Found>,
    /// Those that were meant and cannot be replayed, when only such are asked for that can.
    pub(super) unknown: Vec<String>,
    pub(super) scanned: u64,
    pub(super) total: u64,
}

/// First and next offset of each partition, when the look began.
type Ends = BTreeMap<i32, (i64, i64)>;

impl DeadLetterTopic {
    /// The dead letters in `topic`.
    pub fn new(cluster: Cluster, topic: &str) -> DeadLetterTopic {
        DeadLetterTopic { cluster, topic: topic.into() }
    }

    /// Reads up to `limit` dead letters that match and were not replayed, each with the place of its original where that is known.
    /// Those of one partition are in order, oldest first.
    pub async fn list(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(DeadLetter, Option<Position>)>, AdminError> {
        let look = self.look(filter, limit, false).await?;
        Ok(look.found.into_iter().map(|found| (found.letter, found.position)).collect())
    }

    /// The same, with how much was looked at and how much there is.
    pub async fn listing(&self, filter: &Filter, limit: usize) -> Result<Listing, AdminError> {
        let Look { found, scanned, total, .. } = self.look(filter, limit, false).await?;
        let letters = found.into_iter().map(|found| found.letter).collect();
        Ok(Listing { letters, scanned, total })
    }

    pub(super) async fn look(
        &self,
        filter: &Filter,
        limit: usize,
        replayable: bool,
    ) -> Result<Look, AdminError> {
        let (this, filter) = (self.clone(), filter.clone());
        let reading = tokio::task::spawn_blocking(move || this.read(&filter, limit, replayable));
        reading.await.unwrap_or(Err(AdminError::Ending))
    }

    fn read(&self, filter: &Filter, limit: usize, replayable: bool) -> Result<Look, AdminError> {
        let deadline = Instant::now() + READ_WITHIN;
        let ends = self.ends()?;
        let (mut settled, mut letters) = (BTreeSet::new(), 0_u64);
        self.scan(&ends, deadline, |_, entry| {
            match entry {
                Entry::Letter(..) => letters += 1,
                Entry::Settles(place) => {
                    settled.insert(place);
                }
            }
            if settled.len() <= MAX_MARKS { Ok(()) } else { Err(AdminError::TooManyMarks) }
        })?;
        // Retention has taken others already.
        let there = |(partition, offset): &&Place| {
            ends.get(partition).is_some_and(|(first, end)| (first..end).contains(&offset))
        };
        let marked = settled.iter().filter(there).count() as u64;
        let mut look = Look { total: letters.saturating_sub(marked), ..Look::default() };
        let mut known = BTreeMap::new();
        let (mut bytes, mut full) = (0, limit == 0);
        self.scan(&ends, deadline, |place, entry| {
            let Entry::Letter(letter, position, raw_key) = entry else { return Ok(()) };
            if settled.contains(&place) {
                return Ok(());
            }
            look.scanned += u64::from(!full);
            let origin = letter.queue.clone().zip(position.clone());
            let origin = origin.map(|(queue, at)| (queue, at.topic, at.partition, at.offset));
            if let Some(at) = origin.as_ref().and_then(|origin| known.get(origin)) {
                let twice: &mut Found = &mut look.found[*at];
                twice.places.push(place);
                return Ok(());
            }
            if full || !filter.matches(&letter) {
                return Ok(());
            }
            match origin {
                Some(origin) => drop(known.insert(origin, look.found.len())),
                None if replayable => {
                    look.unknown.push(letter.message.message_id);
                    full = look.unknown.len() >= limit;
                    return Ok(());
                }
                None => {}
            }
            bytes += letter.message.body.len();
            look.found.push(Found { letter: *letter, position, raw_key, places: vec![place] });
            full = look.found.len() >= limit || bytes > MAX_HELD_BYTES;
            Ok(())
        })?;
        Ok(look)
    }

    fn client(&self) -> Result<BaseConsumer, AdminError> {
        let mut config = self.cluster.config(DEAD_LETTER_READER);
        config.set("group.id", DEAD_LETTER_READER).set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "earliest");
        Ok(BaseConsumer::from_config_and_context(&config, DefaultConsumerContext)?)
    }

    fn ends(&self) -> Result<Ends, AdminError> {
        let client = self.client()?;
        let metadata = client.fetch_metadata(Some(&self.topic), ANSWER_WITHIN)?;
        let topics = metadata.topics().iter().filter(|topic| topic.name() == &*self.topic);
        let mut ends = Ends::new();
        for partition in topics.flat_map(|topic| topic.partitions()) {
            let id = partition.id();
            ends.insert(id, client.fetch_watermarks(&self.topic, id, ANSWER_WITHIN)?);
        }
        if ends.is_empty() {
            return Err(AdminError::NoTopic(self.topic.to_string()));
        }
        Ok(ends)
    }

    /// Reads everything between the ends.
    fn scan(
        &self,
        ends: &Ends,
        deadline: Instant,
        mut each: impl FnMut(Place, Entry) -> Result<(), AdminError>,
    ) -> Result<(), AdminError> {
        let full = ends.iter().filter(|(_, (first, end))| first < end);
        let mut open: BTreeMap<i32, i64> = full.map(|(id, (_, end))| (*id, *end)).collect();
        let mut list = TopicPartitionList::with_capacity(open.len());
        for partition in open.keys() {
            list.add_partition_offset(&self.topic, *partition, Offset::Beginning)?;
        }
        let client = self.client()?;
        client.assign(&list)?;
        while !open.is_empty() {
            if Instant::now() >= deadline {
                return Err(AdminError::TooLate { what: "reading the dead letters" });
            }
            match client.poll(POLL) {
                None => {}
                Some(Ok(record)) => {
                    let (partition, offset) = (record.partition(), record.offset());
                    // What is written after the look began is not part of it.
                    let Some(end) = open.get(&partition).copied() else { continue };
                    if offset < end {
                        each((partition, offset), read_entry(&record))?;
                    }
                    if offset + 1 >= end {
                        open.remove(&partition);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    open.remove(&partition);
                }
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
