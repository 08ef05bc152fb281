//! Replies, one line each.

use event::Invalid;
use event::id::EventId;
use serde_json::json;

/// Why a record was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge,
    Full,
    NotDurable,
    Stopping,
}

impl Refusal {
    fn code(self) -> &'static str {
        match self {
            Refusal::TooLarge => "too_large",
            Refusal::Full => "full",
            Refusal::NotDurable => "not_durable",
            Refusal::Stopping => "stopping",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Refusal::TooLarge => "the line is longer than 256 KiB; it was skipped",
            Refusal::Full => "the spool is full; try again later with the same event_id",
            Refusal::NotDurable => {
                "the disk failed and the record may be lost; try again with the same event_id"
            }
            Refusal::Stopping => {
                "the node is stopping; reconnect and try again with the same event_id"
            }
        }
    }
}

impl From<&spool::Error> for Refusal {
    fn from(error: &spool::Error) -> Refusal {
        match error {
            spool::Error::Closed => Refusal::Stopping,
            full if full.is_full() => Refusal::Full,
            _ => Refusal::NotDurable,
        }
    }
}

pub(super) fn spooled(into: &mut Vec<u8>, seq: u64, event_id: EventId, tag: Option<&str>) {
    line(into, &format!("{{\"seq\":{seq},\"event_id\":\"{event_id}\""), tag);
}

pub(super) fn invalid(into: &mut Vec<u8>, invalid: &Invalid, tag: Option<&str>) {
    let message = invalid.to_string();
    error(into, json!({"code": "invalid", "field": invalid.field, "message": message}), tag);
}

pub(super) fn refused(into: &mut Vec<u8>, refusal: Refusal, tag: Option<&str>) {
    error(into, json!({"code": refusal.code(), "message": refusal.message()}), tag);
}

pub(super) fn ok(into: &mut Vec<u8>, tag: Option<&str>) {
    line(into, "{\"ok\":true", tag);
}

/// A whole object as a reply.
pub(super) fn object(into: &mut Vec<u8>, json: &str, tag: Option<&str>) {
    line(into, json.strip_suffix('}').unwrap_or(json), tag);
}

fn error(into: &mut Vec<u8>, error: serde_json::Value, tag: Option<&str>) {
    line(into, &format!("{{\"error\":{error}"), tag);
}

/// Closes an object that was begun, with the tag to echo.
fn line(into: &mut Vec<u8>, begun: &str, tag: Option<&str>) {
    into.extend_from_slice(begun.as_bytes());
    if let Some(tag) = tag {
        into.extend_from_slice(b",\"tag\":");
        into.extend_from_slice(tag.as_bytes());
    }
    into.extend_from_slice(b"}\n");
}
