//! What is known of a user's days: versions, events and messages, read for people and for replay. Nothing is written here.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::canonical::{Day, Shift};

/// The most days, versions or events that are read at once.
pub const MAX_ROWS: i64 = 1_000;

const DAYS: &str = "SELECT d.schedule_date, d.current_version, v.created_at,
    (SELECT count(*) FROM schedule_ingest.schedule_event e
     WHERE (e.user_id, e.schedule_date) = (d.user_id, d.schedule_date)),
    jsonb_array_length(v.payload->'shifts')
FROM schedule_ingest.day_schedule d JOIN schedule_ingest.schedule_version v
    ON (v.user_id, v.schedule_date, v.version) = (d.user_id, d.schedule_date, d.current_version)
WHERE d.user_id = $1 ORDER BY d.schedule_date DESC LIMIT $2";
const VERSIONS: &str = "SELECT version, session_id, created_at, payload_hash, payload
FROM schedule_ingest.schedule_version WHERE user_id = $1 AND schedule_date = $2
ORDER BY version LIMIT $3";
const EVENTS: &str = "SELECT event_id, event_type, base_version, source_session_id, detected_at, old_value, new_value
FROM schedule_ingest.schedule_event WHERE user_id = $1 AND schedule_date = $2
ORDER BY base_version, detected_at, event_id LIMIT $3";
const MESSAGES: &str = "SELECT notification_id, source_session_id, notification_type, status, message, created_at, sent_at
FROM schedule_ingest.schedule_notification WHERE user_id = $1 AND schedule_date = $2
ORDER BY delivery_seq LIMIT $3";

/// Why history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// A row that is not in the form of the specification.
    #[error("version {0} of this day is not a canonical day: it was written by somebody else")]
    Version(i32),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

/// A day of a user, as its current version has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DayLine {
    /// Which day.
    pub schedule_date: Date,
    /// The current version.
    pub version: i32,
    /// When that was made.
    pub changed_at: Timestamp,
    /// How many events the day has had.
    pub events: i64,
    /// How many shifts it has.
    pub shifts: Option<i32>,
}

/// A version of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Its number.
    pub version: i32,
    /// The session that saw it.
    pub session_id: Uuid,
    /// When it was made.
    pub created_at: Timestamp,
    /// As stored.
    pub payload_hash: String,
    /// The day.
    #[serde(flatten)]
    pub day: Day,
}

/// An event as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredEvent {
    /// Its id.
    pub event_id: Uuid,
    /// What happened.
    pub event_type: String,
    /// Against which version.
    pub base_version: i32,
    /// The session that found it.
    pub source_session_id: Uuid,
    /// When.
    pub detected_at: Timestamp,
    /// The shift as it was.
    pub old_value: Option<Shift>,
    /// The shift as it is.
    pub new_value: Option<Shift>,
}

/// A message as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredMessage {
    /// Its id.
    pub notification_id: String,
    /// The session that found it.
    pub source_session_id: Uuid,
    /// `event` or `summary`.
    pub notification_type: String,
    /// `pending`, `sent` or `failed`.
    pub status: String,
    /// The words.
    pub message: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was sent.
    pub sent_at: Option<Timestamp>,
}

/// The days of a user, the newest first.
pub async fn days(client: &Client, user: i64) -> Result<Vec<DayLine>, Error> {
    let rows = client.query(DAYS, &[&user, &MAX_ROWS]).await?;
    let each = rows.iter().map(|row| {
        Ok(DayLine {
            schedule_date: row.try_get(0)?,
            version: row.try_get(1)?,
            changed_at: row.try_get(2)?,
            events: row.try_get(3)?,
            shifts: row.try_get(4)?,
        })
    });
    each.collect()
}

/// The versions of a day, in order.
pub async fn versions(client: &Client, user: i64, date: Date) -> Result<Vec<Version>, Error> {
    let rows = client.query(VERSIONS, &[&user, &date, &MAX_ROWS]).await?;
    let each = rows.iter().map(|row| {
        let version = row.try_get(0)?;
        let payload: serde_json::Value = row.try_get(4)?;
        let day = serde_json::from_value(payload).map_err(|_| Error::Version(version))?;
        Ok(Version {
            version,
            session_id: row.try_get(1)?,
            created_at: row.try_get(2)?,
            payload_hash: row.try_get(3)?,
            day,
        })
    });
    each.collect()
}

/// The events of a day, in the order of the versions that they were found against.
pub async fn events(client: &Client, user: i64, date: Date) -> Result<Vec<StoredEvent>, Error> {
    let rows = client.query(EVENTS, &[&user, &date, &MAX_ROWS]).await?;
    let shift =
        |value: Option<serde_json::Value>| value.and_then(|v| serde_json::from_value(v).ok());
    let each = rows.iter().map(|row| {
        Ok(StoredEvent {
            event_id: row.try_get(0)?,
            event_type: row.try_get(1)?,
            base_version: row.try_get(2)?,
            source_session_id: row.try_get(3)?,
            detected_at: row.try_get(4)?,
            old_value: shift(row.try_get(5)?),
            new_value: shift(row.try_get(6)?),
        })
    });
    each.collect()
}

/// The messages about a day, in the order they go out.
pub async fn messages(client: &Client, user: i64, date: Date) -> Result<Vec<StoredMessage>, Error> {
    let rows = client.query(MESSAGES, &[&user, &date, &MAX_ROWS]).await?;
    let each = rows.iter().map(|row| {
        Ok(StoredMessage {
            notification_id: row.try_get(0)?,
            source_session_id: row.try_get(1)?,
            notification_type: row.try_get(2)?,
            status: row.try_get(3)?,
            message: row.try_get(4)?,
            created_at: row.try_get(5)?,
            sent_at: row.try_get(6)?,
        })
    });
    each.collect()
}
