//! What an operator looks at over HTTP: what waits, who has a schedule, and a person's week.

use api::Refused;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::response::IntoResponse;
use jiff::civil::Date;

use super::http::{Answer, Http, unavailable};
use crate::waiting::waiting;
use crate::week::{self, MAX_USERS};

/// So many people are listed unless somebody asks for more.
const USERS: usize = 200;
/// The most parameters of a query; there are never more than two that are known.
const MAX_PARAMETERS: usize = 8;

/// A parameter that breaks its rule.
fn wrong(name: &str, rule: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} must be {rule}"))
}

/// The parameters of a query, each known and there once.
fn parameters<'a, const N: usize>(
    query: Option<&'a str>,
    known: [&str; N],
) -> Result<[Option<&'a str>; N], Refused> {
    let mut found = [None; N];
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = known.iter().position(|one| *one == name).filter(|_| count < MAX_PARAMETERS);
        let Some(place) = place.filter(|place| found[*place].is_none()) else {
            let message = format!("expected {}, each once at the most", known.join(" and "));
            return Err(Refused::malformed(None, message));
        };
        found[place] = Some(value);
    }
    Ok(found)
}

/// What waits.
pub(super) async fn summary(State(http): State<Http>) -> Answer {
    let looked = async { waiting(&*http.intake.pool.get().await?).await };
    let found = looked.await.map_err(|error| unavailable(&error))?;
    Ok(Json(found).into_response())
}

/// Those who have a schedule.
pub(super) async fn users(State(http): State<Http>, RawQuery(query): RawQuery) -> Answer {
    let [after, limit] = parameters(query.as_deref(), ["after", "limit"])?;
    let number = |text: &str| text.parse().map_err(|_| wrong("after", "the number of a user"));
    let after: Option<i64> = after.map(number).transpose()?;
    let limit = match limit {
        None => USERS,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=MAX_USERS).contains(limit));
            limit.ok_or_else(|| wrong("limit", &format!("1 to {MAX_USERS}")))?
        }
    };
    let looked = async { week::users(&*http.intake.pool.get().await?, after, limit).await };
    Ok(Json(looked.await.map_err(|error| unavailable(&error))?).into_response())
}

/// A person's week.
pub(super) async fn week(
    State(http): State<Http>,
    Path(user): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let user: i64 = user.parse().map_err(|_| wrong("user_id", "the number of a user"))?;
    let [from] = parameters(query.as_deref(), ["from"])?;
    let from = from.and_then(|text| text.parse::<Date>().ok());
    // The last days of the calendar have no week after them.
    let from = from.filter(|date| (1..=9_998).contains(&date.year()));
    let from = from.ok_or_else(|| wrong("from", "the first day, like 2026-11-16"))?;
    let looked = async { week::week(&*http.intake.pool.get().await?, user, from).await };
    Ok(Json(looked.await.map_err(|error| unavailable(&error))?).into_response())
}
