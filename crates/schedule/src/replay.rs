//! Doing it again without writing: whether a day or a session comes to what is stored.
//!
//! A day is made again from its versions: canonical form, hash, events and ids of messages. A session is read again by the same reader. What is
//! found is told by number and name, never by the words of a schedule.

use std::collections::BTreeSet;

use jiff::civil::Date;
use serde::Serialize;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::canonical::canonicalize;
use crate::diff::{Change, Event, diff};
use crate::history::{self, Error, Version};
use crate::notify::{self, Language, News};
use crate::observation::Observation;
use crate::worker::{Extract, ExtractError, Session, images};

const OF_SESSION: &str = "SELECT s.user_id, s.state::text, v.version, v.payload_hash
FROM schedule_ingest.capture_session s
LEFT JOIN schedule_ingest.schedule_version v ON v.session_id = s.id WHERE s.id = $1";
const SAME_HASH: &str = "SELECT max(version) FROM schedule_ingest.schedule_version
WHERE user_id = $1 AND schedule_date = $2 AND payload_hash = $3";

const LATER: &str = "SELECT EXISTS (SELECT FROM schedule_ingest.schedule_version v
    JOIN schedule_ingest.capture_session later ON later.id = v.session_id
    JOIN schedule_ingest.capture_session this ON this.id = $3
    WHERE v.user_id = $1 AND v.schedule_date = $2
      AND later.opened_seq > this.opened_seq)";

/// One version, made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionAgain {
    /// Which.
    pub version: i32,
    /// The session that saw it.
    pub session_id: Uuid,
    /// How many events it has.
    pub events: usize,
    /// How many messages.
    pub messages: usize,
    /// What is not as stored; empty when all is the same.
    pub differs: Vec<String>,
}

/// Makes a day again from its versions.
pub async fn day(client: &Client, user: i64, date: Date) -> Result<Vec<VersionAgain>, Error> {
    let versions = history::versions(client, user, date).await?;
    let events = history::events(client, user, date).await?;
    let messages = history::messages(client, user, date).await?;
    let mut before: Option<&Version> = None;
    let mut again = Vec::with_capacity(versions.len());
    for version in &versions {
        let base = before.map_or(0, |before| before.version);
        let old = before.map_or(&[][..], |before| &before.day.shifts);
        let changes: Vec<(Change, Vec<Event>)> = diff(old, &version.day.shifts)
            .into_iter()
            .map(|change| {
                let events = change.events(user, date, base);
                (change, events)
            })
            .collect();
        let made: BTreeSet<Uuid> =
            changes.iter().flat_map(|(_, events)| events.iter().map(|e| e.event_id)).collect();
        let stored: BTreeSet<Uuid> = events
            .iter()
            .filter(|event| event.source_session_id == version.session_id)
            .map(|event| event.event_id)
            .collect();
        let told = told(version, &changes, base == 0);
        let sent: BTreeSet<String> = messages
            .iter()
            .filter(|message| message.source_session_id == version.session_id)
            .map(|message| message.notification_id.clone())
            .collect();
        let mut differs = form(version);
        compare(&mut differs, "events", &made, &stored);
        compare(&mut differs, "messages", &told, &sent);
        again.push(VersionAgain {
            version: version.version,
            session_id: version.session_id,
            events: made.len(),
            messages: told.len(),
            differs,
        });
        before = Some(version);
    }
    Ok(again)
}

/// What is wrong with the form of a version.
fn form(version: &Version) -> Vec<String> {
    let mut differs = Vec::new();
    if version.day.hash() != version.payload_hash {
        differs.push("the hash is not that of the payload".to_owned());
    }
    if canonicalize(&Observation::from(&version.day)).ok().as_ref() != Some(&version.day) {
        differs.push("the payload is not in canonical form".to_owned());
    }
    differs
}

/// The ids of a version's messages: they are the same in every language.
fn told(version: &Version, changes: &[(Change, Vec<Event>)], first: bool) -> BTreeSet<String> {
    let changes: Vec<(Change, Vec<Uuid>)> = changes
        .iter()
        .map(|(change, events)| (change.clone(), events.iter().map(|e| e.event_id).collect()))
        .collect();
    let news = News {
        session: version.session_id,
        schedule_date: version.day.schedule_date,
        first,
        changes: &changes,
        shifts: &version.day.shifts,
    };
    let messages = notify::notifications(&news, Language::default());
    messages.into_iter().map(|message| message.notification_id).collect()
}

fn compare<T: Ord>(
    differs: &mut Vec<String>,
    what: &str,
    made: &BTreeSet<T>,
    stored: &BTreeSet<T>,
) {
    let (missing, extra) = (made.difference(stored).count(), stored.difference(made).count());
    if missing + extra > 0 {
        differs.push(format!(
            "{missing} {what} are not stored, {extra} stored ones are not made again"
        ));
    }
}

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
    /// The reader or the images cannot be reached.
    #[error("the images cannot be read now: {0}")]
    Unreachable(String),
}

impl From<tokio_postgres::Error> for SessionError {
    fn from(error: tokio_postgres::Error) -> SessionError {
        SessionError::Database(error.into())
    }
}

/// Reads a session that has ended again, and says whether it comes to what is stored.
pub async fn session<E: Extract>(
    client: &Client,
    extract: &E,
    session: Uuid,
) -> Result<SessionAgain, SessionError> {
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
        Ok(seen) => canonicalize(&seen).map_err(|error| error.to_string()),
        Err(ExtractError::Unreachable(why)) => return Err(SessionError::Unreachable(why)),
        Err(error) => Err(error.to_string()),
    };
    let day = match (day, state.as_str()) {
        (Ok(day), "done") => day,
        (Err(why), "failed") => return Ok(SessionAgain::Unread { why }),
        (Ok(_), _) => {
            let why = "the session failed, and can be read now".to_owned();
            return Ok(SessionAgain::Differs { why });
        }
        (Err(why), _) => return Ok(SessionAgain::Differs { why }),
    };
    let (schedule_date, hash) = (day.schedule_date, day.hash());
    if let Some((version, stored)) = made {
        return Ok(match stored == hash {
            true => SessionAgain::Same { schedule_date, version },
            false => SessionAgain::Differs { why: format!("it is not version {version} any more") },
        });
    }
    let known = client.query_one(SAME_HASH, &[&user_id, &schedule_date, &hash]).await?;
    if let Some(version) = known.try_get::<_, Option<i32>>(0)? {
        return Ok(SessionAgain::Known { schedule_date, version });
    }
    let later = client.query_one(LATER, &[&user_id, &schedule_date, &session]).await?;
    Ok(match later.try_get(0)? {
        true => SessionAgain::Superseded { schedule_date },
        false => SessionAgain::Differs { why: "no version shows what it shows".to_owned() },
    })
}
