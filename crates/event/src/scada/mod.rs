//! The SCADA envelope (ISA-95) and its rules.
//!
//! | field | rule |
//! |---|---|
//! | `eventId` | UUID version 4 or 7 |
//! | `timestamp` | ISO 8601 in UTC: `Z` or `+00:00` |
//! | `asset.plant`, `asset.area`, `asset.unit` | 1 to 64 of A-Z, 0-9 and underscore |
//! | `tag` | 1 to 128 of A-Z, 0-9 and underscore |
//! | `value` | finite number |
//! | `unit` | at most 32 characters, no control characters; may be empty for a value without a unit |
//! | `quality` | `GOOD`, `BAD`, `UNCERTAIN`, `OOR` |
//! | `category` | `telemetry`, `event`, `alarm` |
//! | `nodeId` | integer from 1 to 1000 |
//!
//! Every field must be there; a field that is there twice is refused; unknown fields are ignored.

mod envelope;
mod severity;
mod words;

pub use envelope::{Asset, Envelope, MAX_NODE_ID};
pub use severity::Severity;
pub use words::{AssetName, Category, Tag};

#[cfg(test)]
mod tests;
