//! Messages as Kafka records, and back. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};

use crate::{Cause, DeadLetter, Delivery, Message, Position};

const MESSAGE_ID: &str = "x-message-id";
const ROUTING_KEY: &str = "x-routing-key";
const CONTENT_TYPE: &str = "x-content-type";
const ORIGINAL_TOPIC: &str = "x-original-topic";
const ORIGINAL_PARTITION: &str = "x-original-partition";
const ORIGINAL_OFFSET: &str = "x-original-offset";
const ORIGINAL_QUEUE: &str = "x-original-queue";
const ATTEMPTS: &str = "x-attempts";
const CAUSE_CODE: &str = "x-cause-code";
const CAUSE_MESSAGE: &str = "x-cause-message";
const DEAD_LETTERED_AT: &str = "x-dead-lettered-at";
const REPLAY_FOR: &str = "x-replay-for";
const REPLAYED: &str = "x-replayed";
const SETTLES: &str = "x-settles";

/// A record to be sent.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: Arc<str>,
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: OwnedHeaders,
    pub(crate) body: Bytes,
}

fn with(headers: OwnedHeaders, key: &str, value: &str) -> OwnedHeaders {
    headers.insert(Header { key, value: Some(value) })
}

fn headers(message: &Message) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 3);
    headers = with(headers, MESSAGE_ID, &message.message_id);
    headers = with(headers, ROUTING_KEY, &message.routing_key);
    if let Some(content_type) = &message.content_type {
        headers = with(headers, CONTENT_TYPE, content_type);
    }
    for (name, value) in &message.headers {
        headers = with(headers, name, value);
    }
    headers
}

/// The record of a new message.
pub(crate) fn outgoing(message: Message) -> Outgoing {
    Outgoing {
        headers: headers(&message),
        topic: message.exchange.into(),
        key: message.key.map(Bytes::from),
        body: message.body,
    }
}

/// A record as a consumer holds it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) delivery: Delivery,
    pub(crate) own: Own,
}

/// What a record has beside its message that is the bus's own affair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    /// The key as it is, when it is not text.
    pub(crate) raw_key: Option<Bytes>,
    /// The one group that a replay meant it for.
    only_for: Option<Box<str>>,
    /// How often it was replayed.
    pub(crate) replayed: u32,
}

impl Received {
    /// Whether this group may have it.
    pub(crate) fn is_for(&self, group: &str) -> bool {
        self.own.only_for.as_deref().is_none_or(|only| only == group)
    }
}

/// Reads a record.
pub(crate) fn received(record: &BorrowedMessage<'_>, topic: &Arc<str>) -> Received {
    let (message, raw_key, mut headers) = read(record, topic);
    let (partition, offset) = (record.partition(), record.offset());
    let position = Some(Position { topic: Arc::clone(topic), partition, offset });
    let own = Own {
        raw_key,
        only_for: headers.remove(REPLAY_FOR).map(String::into_boxed_str),
        replayed: number(&mut headers, REPLAYED),
    };
    Received { delivery: Delivery { message, attempts: 0, redelivered: false, position }, own }
}

/// The message, its key when that is not text, and the headers that belong to the bus.
fn read(
    record: &BorrowedMessage<'_>,
    topic: &str,
) -> (Message, Option<Bytes>, BTreeMap<String, String>) {
    let mut own = BTreeMap::new();
    let mut given = BTreeMap::new();
    for header in record.headers().into_iter().flat_map(|headers| headers.iter()) {
        let Some(Ok(value)) = header.value.map(std::str::from_utf8) else { continue };
        let names = if header.key.starts_with("x-") { &mut own } else { &mut given };
        names.insert(header.key.to_owned(), value.to_owned());
    }
    let (key, raw_key) = match record.key().map(|key| (std::str::from_utf8(key), key)) {
        None => (None, None),
        Some((Ok(text), _)) => (Some(text.to_owned()), None),
        Some((Err(_), raw)) => (None, Some(Bytes::copy_from_slice(raw))),
    };
    let message = Message {
        exchange: topic.to_owned(),
        routing_key: own.remove(ROUTING_KEY).unwrap_or_else(|| topic.to_owned()),
        key,
        message_id: own
            .remove(MESSAGE_ID)
            .unwrap_or_else(|| format!("{topic}/{}/{}", record.partition(), record.offset())),
        content_type: own.remove(CONTENT_TYPE),
        headers: given,
        body: record.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    };
    (message, raw_key, own)
}

/// The record of a message that the group `queue` gives up.
pub(crate) fn letter(
    received: &Received,
    dead_letter_topic: &Arc<str>,
    queue: &str,
    attempts: u32,
    cause: &Cause,
    at: Timestamp,
) -> Outgoing {
    let message = &received.delivery.message;
    let mut headers = headers(message);
    if let Some(position) = &received.delivery.position {
        headers = with(headers, ORIGINAL_TOPIC, &position.topic);
        headers = with(headers, ORIGINAL_PARTITION, &position.partition.to_string());
        headers = with(headers, ORIGINAL_OFFSET, &position.offset.to_string());
    }
    headers = with(headers, ORIGINAL_QUEUE, queue);
    headers = with(headers, ATTEMPTS, &attempts.to_string());
    headers = with(headers, CAUSE_CODE, &cause.code);
    headers = with(headers, CAUSE_MESSAGE, &cause.message);
    headers = with(headers, DEAD_LETTERED_AT, &at.to_string());
    if received.own.replayed > 0 {
        headers = with(headers, REPLAYED, &received.own.replayed.to_string());
    }
    Outgoing {
        topic: Arc::clone(dead_letter_topic),
        key: received.own.raw_key.clone().or_else(|| message.key.clone().map(Bytes::from)),
        headers,
        body: message.body.clone(),
    }
}

/// Where a dead letter is in its topic: the partition and the offset.
pub(crate) type Place = (i32, i64);

/// A record of a dead-letter topic.
pub(crate) enum Entry {
    /// A dead letter; where its original is, unless somebody else put it there; and the original's key when that is not text.
    Letter(Box<DeadLetter>, Option<Position>, Option<Bytes>),
    /// The mark of one that was replayed.
    Settles(Place),
}

/// Reads a record of a dead-letter topic.
pub(crate) fn read_entry(record: &BorrowedMessage<'_>) -> Entry {
    let (mut message, raw_key, mut own) = read(record, record.topic());
    if let Some(place) = own.remove(SETTLES).as_deref().and_then(place) {
        return Entry::Settles(place);
    }
    let topic = own.remove(ORIGINAL_TOPIC);
    if let Some(topic) = &topic {
        message.exchange.clone_from(topic);
    }
    let partition = own.remove(ORIGINAL_PARTITION).and_then(|text| text.parse().ok());
    let offset = own.remove(ORIGINAL_OFFSET).and_then(|text| text.parse().ok());
    let position = match (topic, partition, offset) {
        (Some(topic), Some(partition), Some(offset)) => {
            Some(Position { topic: topic.into(), partition, offset })
        }
        _ => None,
    };
    let letter = DeadLetter {
        message,
        queue: own.remove(ORIGINAL_QUEUE),
        cause: Cause::new(
            own.remove(CAUSE_CODE).unwrap_or_else(|| "unknown".to_owned()),
            own.remove(CAUSE_MESSAGE).unwrap_or_default(),
        ),
        attempts: number(&mut own, ATTEMPTS),
        replayed: number(&mut own, REPLAYED),
        dead_lettered_at: own.remove(DEAD_LETTERED_AT).and_then(|text| text.parse().ok()),
        deaths: Vec::new(),
    };
    Entry::Letter(Box::new(letter), position, raw_key)
}

fn number(own: &mut BTreeMap<String, String>, name: &str) -> u32 {
    own.remove(name).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn place(text: &str) -> Option<Place> {
    let (partition, offset) = text.split_once('/')?;
    Some((partition.parse().ok()?, offset.parse().ok()?))
}

/// The record by which a dead letter goes back to the group that gave it up.
pub(crate) fn replay(
    letter: &DeadLetter,
    raw_key: Option<&Bytes>,
    topic: &Arc<str>,
    group: &str,
) -> Outgoing {
    let message = &letter.message;
    let mut headers = with(headers(message), REPLAY_FOR, group);
    headers = with(headers, REPLAYED, &letter.replayed.saturating_add(1).to_string());
    Outgoing {
        topic: Arc::clone(topic),
        key: raw_key.cloned().or_else(|| message.key.clone().map(Bytes::from)),
        headers,
        body: message.body.clone(),
    }
}

/// The mark of a dead letter that was replayed.
pub(crate) fn settles(dead_letter_topic: &Arc<str>, (partition, offset): Place) -> Outgoing {
    let headers = OwnedHeaders::new_with_capacity(1);
    Outgoing {
        topic: Arc::clone(dead_letter_topic),
        key: None,
        headers: with(headers, SETTLES, &format!("{partition}/{offset}")),
        body: Bytes::new(),
    }
}
