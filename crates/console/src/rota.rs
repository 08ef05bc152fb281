//! People's schedules: a week as it was last seen, and what changed from version to version.

use api::Refused;
use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::User;
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::schedule::{self, ScheduleDay};

/// The days that a week has.
const DAYS: usize = 7;

/// A person's week.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleWeek {
    /// Whose it is: a number, as text, because it may be larger than a page can count. Null when nobody has a schedule.
    user: Option<String>,
    /// Those who have one.
    users: Vec<String>,
    /// Whether there are more of them.
    more_users: bool,
    from: Date,
    days: Vec<ScheduleDay>,
}

/// A person's week; the first one's when none is named.
#[utoipa::path(get, path = "/api/v1/schedules/week", tag = "schedules",
    params(("user" = Option<String>, Query), ("from" = Option<String>, Query)),
    responses((status = 200, body = ScheduleWeek), (status = 403), (status = 503)))]
pub(crate) async fn week(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["user", "from"], &[])?;
    // People are no tenants, as a plant is none.
    user.may_see_everything()?;
    let schedule = http.upstreams.schedule.as_ref().ok_or_else(|| {
        Refused::new(StatusCode::NOT_FOUND, "not_found", "there are no schedules to ask for")
    })?;
    let person = query.get("user").map(|text| text.parse::<i64>());
    let person = person.transpose().map_err(|_| wrong("user", "the number of a person"))?;
    let from = match query.get("from") {
        None => monday(Timestamp::now()),
        Some(text) => text.parse().map_err(|_| wrong("from", "a day, such as 2026-11-16"))?,
    };
    let away = |fault: crate::upstream::Fault| fault.refuse("schedules");
    let users = schedule::users(schedule).await.map_err(away)?;
    let person = person.or_else(|| users.items.first().copied());
    let days = match person {
        Some(person) => schedule::week(schedule, person, from).await.map_err(away)?.days,
        None => from.series(Span::new().days(1)).take(DAYS).map(unseen).collect(),
    };
    let text = |number: i64| number.to_string();
    Ok(Json(ScheduleWeek {
        user: person.map(text),
        users: users.items.into_iter().map(text).collect(),
        more_users: users.next_after.is_some(),
        from,
        days,
    })
    .into_response())
}

fn unseen(schedule_date: Date) -> ScheduleDay {
    ScheduleDay { schedule_date, current_version: None, timezone: None, versions: Vec::new() }
}

/// The first day of the week that it is in UTC.
fn monday(now: Timestamp) -> Date {
    let today = now.to_zoned(TimeZone::UTC).date();
    let since = i64::from(today.weekday().to_monday_zero_offset());
    today.checked_sub(Span::new().days(since)).unwrap_or(today)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_begins_on_monday() {
        for (now, first) in [
            ("2026-11-16T00:00:00Z", "2026-11-16"),
            ("2026-11-22T23:59:59Z", "2026-11-16"),
            ("2027-01-01T12:00:00Z", "2026-12-28"),
        ] {
            assert_eq!(monday(now.parse().unwrap()).to_string(), first);
        }
    }
}
