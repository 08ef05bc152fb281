//! A person's week as an operator looks at it: the last versions of each day, and what each changed. Nothing is written here.
//!
//! Promises: a week costs one statement, and a person one step of an index, however many versions there are. A version that somebody else wrote
//! in another form is shown as there and not understood, and hides nothing else.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::canonical::{Day, Shift};
use crate::diff::{EventType, diff};

/// The most people that are listed at once.
pub const MAX_USERS: usize = 1_000;
/// The last versions of a day that are shown.
pub const MAX_VERSIONS: i32 = 20;
/// The days of a week.
pub const DAYS: usize = 7;

// One step of the primary key for each person: a person may have thousands of days.
const USERS: &str = "WITH RECURSIVE person (id, place) AS (
    (SELECT user_id, 1 FROM schedule_ingest.day_schedule
     WHERE $1::bigint IS NULL OR user_id > $1 ORDER BY user_id LIMIT 1)
    UNION ALL
    SELECT (SELECT user_id FROM schedule_ingest.day_schedule WHERE user_id > id ORDER BY user_id LIMIT 1), place + 1
    FROM person WHERE id IS NOT NULL AND place < $2)
SELECT id FROM person WHERE id IS NOT NULL ORDER BY id";
const VERSIONS: &str = "SELECT v.schedule_date, d.current_version, v.version, v.session_id, v.created_at, v.payload_hash, v.payload
FROM schedule_ingest.day_schedule d JOIN schedule_ingest.schedule_version v USING (user_id, schedule_date)
WHERE d.user_id = $1 AND d.schedule_date BETWEEN $2 AND $3 AND v.version >= d.current_version - $4
ORDER BY v.schedule_date, v.version";

/// Some of those who have a schedule, by their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Users {
    /// The people.
    pub items: Vec<i64>,
    /// Where the next ones begin; nothing when these are the last.
    pub next_after: Option<i64>,
}

/// Seven days of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Week {
    /// Whose.
    pub user_id: i64,
    /// The first day.
    pub from: Date,
    /// The days, in order, whether something is known of them or not.
    pub days: Vec<WeekDay>,
}

/// A day of a week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeekDay {
    /// Which.
    pub schedule_date: Date,
    /// The current version, which is how many there were; nothing when the day was never seen.
    pub current_version: Option<i32>,
    /// Where its clock stands, as the current version says.
    pub timezone: Option<String>,
    /// The last versions, the oldest first.
    pub versions: Vec<SeenVersion>,
}

/// A version as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenVersion {
    /// Its number.
    pub version: i32,
    /// The session that saw it.
    pub session_id: Uuid,
    /// When it was made.
    pub created_at: Timestamp,
    /// As stored.
    pub payload_hash: String,
    /// Its shifts; nothing when it is not a canonical day, because somebody else wrote it.
    pub shifts: Option<Vec<Shift>>,
    /// What it changed against the version before it, or against an empty day; nothing when one of the two cannot be read.
    pub changes: Option<Vec<ShiftChange>>,
}

/// What happened to a shift from one version to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShiftChange {
    /// What happened, in the words of the events.
    pub types: Vec<EventType>,
    /// The shift as it was.
    pub old: Option<Shift>,
    /// The shift as it is.
    pub new: Option<Shift>,
}

/// Some people with a schedule, after one of them.
pub async fn users(client: &Client, after: Option<i64>, limit: usize) -> Result<Users, pg::Error> {
    let limit = limit.clamp(1, MAX_USERS);
    // One more than is shown tells whether these are the last.
    let asked = i32::try_from(limit + 1).unwrap_or(i32::MAX);
    let rows = client.query(USERS, &[&after, &asked]).await?;
    let mut items: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next_after = items.last().copied().filter(|_| more);
    Ok(Users { items, next_after })
}

/// A person's week from this day on.
pub async fn week(client: &Client, user_id: i64, from: Date) -> Result<Week, pg::Error> {
    let dates: Vec<Date> = from.series(jiff::Span::new().days(1)).take(DAYS).collect();
    let last = dates.last().copied().unwrap_or(from);
    // The one before the first that is shown is what that one is compared with.
    let rows = client.query(VERSIONS, &[&user_id, &from, &last, &MAX_VERSIONS]).await?;
    let mut known: BTreeMap<Date, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        known.entry(row.try_get(0)?).or_default().push(row);
    }
    let days = dates.into_iter().map(|date| match known.get(&date) {
        Some(rows) => day(date, rows),
        None => Ok(WeekDay {
            schedule_date: date,
            current_version: None,
            timezone: None,
            versions: Vec::new(),
        }),
    });
    Ok(Week { user_id, from, days: days.collect::<Result<_, _>>()? })
}

fn day(schedule_date: Date, rows: &[&Row]) -> Result<WeekDay, pg::Error> {
    let mut versions = Vec::with_capacity(rows.len());
    let (mut current_version, mut timezone) = (None, None);
    // The shifts before: none at all before the first version.
    let mut before: Option<Vec<Shift>> = Some(Vec::new());
    for row in rows {
        current_version = Some(row.try_get(1)?);
        let payload: serde_json::Value = row.try_get(6)?;
        let read: Option<Day> = serde_json::from_value(payload).ok();
        timezone = read.as_ref().map(|day| day.timezone.clone());
        let shifts = read.map(|day| day.shifts);
        let changes = before.as_deref().zip(shifts.as_deref()).map(|(old, new)| {
            let each = diff(old, new).into_iter();
            each.map(|change| ShiftChange { types: change.types, old: change.old, new: change.new })
                .collect()
        });
        versions.push(SeenVersion {
            version: row.try_get(2)?,
            session_id: row.try_get(3)?,
            created_at: row.try_get(4)?,
            payload_hash: row.try_get(5)?,
            shifts: shifts.clone(),
            changes,
        });
        before = shifts;
    }
    let shown = usize::try_from(MAX_VERSIONS).unwrap_or(usize::MAX);
    let surplus = versions.len().saturating_sub(shown);
    versions.drain(..surplus);
    Ok(WeekDay { schedule_date, current_version, timezone, versions })
}
