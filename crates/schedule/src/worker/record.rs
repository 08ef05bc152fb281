//! What a session saw, written: version, events, snapshot and notifications in one transaction, or nothing of it.
//!
//! Sessions of one user's day come here one after the other, by an advisory lock. The fence is asked under that lock: a worker that lost its session
//! writes nothing.

use tokio_postgres::Transaction;
use uuid::Uuid;

use super::table::Claimed;
use crate::canonical::{Day, Shift};
use crate::diff::{self, Change, Event};
use crate::notify::{self, Language, News};

/// A process that is stopped in the middle of its transaction holds the day and the session's row, past its lease and for as long as it sleeps. The
/// server ends the transaction of one that says nothing for this long: between two statements here there is no work to wait for.
const LOCK: &str = "SELECT set_config('idle_in_transaction_session_timeout', '5s', true),
    pg_advisory_xact_lock(hashtextextended(
    'schedule_ingest:' || $1::int8 || ':' || to_char($2::date, 'YYYY-MM-DD'), 0))";
const FENCE: &str = "SELECT FROM schedule_ingest.capture_session
WHERE id = $1 AND lease_token = $2 AND lease_state = 'claimed' FOR NO KEY UPDATE";
const CURRENT: &str = "SELECT v.version, v.payload_hash
FROM schedule_ingest.day_schedule d
JOIN schedule_ingest.schedule_version v
    ON (v.user_id, v.schedule_date, v.version) = (d.user_id, d.schedule_date, d.current_version)
WHERE d.user_id = $1 AND d.schedule_date = $2";
const SNAPSHOT: &str = "SELECT p.snapshot_payload, s.opened_seq
FROM schedule_ingest.day_snapshot p
LEFT JOIN schedule_ingest.capture_session s ON s.id = p.source_session_id
WHERE p.user_id = $1 AND p.schedule_date = $2";
const VERSION: &str = "INSERT INTO schedule_ingest.schedule_version
    (user_id, schedule_date, version, session_id, payload, payload_hash)
VALUES ($1, $2, $3, $4, $5::text::jsonb, $6) ON CONFLICT DO NOTHING RETURNING version";
const OWN_VERSION: &str = "SELECT FROM schedule_ingest.schedule_version WHERE session_id = $1";
const EVENTS: &str = "INSERT INTO schedule_ingest.schedule_event
    (event_id, user_id, schedule_date, event_type, location_fingerprint, customer_fingerprint,
     old_value_hash, new_value_hash, old_value, new_value, source_session_id, base_version)
SELECT id, $1, $2, type, location, customer, old_hash, new_hash, old::jsonb, new::jsonb, $3, $4
FROM unnest($5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
    AS e(id, type, location, customer, old_hash, new_hash, old, new)
ON CONFLICT DO NOTHING";
const PUT_SNAPSHOT: &str = "INSERT INTO schedule_ingest.day_snapshot
    (user_id, schedule_date, snapshot_payload, source_session_id, updated_at)
VALUES ($1, $2, $3::text::jsonb, $4, now())
ON CONFLICT (user_id, schedule_date) DO UPDATE SET snapshot_payload = EXCLUDED.snapshot_payload,
    source_session_id = EXCLUDED.source_session_id, updated_at = EXCLUDED.updated_at";
const LANGUAGE: &str = "SELECT language FROM schedule_ingest.user_setting WHERE user_id = $1";
const NOTIFICATIONS: &str = "INSERT INTO schedule_ingest.schedule_notification
    (notification_id, user_id, schedule_date, source_session_id, status, notification_type, message, event_ids)
SELECT id, $1, $2, $3, 'pending', type, message, events::jsonb
FROM unnest($4::text[], $5::text[], $6::text[], $7::text[]) AS n(id, type, message, events)
ON CONFLICT (notification_id) DO NOTHING";

/// What became of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// A new version of the day.
    Created {
        /// Its number.
        version: i32,
        /// How many events it has.
        events: usize,
        /// How many messages tell of them.
        notifications: usize,
    },
    /// The day is as it was.
    Unchanged,
    /// The session has made its version before.
    Existing,
    /// A session that was opened later has been seen already.
    Superseded,
    /// The session is not this worker's any more. Nothing was written.
    Fenced,
}

/// Why an observation was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The database, or the way to it.
    #[error(transparent)]
    Postgres(#[from] pg::Error),
    /// Somebody wrote a snapshot that is none.
    #[error("the stored snapshot of this day is not a list of canonical shifts")]
    Snapshot,
    /// Somebody who does not take the lock made the same version in between. Doing it again sees theirs.
    #[error("another worker made the same version of this day")]
    Overtaken,
}

impl From<tokio_postgres::Error> for RecordError {
    fn from(error: tokio_postgres::Error) -> Self {
        RecordError::Postgres(pg::Error::from(error))
    }
}

/// Records what a claimed session saw. `token` is that of its lease.
pub async fn record(
    client: &mut tokio_postgres::Client,
    claimed: &Claimed,
    token: Uuid,
    day: &Day,
) -> Result<Recorded, RecordError> {
    let transaction = client.transaction().await?;
    let recorded = Recording { transaction: &transaction, claimed, day }.write(token).await?;
    transaction.commit().await?;
    Ok(recorded)
}

/// What is known of the day from before.
struct Before {
    shifts: Vec<Shift>,
    /// Which in order the session was opened that saw it, if it is known.
    seen: Option<Option<i64>>,
}

struct Recording<'a> {
    transaction: &'a Transaction<'a>,
    claimed: &'a Claimed,
    day: &'a Day,
}

impl Recording<'_> {
    async fn write(&self, token: Uuid) -> Result<Recorded, RecordError> {
        let (Claimed { session, user_id, .. }, date) = (self.claimed, self.day.schedule_date);
        self.transaction.execute(LOCK, &[user_id, &date]).await?;
        if self.transaction.query_opt(FENCE, &[session, &token]).await?.is_none() {
            return Ok(Recorded::Fenced);
        }
        let before = self.before().await?;
        // A session that reads another again was opened when that one was: among equals the last to come is right.
        if before.seen.is_some_and(|opened| opened > Some(self.claimed.opened)) {
            return Ok(Recorded::Superseded);
        }
        let current = self.transaction.query_opt(CURRENT, &[user_id, &date]).await?;
        let hash = self.day.hash();
        let base: i32 = match current {
            None => 0,
            Some(row) => {
                if row.try_get::<_, &str>("payload_hash")? == hash {
                    self.put_snapshot().await?;
                    return Ok(Recorded::Unchanged);
                }
                row.try_get("version")?
            }
        };
        let (payload, version) = (self.day.to_json(), base + 1);
        let created = self
            .transaction
            .query_opt(VERSION, &[user_id, &date, &version, session, &payload, &hash])
            .await?;
        if created.is_none() {
            // The session's own version, or a number that somebody else was quicker to take.
            let own = self.transaction.query_opt(OWN_VERSION, &[session]).await?;
            return own.map(|_| Recorded::Existing).ok_or(RecordError::Overtaken);
        }
        let changes: Vec<(Change, Vec<Event>)> = diff::diff(&before.shifts, &self.day.shifts)
            .into_iter()
            .map(|change| {
                let events = change.events(*user_id, date, base);
                (change, events)
            })
            .collect();
        self.put_events(&changes, base).await?;
        self.put_snapshot().await?;
        let notifications = self.put_notifications(&changes, base == 0).await?;
        let events = changes.iter().map(|(_, events)| events.len()).sum();
        Ok(Recorded::Created { version, events, notifications })
    }

    async fn before(&self) -> Result<Before, RecordError> {
        let key: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&self.claimed.user_id, &self.day.schedule_date];
        let Some(row) = self.transaction.query_opt(SNAPSHOT, &key).await? else {
            return Ok(Before { shifts: Vec::new(), seen: None });
        };
        let payload: serde_json::Value = row.try_get("snapshot_payload")?;
        let shifts = serde_json::from_value(payload).map_err(|_| RecordError::Snapshot)?;
        let seen = Some(row.try_get("opened_seq")?);
        Ok(Before { shifts, seen })
    }

    async fn put_snapshot(&self) -> Result<(), RecordError> {
        let (Claimed { session, user_id, .. }, date) = (self.claimed, self.day.schedule_date);
        let payload = json(&self.day.shifts);
        self.transaction.execute(PUT_SNAPSHOT, &[user_id, &date, &payload, session]).await?;
        Ok(())
    }

    async fn put_events(
        &self,
        changes: &[(Change, Vec<Event>)],
        base: i32,
    ) -> Result<(), RecordError> {
        let (Claimed { session, user_id, .. }, date) = (self.claimed, self.day.schedule_date);
        let all =
            || changes.iter().flat_map(|(change, events)| events.iter().map(move |e| (change, e)));
        let texts = |of: fn(&Event) -> &str| all().map(|(_, event)| of(event)).collect::<Vec<_>>();
        let values = |of: fn(&Change) -> &Option<Shift>| {
            all().map(|(change, _)| of(change).as_ref().map(json)).collect::<Vec<_>>()
        };
        let ids: Vec<Uuid> = all().map(|(_, event)| event.event_id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.transaction
            .execute(
                EVENTS,
                &[
                    user_id,
                    &date,
                    session,
                    &base,
                    &ids,
                    &texts(|event| event.event_type.as_str()),
                    &texts(|event| &event.location_fingerprint),
                    &texts(|event| &event.customer_fingerprint),
                    &texts(|event| &event.old_value_hash),
                    &texts(|event| &event.new_value_hash),
                    &values(|change| &change.old),
                    &values(|change| &change.new),
                ],
            )
            .await?;
        Ok(())
    }

    async fn put_notifications(
        &self,
        changes: &[(Change, Vec<Event>)],
        first: bool,
    ) -> Result<usize, RecordError> {
        let (Claimed { session, user_id, .. }, date) = (self.claimed, self.day.schedule_date);
        let language = self.transaction.query_opt(LANGUAGE, &[user_id]).await?;
        let language = match language {
            Some(row) => Language::of_tag(row.try_get(0)?),
            None => Language::default(),
        };
        let changes: Vec<(Change, Vec<Uuid>)> = changes
            .iter()
            .map(|(change, events)| {
                (change.clone(), events.iter().map(|event| event.event_id).collect())
            })
            .collect();
        let news = News {
            session: *session,
            schedule_date: date,
            first,
            changes: &changes,
            shifts: &self.day.shifts,
        };
        let told = notify::notifications(&news, language);
        if told.is_empty() {
            return Ok(0);
        }
        let ids: Vec<&str> = told.iter().map(|n| n.notification_id.as_str()).collect();
        let types: Vec<&str> = told.iter().map(|n| n.notification_type.as_str()).collect();
        let messages: Vec<&str> = told.iter().map(|n| n.message.as_str()).collect();
        let events: Vec<String> = told.iter().map(|n| json(&n.event_ids)).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [user_id, &date, session, &ids, &types, &messages, &events];
        self.transaction.execute(NOTIFICATIONS, &parameters).await?;
        Ok(told.len())
    }
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    // Strings, booleans and lists of them: nothing that could fail.
    serde_json::to_string(value).unwrap_or_default()
}
