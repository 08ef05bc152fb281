//! What the bus carries.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use crate::PublishError;

/// AMQP's limit to the names that a message carries.
const MAX_NAME_BYTES: usize = 255;
/// A header's value; traces and coordinates are far shorter. A key travels as one where the broker has no keys.
const MAX_HEADER_BYTES: usize = 4096;
const MAX_HEADERS: usize = 32;
/// The longest explanation of a failure that is kept with a message, in characters.
const MAX_CAUSE_CHARS: usize = 500;

/// A message: opaque bytes, and how to deliver them.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Where it is published: an exchange, or for Kafka a topic.
    pub exchange: String,
    /// Which consumers want it.
    pub routing_key: String,
    /// Messages of one key belong to one order. Kafka chooses the partition by it.
    pub key: Option<String>,
    /// Names the message for ever: consumers are idempotent on it.
    pub message_id: String,
    /// What the body is, `application/json` for envelopes.
    pub content_type: Option<String>,
    /// Beside the body: `traceparent`, `trace_id`. Names that begin with `x-` belong to the bus.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
}

impl Message {
    /// A JSON message without key and headers.
    pub fn json(
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        message_id: impl Into<String>,
        body: impl Into<Bytes>,
    ) -> Message {
        Message {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            key: None,
            message_id: message_id.into(),
            content_type: Some("application/json".to_owned()),
            headers: BTreeMap::new(),
            body: body.into(),
        }
    }

    /// Checks what no broker could carry, or what would be taken for the bus's own.
    pub(crate) fn check(&self, max_body_bytes: usize) -> Result<(), PublishError> {
        let named = [
            ("exchange", Some(self.exchange.as_str())),
            ("routing key", Some(self.routing_key.as_str())),
            ("message id", Some(self.message_id.as_str())),
            ("content type", self.content_type.as_deref()),
        ];
        for (what, value) in named {
            if value.is_some_and(|value| value.len() > MAX_NAME_BYTES) {
                return Err(PublishError::Malformed { what, problem: "is longer than 255 bytes" });
            }
        }
        if self.key.as_ref().is_some_and(|key| key.len() > MAX_HEADER_BYTES) {
            return Err(PublishError::Malformed {
                what: "key",
                problem: "is longer than 4096 bytes",
            });
        }
        if self.exchange.is_empty() {
            return Err(PublishError::Malformed { what: "exchange", problem: "is empty" });
        }
        if self.message_id.is_empty() {
            return Err(PublishError::Malformed { what: "message id", problem: "is empty" });
        }
        let header = |problem| Err(PublishError::Malformed { what: "header", problem });
        if self.headers.len() > MAX_HEADERS {
            return header("count is above 32");
        }
        for (name, value) in &self.headers {
            if name.is_empty() || name.len() > MAX_NAME_BYTES || value.len() > MAX_HEADER_BYTES {
                return header("name or value is too long");
            }
            if name.starts_with("x-") {
                return header("begins with x-, which belongs to the bus");
            }
        }
        if self.body.len() > max_body_bytes {
            return Err(PublishError::TooLarge { bytes: self.body.len(), limit: max_body_bytes });
        }
        Ok(())
    }
}

/// Everything but the body, of which only the length is said.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("message_id", &self.message_id)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why a message failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Cause {
    /// A short word from a closed set of the handler's; dead letters are grouped by it.
    pub code: String,
    /// In words, without payload; cut at 500 characters.
    pub message: String,
}

impl Cause {
    /// A cause.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Cause {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_CAUSE_CHARS) {
            message.truncate(end);
        }
        Cause { code: code.into(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::About;

    #[test]
    fn what_cannot_be_carried_is_about_the_message() {
        let sound = Message::json("e", "k", "id", "body");
        assert!(sound.check(4).is_ok());
        let broken = [
            Message { exchange: String::new(), ..sound.clone() },
            Message { message_id: String::new(), ..sound.clone() },
            Message { routing_key: "k".repeat(256), ..sound.clone() },
            Message { key: Some("k".repeat(4097)), ..sound.clone() },
            Message { headers: [("x-death".to_owned(), "1".to_owned())].into(), ..sound.clone() },
            Message { headers: [("a".to_owned(), "b".repeat(5000))].into(), ..sound.clone() },
            Message { body: Bytes::from_static(b"12345"), ..sound.clone() },
        ];
        for message in broken {
            assert_eq!(message.check(4).unwrap_err().about(), About::Message, "{message:?}");
        }
    }

    #[test]
    fn a_body_is_not_shown() {
        let shown = format!("{:?}", Message::json("e", "k", "id", "canary"));
        assert!(!shown.contains("canary") && shown.contains("body_bytes: 6"), "{shown}");
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        assert_eq!(Cause::new("c", "ä".repeat(900)).message.chars().count(), 500);
    }
}
