//! The farm's envelope and its rules.
//!
//! Field names and their order are a contract with other services. An event is read by picking the
//! ten fields, checking each against its rule, and then checking the payload's documented fields by
//! event type; fields that are not documented pass in a payload and are dropped beside it.
//!
//! | field | rule |
//! |---|---|
//! | `event_id`, `tenant_id` | UUID version 4 or 7, never null |
//! | `event_type` | [`EventType`]'s grammar |
//! | `device_id` | as above; may be null in `sync.*` and in types that are not core |
//! | `farm_id`, `barn_id` | may also be null in `telemetry.*`: a device can stand outside any barn |
//! | `session_id` | may be null, except in `weighvision.session.*` |
//! | `occurred_at` | RFC 3339 with an offset |
//! | `trace_id` | 1 to 128 visible ASCII characters, or null |
//! | `payload` | an object; the fields of [`payload`] for the core types |
//!
//! Absent counts as null. A field of the envelope, or a documented one of the payload, that is there
//! twice is refused; any other repeated name in a payload stays as it is, and the last one counts for
//! whoever stores it as `jsonb`.

mod envelope;
mod event_type;
pub mod payload;
pub mod rules;

pub use envelope::Envelope;
pub use event_type::EventType;
pub use payload::Telemetry;

#[cfg(test)]
mod tests;
