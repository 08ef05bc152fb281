//! A dead-letter queue as an operator works with it: looking at it without taking anything away.
//!
//! Messages are read without being acknowledged, on a channel of their own that is closed afterwards, by
//! which all of them go back to their place. While it is open, nobody else sees them.

use bytes::Bytes;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};

use super::address::{Address, words};
use super::answer::answer;
use super::declare::{TopologyError, soft};
use super::properties::Incoming;
use crate::{DeadLetter, Filter, Listing};

/// The most bytes of bodies that one look holds.
const MAX_HELD_BYTES: usize = 256 << 20;

/// A dead-letter queue.
#[derive(Debug, Clone)]
pub struct DeadLetterQueue {
    pub(crate) address: Address,
    pub(crate) queue: String,
}

impl DeadLetterQueue {
    /// The dead-letter queue of that name.
    pub fn new(address: Address, queue: impl Into<String>) -> DeadLetterQueue {
        DeadLetterQueue { address, queue: queue.into() }
    }

    /// Looks at the dead letters from the oldest on and returns those that are meant, up to `limit`. Takes
    /// nothing away.
    pub async fn list(&self, filter: &Filter, limit: usize) -> Result<Listing, TopologyError> {
        let reader = self.open().await?;
        let mut listing = Listing { total: reader.total, ..Listing::default() };
        let mut bytes = 0;
        while listing.scanned < reader.total && listing.letters.len() < limit {
            let Some((letter, _)) = reader.next().await? else { break };
            listing.scanned += 1;
            if filter.matches(&letter) {
                bytes += letter.message.body.len();
                listing.letters.push(letter);
            }
            if bytes > MAX_HELD_BYTES {
                break;
            }
        }
        reader.close().await;
        Ok(listing)
    }

    /// The dead letter with this id, if it is there.
    pub async fn show(&self, message_id: &str) -> Result<Option<DeadLetter>, TopologyError> {
        let message_ids = Some([message_id.to_owned()].into());
        let filter = Filter { message_ids, ..Filter::default() };
        Ok(self.list(&filter, 1).await?.letters.pop())
    }

    pub(crate) async fn open(&self) -> Result<Reader, TopologyError> {
        let connection = self
            .address
            .connect("holdfast dead letters")
            .await
            .map_err(TopologyError::Unreachable)?;
        let failed = |error: lapin::Error| self.failed(&error);
        let opened = async {
            let channel = connection.create_channel().await?;
            let options = QueueDeclareOptions { passive: true, ..Default::default() };
            let queue = self.queue.as_str().into();
            let found = channel.queue_declare(queue, options, FieldTable::default()).await?;
            Ok((channel, found.message_count().into()))
        };
        let opened = answer(|| connection.status().connected(), opened).await;
        let (channel, total) = opened.map_err(failed)?;
        Ok(Reader { _connection: connection, channel, dead_letters: self.clone(), total })
    }

    fn failed(&self, error: &lapin::Error) -> TopologyError {
        match soft(error) {
            Some(_) => TopologyError::Refused { name: self.queue.clone(), reason: words(error) },
            None => TopologyError::Unreachable(words(error)),
        }
    }
}

/// A channel on which dead letters are held.
pub(crate) struct Reader {
    /// Lives as long as the channel.
    _connection: Connection,
    channel: Channel,
    dead_letters: DeadLetterQueue,
    /// How many messages there were when it was opened.
    pub(crate) total: u64,
}

impl Reader {
    /// The next dead letter, with what is needed to move it.
    pub(crate) async fn next(&self) -> Result<Option<(DeadLetter, Taken)>, TopologyError> {
        let queue = self.dead_letters.queue.as_str().into();
        let got = self.ask(self.channel.basic_get(queue, BasicGetOptions::default())).await;
        let Some(BasicGetMessage { delivery, .. }) =
            got.map_err(|error| self.dead_letters.failed(&error))?
        else {
            return Ok(None);
        };
        let body = Bytes::from(delivery.data);
        let taken = Taken {
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            properties: delivery.properties,
            tag: delivery.delivery_tag,
        };
        Ok(Some((taken.incoming().dead_letter(body), taken)))
    }

    /// Gives back what is not acknowledged.
    pub(crate) async fn close(self) {
        // When this fails the connection is gone, and the broker has taken everything back.
        let _ = self.ask(self.channel.close(200, "messages given back".into())).await;
    }

    /// Takes a dead letter out of the queue. False: the queue still has it.
    pub(crate) async fn acknowledge(&self, taken: &Taken) -> bool {
        let ack = self.channel.basic_ack(taken.tag, BasicAckOptions::default());
        self.ask(ack).await.is_ok()
    }

    async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, lapin::Error> {
        answer(|| self.channel.status().connected(), asked).await
    }
}

/// A dead letter in hand.
pub(crate) struct Taken {
    exchange: String,
    routing_key: String,
    properties: lapin::BasicProperties,
    /// The broker's number for it on the reader's channel.
    tag: u64,
}

impl Taken {
    pub(crate) fn incoming(&self) -> Incoming<'_> {
        Incoming {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            properties: &self.properties,
        }
    }
}
