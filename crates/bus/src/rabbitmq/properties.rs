//! Messages as AMQP properties and headers, and back. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::topology::is_retry_queue;
use crate::{Cause, DeadLetter, Death, Delivery, Message};

const PERSISTENT: u8 = 2;
pub(crate) const KEY: &str = "x-key";
pub(crate) const ORIGINAL_EXCHANGE: &str = "x-original-exchange";
pub(crate) const ORIGINAL_ROUTING_KEY: &str = "x-original-routing-key";
pub(crate) const ORIGINAL_QUEUE: &str = "x-original-queue";
pub(crate) const ATTEMPTS: &str = "x-attempts";
pub(crate) const CAUSE_CODE: &str = "x-cause-code";
pub(crate) const CAUSE_MESSAGE: &str = "x-cause-message";
pub(crate) const DEAD_LETTERED_AT: &str = "x-dead-lettered-at";
pub(crate) const REPLAYED: &str = "x-replayed";
pub(crate) const DEATH: &str = "x-death";
/// Beside `x-death` the broker keeps the first and, in newer versions, the last entry by themselves.
const DEATH_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];

/// A message as it goes over the wire.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Bytes,
}

/// The properties of a new message.
pub(crate) fn outgoing(message: Message) -> Outgoing {
    let mut headers = FieldTable::default();
    for (name, value) in message.headers {
        headers.insert(name.into(), text(value));
    }
    if let Some(key) = message.key {
        headers.insert(KEY.into(), text(key));
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(message.message_id.into())
        .with_type(message.routing_key.as_str().into())
        .with_headers(headers);
    if let Some(content_type) = message.content_type {
        properties = properties.with_content_type(content_type.into());
    }
    Outgoing {
        exchange: message.exchange,
        routing_key: message.routing_key,
        properties,
        body: message.body,
    }
}

/// A message as it came from a work queue or a dead-letter queue.
pub(crate) struct Incoming<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) properties: &'a BasicProperties,
}

impl Incoming<'_> {
    fn headers(&self) -> Option<&BTreeMap<ShortString, AMQPValue>> {
        self.properties.headers().as_ref().map(FieldTable::inner)
    }

    fn header(&self, name: &str) -> Option<&AMQPValue> {
        self.headers()?.get(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.header(name).and_then(as_text)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.header(name).and_then(as_number).map(saturate)
    }

    /// The exchange and routing key it was first published with: ours where we moved it, the broker's record
    /// where the broker did, else where it came from.
    fn origin(&self) -> (String, String) {
        if let Some(exchange) = self.text(ORIGINAL_EXCHANGE) {
            return (exchange, self.text(ORIGINAL_ROUTING_KEY).unwrap_or_default());
        }
        match self.deaths().last() {
            Some(first) => (first.exchange.clone(), first.routing_key.clone()),
            None => (self.exchange.to_owned(), self.routing_key.to_owned()),
        }
    }

    /// The message as it was published.
    pub(crate) fn message(&self, body: Bytes) -> Message {
        let (exchange, routing_key) = self.origin();
        let headers = self.headers().into_iter().flatten().filter_map(|(name, value)| {
            let ours = name.as_str().starts_with("x-");
            Some((name.to_string(), as_text(value)?)).filter(|_| !ours)
        });
        let short = |value: &Option<ShortString>| value.as_ref().map(ToString::to_string);
        Message {
            exchange,
            routing_key,
            key: self.text(KEY),
            message_id: short(self.properties.message_id()).unwrap_or_default(),
            content_type: short(self.properties.content_type()),
            headers: headers.collect(),
            body,
        }
    }

    /// How often it has failed, as a message of `work_queue`.
    pub(crate) fn attempts(&self, work_queue: &str) -> u32 {
        self.number(ATTEMPTS).unwrap_or_else(|| {
            let expired = self.deaths().into_iter().filter(|death| {
                death.reason == "expired" && is_retry_queue(&death.queue, work_queue)
            });
            saturate(expired.map(|death| death.count).sum())
        })
    }

    pub(crate) fn delivery(&self, body: Bytes, redelivered: bool, work_queue: &str) -> Delivery {
        Delivery {
            message: self.message(body),
            attempts: self.attempts(work_queue),
            redelivered,
            position: None,
        }
    }

    /// The message as a dead letter.
    pub(crate) fn dead_letter(&self, body: Bytes) -> DeadLetter {
        let deaths = self.deaths();
        let queue =
            self.text(ORIGINAL_QUEUE).or_else(|| deaths.last().map(|first| first.queue.clone()));
        let cause = match (self.text(CAUSE_CODE), deaths.first()) {
            // The broker's entry is newer than ours when it gave up a message that we retried.
            (_, Some(last)) if last.reason == "delivery_limit" => {
                Cause::new("delivery_limit", "delivered too often without a verdict")
            }
            (Some(code), _) => Cause::new(code, self.text(CAUSE_MESSAGE).unwrap_or_default()),
            (None, Some(last)) => Cause::new(&last.reason, "given up by the broker"),
            (None, None) => Cause::new("unknown", "it does not say why it is here"),
        };
        let written = self.text(DEAD_LETTERED_AT).and_then(|at| at.parse().ok());
        DeadLetter {
            message: self.message(body),
            attempts: queue.as_deref().map_or(0, |queue| self.attempts(queue)),
            queue,
            cause,
            replayed: self.number(REPLAYED).unwrap_or(0),
            dead_lettered_at: written.or_else(|| deaths.first().and_then(|last| last.at)),
            deaths: deaths
                .into_iter()
                .map(|DeathEntry { queue, reason, count, .. }| Death { queue, reason, count })
                .collect(),
        }
    }

    /// The broker's record, newest entry first.
    fn deaths(&self) -> Vec<DeathEntry> {
        match self.header(DEATH) {
            Some(AMQPValue::FieldArray(entries)) => {
                entries.as_slice().iter().filter_map(DeathEntry::read).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A copy for the retry or dead-letter queue `to`: everything as it was, and these headers.
    pub(crate) fn copy(&self, to: &str, body: Bytes, headers: Vec<(&str, AMQPValue)>) -> Outgoing {
        let mut table = self.properties.headers().clone().unwrap_or_default();
        let (exchange, routing_key) = self.origin();
        table.insert(ORIGINAL_EXCHANGE.into(), text(exchange));
        table.insert(ORIGINAL_ROUTING_KEY.into(), text(routing_key));
        for (name, value) in headers {
            table.insert(name.into(), value);
        }
        self.with_headers(to, body, table)
    }

    /// A copy for the work queue `to`, without the traces of its failures.
    pub(crate) fn replay(&self, to: &str, body: Bytes) -> Outgoing {
        let (exchange, routing_key) = self.origin();
        let gone = [ATTEMPTS, CAUSE_CODE, CAUSE_MESSAGE, DEAD_LETTERED_AT, DEATH];
        let mut table = FieldTable::default();
        for (name, value) in self.headers().into_iter().flatten() {
            let death = DEATH_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
            if !gone.contains(&name.as_str()) && !death {
                table.insert(name.clone(), value.clone());
            }
        }
        let replayed = self.number(REPLAYED).unwrap_or(0).saturating_add(1);
        table.insert(ORIGINAL_EXCHANGE.into(), text(exchange));
        table.insert(ORIGINAL_ROUTING_KEY.into(), text(routing_key));
        table.insert(ORIGINAL_QUEUE.into(), text(to.to_owned()));
        table.insert(REPLAYED.into(), number(replayed));
        self.with_headers(to, body, table)
    }

    fn with_headers(&self, to: &str, body: Bytes, table: FieldTable) -> Outgoing {
        Outgoing {
            exchange: String::new(),
            routing_key: to.to_owned(),
            properties: self.properties.clone().with_headers(table),
            body,
        }
    }
}

struct DeathEntry {
    queue: String,
    reason: String,
    count: u64,
    exchange: String,
    routing_key: String,
    at: Option<Timestamp>,
}

impl DeathEntry {
    fn read(value: &AMQPValue) -> Option<DeathEntry> {
        let AMQPValue::FieldTable(table) = value else {
            return None;
        };
        let table = table.inner();
        let text = |name: &str| table.get(name).and_then(as_text);
        let routing_key = match table.get("routing-keys") {
            Some(AMQPValue::FieldArray(keys)) => keys.as_slice().first().and_then(as_text),
            _ => None,
        };
        let at = match table.get("time") {
            Some(AMQPValue::Timestamp(second)) => {
                i64::try_from(*second).ok().and_then(|second| Timestamp::from_second(second).ok())
            }
            _ => None,
        };
        Some(DeathEntry {
            queue: text("queue")?,
            reason: text("reason")?,
            count: table.get("count").and_then(as_number).unwrap_or(1),
            exchange: text("exchange").unwrap_or_default(),
            routing_key: routing_key.unwrap_or_default(),
            at,
        })
    }
}

pub(crate) fn text(value: impl Into<Vec<u8>>) -> AMQPValue {
    AMQPValue::LongString(value.into().into())
}

pub(crate) fn number(value: u32) -> AMQPValue {
    AMQPValue::LongLongInt(value.into())
}

fn as_text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).ok(),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    }
}

fn as_number(value: &AMQPValue) -> Option<u64> {
    let signed = match value {
        AMQPValue::ShortShortInt(number) => i64::from(*number),
        AMQPValue::ShortShortUInt(number) => i64::from(*number),
        AMQPValue::ShortInt(number) => i64::from(*number),
        AMQPValue::ShortUInt(number) => i64::from(*number),
        AMQPValue::LongInt(number) => i64::from(*number),
        AMQPValue::LongUInt(number) => i64::from(*number),
        AMQPValue::LongLongInt(number) => *number,
        _ => return None,
    };
    u64::try_from(signed).ok()
}

fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
