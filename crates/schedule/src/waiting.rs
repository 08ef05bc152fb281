//! What waits at one moment, and for how long: by indexes alone, so that it may be asked every second. What failed lately is counted apart, because
//! that costs more.

use serde::Serialize;
use tokio_postgres::Client;

/// Rows are counted up to so many: beyond it the number says nothing more, and the count would cost.
pub const MAX_COUNTED: i64 = 100_000;

const WAITING: &str = "SELECT
    (SELECT count(*) FROM (SELECT FROM schedule_ingest.capture_session
        WHERE finalized_at IS NULL AND state = 'pending' LIMIT $1) AS few),
    (SELECT count(*) FROM (SELECT FROM schedule_ingest.capture_session
        WHERE finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed') LIMIT $1) AS few),
    coalesce(extract(epoch FROM now() - (SELECT min(available_at) FROM schedule_ingest.capture_session
        WHERE finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed'))), 0)::float8,
    (SELECT count(*) FROM (SELECT FROM schedule_ingest.schedule_notification WHERE status = 'pending' LIMIT $1) AS few),
    coalesce(extract(epoch FROM now() - (SELECT min(created_at) FROM schedule_ingest.schedule_notification
        WHERE status = 'pending')), 0)::float8";

const FAILED: &str = "SELECT
    (SELECT count(*) FROM (SELECT FROM schedule_ingest.capture_session
        WHERE state = 'failed' AND created_at > now() - interval '1 day' LIMIT $1) AS few),
    (SELECT count(*) FROM (SELECT FROM schedule_ingest.schedule_notification
        WHERE status = 'failed' AND created_at > now() - interval '1 day' LIMIT $1) AS few)";

/// What waits at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waiting {
    /// Sessions to which images may still come.
    pub sessions_collecting: i64,
    /// Sessions that are complete and wait, or are being read.
    pub sessions_waiting: i64,
    /// How long the oldest of them has been due.
    pub sessions_oldest_seconds: f64,
    /// Messages that nobody has delivered yet.
    pub messages_waiting: i64,
    /// The age of the oldest of them.
    pub messages_oldest_seconds: f64,
}

/// What failed in the last day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failed {
    /// Sessions whose images could not be read.
    pub sessions: i64,
    /// Messages that were given up.
    pub messages: i64,
}

/// Looks.
pub async fn waiting(client: &Client) -> Result<Waiting, pg::Error> {
    let row = client.query_one(WAITING, &[&MAX_COUNTED]).await?;
    Ok(Waiting {
        sessions_collecting: row.try_get(0)?,
        sessions_waiting: row.try_get(1)?,
        sessions_oldest_seconds: row.try_get::<_, f64>(2)?.max(0.0),
        messages_waiting: row.try_get(3)?,
        messages_oldest_seconds: row.try_get::<_, f64>(4)?.max(0.0),
    })
}

/// Looks at what failed.
pub async fn failed(client: &Client) -> Result<Failed, pg::Error> {
    let row = client.query_one(FAILED, &[&MAX_COUNTED]).await?;
    Ok(Failed { sessions: row.try_get(0)?, messages: row.try_get(1)? })
}
