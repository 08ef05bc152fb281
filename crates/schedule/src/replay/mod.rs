//! Doing it again: whether a day or a session comes to what is stored, and writing it where a session shows something else now.
//!
//! A day is made again from its versions: canonical form, hash, events and ids of messages; nothing is written. A session is read again by the same
//! reader: see [`session()`] and [`apply`]. What is found is told by number and name, never by the words of a schedule.

mod session;

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
pub use session::{Applied, SessionAgain, SessionError, apply, last_seen, session};

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
