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
    /// The key as it is, when it is not text.
    pub(crate) raw_key: Option<Bytes>,
}

/// Reads a record.
pub(crate) fn received(record: &BorrowedMessage<'_>, topic: &Arc<str>) -> Received {
    let (message, raw_key, _) = read(record, topic);
    let (partition, offset) = (record.partition(), record.offset());
    let position = Some(Position { topic: Arc::clone(topic), partition, offset });
    Received { delivery: Delivery { message, attempts: 0, redelivered: false, position }, raw_key }
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
    Outgoing {
        topic: Arc::clone(dead_letter_topic),
        key: received.raw_key.clone().or_else(|| message.key.clone().map(Bytes::from)),
        headers,
        body: message.body.clone(),
    }
}

/// Reads a dead letter, and where its original is; the latter is not known for a record that somebody else put there.
pub(crate) fn read_letter(record: &BorrowedMessage<'_>) -> (DeadLetter, Option<Position>) {
    let (mut message, _, mut own) = read(record, record.topic());
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
        attempts: own.remove(ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or_default(),
        replayed: 0,
        dead_lettered_at: own.remove(DEAD_LETTERED_AT).and_then(|text| text.parse().ok()),
        deaths: Vec::new(),
    };
    (letter, position)
}
