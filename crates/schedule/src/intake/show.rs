//! A session as a person or a program asks for it.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use tokio_postgres::Client;
use uuid::Uuid;

use super::Image;
use crate::worker::MAX_IMAGES;

const SESSION: &str =
    "SELECT s.user_id, s.state::text, s.error, s.created_at, s.attempts, s.active_at,
    s.finalized_at IS NOT NULL, v.schedule_date, v.version
FROM schedule_ingest.capture_session s
LEFT JOIN schedule_ingest.schedule_version v ON v.session_id = s.id WHERE s.id = $1";
const IMAGES: &str = "SELECT id, sequence, r2_key, created_at FROM schedule_ingest.capture_image
WHERE session_id = $1 ORDER BY sequence LIMIT $2";
const AWAITED: &str = "SELECT sequence FROM schedule_ingest.capture_upload u
WHERE session_id = $1 AND NOT EXISTS (SELECT FROM schedule_ingest.capture_image i
    WHERE i.session_id = u.session_id AND i.sequence = u.sequence)
ORDER BY sequence LIMIT $2";

/// The version that a session made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Of which day.
    pub schedule_date: Date,
    /// Its number.
    pub version: i32,
}

/// A capture session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Its id.
    pub session_id: Uuid,
    /// Whose schedule it shows.
    pub user_id: i64,
    /// Its state in the database.
    pub state: String,
    /// The same, with what a sender wants to know: whether images may still come.
    pub phase: String,
    /// Why it failed.
    pub error: Option<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When something last came.
    pub active_at: Timestamp,
    /// How often it has failed.
    pub attempts: i32,
    /// Its images, in order.
    pub images: Vec<Image>,
    /// Places that were promised and are empty.
    pub awaited: Vec<i32>,
    /// What it came to; nothing while it is not done, or if the day was known so.
    pub result: Option<Outcome>,
}

/// A session, if it is there.
pub async fn show(client: &Client, session: Uuid) -> Result<Option<Session>, pg::Error> {
    let Some(row) = client.query_opt(SESSION, &[&session]).await? else { return Ok(None) };
    let state: String = row.try_get(1)?;
    let phase = match (state.as_str(), row.try_get(6)?) {
        ("pending", false) => "collecting",
        ("pending", true) => "complete",
        (other, _) => other,
    };
    let date: Option<Date> = row.try_get(7)?;
    let version: Option<i32> = row.try_get(8)?;
    let most = i64::try_from(MAX_IMAGES).unwrap_or(i64::MAX);
    let images = client.query(IMAGES, &[&session, &most]).await?;
    let images = images.iter().map(|row| {
        Ok(Image {
            id: row.try_get(0)?,
            sequence: row.try_get(1)?,
            r2_key: row.try_get(2)?,
            created_at: row.try_get(3)?,
            new: false,
        })
    });
    let awaited = client.query(AWAITED, &[&session, &most]).await?;
    Ok(Some(Session {
        session_id: session,
        user_id: row.try_get(0)?,
        phase: phase.to_owned(),
        state,
        error: row.try_get(2)?,
        created_at: row.try_get(3)?,
        attempts: row.try_get(4)?,
        active_at: row.try_get(5)?,
        images: images.collect::<Result<_, tokio_postgres::Error>>()?,
        awaited: awaited.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?,
        result: date
            .zip(version)
            .map(|(schedule_date, version)| Outcome { schedule_date, version }),
    }))
}
