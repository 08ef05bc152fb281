//! The answers of the schedules' intake, as far as the console reads them.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Fault, PATIENT, QUICK, Remote};

/// Asked for a list of people; whoever has more types a number.
const MAX_USERS: usize = 500;

/// What a poll of schedules finds.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ScheduleFacts {
    /// How long the oldest complete capture has been due; nothing when none is.
    pub(crate) sessions_oldest_seconds: f64,
    /// The same of messages.
    pub(crate) messages_oldest_seconds: f64,
}

/// Some of those who have a schedule.
#[derive(Debug, Deserialize)]
pub(crate) struct Users {
    pub(crate) items: Vec<i64>,
    pub(crate) next_after: Option<i64>,
}

/// Seven days of a person.
#[derive(Debug, Deserialize)]
pub(crate) struct Week {
    pub(crate) days: Vec<ScheduleDay>,
}

/// A day.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScheduleDay {
    pub(crate) schedule_date: Date,
    /// How many versions there were; null when the day was never seen.
    pub(crate) current_version: Option<i32>,
    /// Where its clock stands.
    pub(crate) timezone: Option<String>,
    /// The last of them, the oldest first.
    pub(crate) versions: Vec<ScheduleVersion>,
}

/// A version of a day.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScheduleVersion {
    version: i32,
    created_at: Timestamp,
    /// Null when it is not in the form of ours, because somebody else wrote it.
    shifts: Option<Vec<Shift>>,
    /// Against the version before it; null when one of the two cannot be read.
    changes: Option<Vec<ShiftChange>>,
}

/// A shift.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Shift {
    start: String,
    end: String,
    ends_next_day: bool,
    title: String,
    location: String,
    customer: String,
    kind: String,
}

/// What happened to a shift.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ShiftChange {
    types: Vec<String>,
    old: Option<Shift>,
    new: Option<Shift>,
}

/// Polls it.
pub(crate) async fn poll(schedule: &Remote) -> Result<ScheduleFacts, Fault> {
    schedule.get("/api/v1/summary", &[], QUICK).await
}

/// Those who have a schedule, as far as they fit a list.
pub(crate) async fn users(schedule: &Remote) -> Result<Users, Fault> {
    schedule.get("/api/v1/users", &[("limit", MAX_USERS.to_string())], PATIENT).await
}

/// A person's week.
pub(crate) async fn week(schedule: &Remote, user: i64, from: Date) -> Result<Week, Fault> {
    let path = format!("/api/v1/users/{user}/week");
    schedule.get(&path, &[("from", from.to_string())], PATIENT).await
}
