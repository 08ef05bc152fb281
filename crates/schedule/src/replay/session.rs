//! A session that has ended, read again: whether it comes to what is stored, and, where somebody wants that, a new version of what it shows now.
//!
//! Promises: without [`apply`] nothing is written. With it, what is written is what a worker writes: a session of its own, which is marked as a replay and
//! stands in the order of sessions where the one stands that is read again, so that it never undoes a later capture; one transaction for version, events and messages; a crash in
//! between leaves a session that any worker finishes.

use jiff::civil::Date;
use serde::Serialize;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::canonical::{Day, canonicalize};
use crate::worker::{
    Claimed, Extract, ExtractError, RecordError, Recorded, Session, believe, images, record,
};

const OF_SESSION: &str = "SELECT s.user_id, s.state::text, v.version, v.payload_hash
FROM schedule_ingest.capture_session s
LEFT JOIN schedule_ingest.schedule_version v ON v.session_id = s.id WHERE s.id = $1";
const SAME_HASH: &str = "SELECT max(version) FROM schedule_ingest.schedule_version
WHERE user_id = $1 AND schedule_date = $2 AND payload_hash = $3 AND version > $4";
const LATER: &str = "SELECT EXISTS (SELECT FROM schedule_ingest.schedule_version v
    JOIN schedule_ingest.capture_session later ON later.id = v.session_id
    JOIN schedule_ingest.capture_session this ON this.id = $3
    WHERE v.user_id = $1 AND v.schedule_date = $2
      AND later.opened_seq > this.opened_seq)";
const LAST_SEEN: &str = "SELECT source_session_id FROM schedule_ingest.day_snapshot
WHERE user_id = $1 AND schedule_date = $2";
const OPEN: &str = "INSERT INTO schedule_ingest.capture_session
    (id, user_id, state, created_at, replay_of, opened_seq) OVERRIDING SYSTEM VALUE
SELECT $1, user_id, 'pending', now(), coalesce(replay_of, id), opened_seq
FROM schedule_ingest.capture_session WHERE id = $2 RETURNING opened_seq";
const CLAIM: &str = "UPDATE schedule_ingest.capture_session
SET state = 'processing', locked_at = now(), locked_by = $2 WHERE id = $1 RETURNING lease_token";
const DONE: &str = "UPDATE schedule_ingest.capture_session SET state = 'done'
WHERE id = $1 AND lease_token = $2";

/// Who holds a session that is written again, as `locked_by` shows it.
const HOLDER: &str = "replay";

/// What a session came to, read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SessionAgain {
    /// It shows exactly the version that it made.
    Same {
        /// Which day.
        schedule_date: Date,
        /// Its number.
        version: i32,
    },
    /// It made no version, and shows one that was there.
    Known {
        /// Which day.
        schedule_date: Date,
        /// Its number.
        version: i32,
    },
    /// It made no version, because a session that was opened later had been seen.
    Superseded {
        /// Which day.
        schedule_date: Date,
    },
    /// It cannot be read, and was failed for that.
    Unread {
        /// Why not.
        why: String,
    },
    /// It comes to something else than is stored.
    Differs {
        /// What.
        why: String,
    },
}

/// Why a session cannot be read again.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// There is no such session.
    #[error("there is no such session")]
    Missing,
    /// It has not ended.
    #[error("the session is {0}: it has come to nothing yet")]
    Unfinished(String),
    /// What it shows now could not be written. The session that was opened for it is left to a worker.
    #[error("it could not be written: {0}; a worker goes on with it")]
    Record(#[from] RecordError),
    /// The reader or the images cannot be reached.
    #[error("the images cannot be read now: {0}")]
    Unreachable(String),
}

impl From<tokio_postgres::Error> for SessionError {
    fn from(error: tokio_postgres::Error) -> SessionError {
        SessionError::Database(error.into())
    }
}

/// Reads a session that has ended again, and says whether it comes to what is stored. An observation that is less sure than `min_confidence` is not believed.
pub async fn session<E: Extract>(
    client: &Client,
    extract: &E,
    min_confidence: f64,
    session: Uuid,
) -> Result<SessionAgain, SessionError> {
    Ok(look(client, extract, min_confidence, session).await?.again)
}

/// What [`apply`] has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Applied {
    /// There was nothing to write.
    Nothing {
        /// Why not.
        again: SessionAgain,
    },
    /// It shows something else than is stored, and that is a version now.
    Written {
        /// The session that was opened for it.
        session_id: Uuid,
        /// Which day.
        schedule_date: Date,
        /// The new version.
        version: i32,
        /// How many events it has.
        events: usize,
        /// How many messages tell of them.
        messages: usize,
    },
    /// It shows something else, and the day was seen later: nothing is undone.
    Superseded {
        /// Which day.
        schedule_date: Date,
    },
}

/// Reads a session that has ended again, and writes what it shows now as a new version where that is not stored and nothing later was seen.
pub async fn apply<E: Extract>(
    client: &mut Client,
    extract: &E,
    min_confidence: f64,
    session: Uuid,
) -> Result<Applied, SessionError> {
    let Look { again, user_id, day } = look(client, extract, min_confidence, session).await?;
    let (SessionAgain::Differs { .. }, Some(day)) = (&again, day) else {
        return Ok(Applied::Nothing { again });
    };
    let schedule_date = day.schedule_date;
    let session_id = Uuid::now_v7();
    // In one transaction: a worker never finds it waiting.
    let transaction = client.transaction().await?;
    let opened = transaction.query_one(OPEN, &[&session_id, &session]).await?.try_get(0)?;
    let token: Uuid = transaction.query_one(CLAIM, &[&session_id, &HOLDER]).await?.try_get(0)?;
    transaction.commit().await?;
    let claimed = Claimed { session: session_id, user_id, opened };
    let recorded = record(client, &claimed, token, &day).await?;
    client.execute(DONE, &[&session_id, &token]).await?;
    Ok(match recorded {
        Recorded::Created { version, events, notifications } => {
            Applied::Written { session_id, schedule_date, version, events, messages: notifications }
        }
        Recorded::Superseded => Applied::Superseded { schedule_date },
        // Somebody wrote the same in between, or has taken the session over and writes it.
        Recorded::Unchanged | Recorded::Existing | Recorded::Fenced => Applied::Nothing { again },
    })
}

/// The session by which a day was last seen.
pub async fn last_seen(client: &Client, user: i64, date: Date) -> Result<Option<Uuid>, pg::Error> {
    let row = client.query_opt(LAST_SEEN, &[&user, &date]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

struct Look {
    again: SessionAgain,
    user_id: i64,
    /// What it shows now, if that can be read.
    day: Option<Day>,
}

async fn look<E: Extract>(
    client: &Client,
    extract: &E,
    min_confidence: f64,
    session: Uuid,
) -> Result<Look, SessionError> {
    let row = client.query_opt(OF_SESSION, &[&session]).await?.ok_or(SessionError::Missing)?;
    let (user_id, state): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    let made: Option<(i32, String)> =
        row.try_get::<_, Option<i32>>(2)?.zip(row.try_get::<_, Option<String>>(3)?);
    if state != "done" && state != "failed" {
        return Err(SessionError::Unfinished(state));
    }
    let images = images(client, session).await?;
    let seen = extract.extract(&Session { id: session, user_id, images }).await;
    let day = match seen {
        Ok(seen) => believe(&seen, min_confidence)
            .and_then(|()| canonicalize(&seen).map_err(|error| error.to_string())),
        Err(ExtractError::Unreachable(why)) => return Err(SessionError::Unreachable(why)),
        Err(error) => Err(error.to_string()),
    };
    let day = match (day, state.as_str()) {
        (Ok(day), _) => day,
        (Err(why), "failed") => {
            return Ok(Look { again: SessionAgain::Unread { why }, user_id, day: None });
        }
        (Err(why), _) => {
            return Ok(Look { again: SessionAgain::Differs { why }, user_id, day: None });
        }
    };
    let (schedule_date, hash) = (day.schedule_date, day.hash());
    let again = match &made {
        Some((version, stored)) if *stored == hash => {
            SessionAgain::Same { schedule_date, version: *version }
        }
        _ => {
            // What a session made is not what it shows now: then only a later version can be that.
            let after = made.as_ref().map_or(0, |(version, _)| *version);
            let known: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&user_id, &schedule_date, &hash, &after];
            let known = client.query_one(SAME_HASH, &known).await?.try_get(0)?;
            let later = client.query_one(LATER, &[&user_id, &schedule_date, &session]).await?;
            judge(schedule_date, &state, known, made.map(|(version, _)| version), later.try_get(0)?)
        }
    };
    Ok(Look { again, user_id, day: Some(day) })
}

/// What it means that a session shows something else than the version that it made, or that it made none.
fn judge(
    schedule_date: Date,
    state: &str,
    known: Option<i32>,
    made: Option<i32>,
    later: bool,
) -> SessionAgain {
    match (known, made) {
        (Some(version), _) => SessionAgain::Known { schedule_date, version },
        (None, Some(version)) => {
            SessionAgain::Differs { why: format!("it is not version {version} any more") }
        }
        (None, None) if state == "failed" => {
            SessionAgain::Differs { why: "the session failed, and can be read now".to_owned() }
        }
        (None, None) if later => SessionAgain::Superseded { schedule_date },
        (None, None) => SessionAgain::Differs { why: "no version shows what it shows".to_owned() },
    }
}
