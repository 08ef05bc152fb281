//! Names in RabbitMQ. Every exchange is a topic exchange; the routing key is the event type.

use std::fmt;
use std::str::FromStr;

use crate::Invalid;
use crate::farm::EventType;

/// The name of a service or of a queue's purpose: `[a-z][a-z0-9-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(String);

impl Name {
    /// The longest name, in characters.
    pub const MAX_LEN: usize = 63;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Name, Invalid> {
        let sound = text.len() <= Name::MAX_LEN
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if sound {
            Ok(Name(text.to_owned()))
        } else {
            let expected = "a lower-case letter and up to 62 of a-z, 0-9 and hyphen";
            Err(Invalid::value("name", text, expected))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The exchange of an event's domain: `farmiq.{domain}.exchange`.
pub fn exchange(event_type: &EventType) -> String {
    format!("farmiq.{}.exchange", event_type.domain())
}

/// The routing key of an event: its type.
pub fn routing_key(event_type: &EventType) -> &str {
    event_type.routing_key()
}

/// A work queue: `farmiq.{service}.{purpose}.queue`.
pub fn queue(service: &Name, purpose: &Name) -> String {
    format!("farmiq.{service}.{purpose}.queue")
}

/// The dead-letter queue of a service: `farmiq.{service}.dlq.queue`.
pub fn dead_letter_queue(service: &Name) -> String {
    format!("farmiq.{service}.dlq.queue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_documented() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let service = name("cloud-telemetry-service");
        assert_eq!(exchange(&EventType::TELEMETRY_INGESTED), "farmiq.telemetry.exchange");
        assert_eq!(exchange(&EventType::SESSION_CREATED), "farmiq.weighvision.exchange");
        assert_eq!(exchange(&EventType::MEDIA_STORED), "farmiq.media.exchange");
        assert_eq!(exchange(&EventType::SYNC_BATCH_SENT), "farmiq.sync.exchange");
        assert_eq!(routing_key(&EventType::SYNC_BATCH_ACKED), "sync.batch.acked");
        assert_eq!(queue(&service, &name("ingest")), "farmiq.cloud-telemetry-service.ingest.queue");
        assert_eq!(
            queue(&name("cloud-analytics-service"), &name("kpi")),
            "farmiq.cloud-analytics-service.kpi.queue"
        );
        assert_eq!(dead_letter_queue(&service), "farmiq.cloud-telemetry-service.dlq.queue");
    }

    #[test]
    fn a_name_cannot_hold_a_wildcard_or_a_dot() {
        for text in ["", "a.b", "*", "#", "a*", "A", "-a", "1a", "a_b", &"a".repeat(64)] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }
}
