//! What operators do with alarms.

use std::time::Duration;

use api::Refused;
use api::tokens::{Caller, Role, Token};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::lists::STATE;
use super::{Bearer, Http, unavailable};
use crate::historian::alarms::{Deed, Key, NotDone, act};
use crate::historian::audit::Actor;

type Place = Path<(String, String, String, String)>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shelf {
    minutes: u64,
    reason: String,
}

pub(super) async fn acknowledge(
    State(http): State<Http>,
    Extension(token): Bearer,
    place: Place,
) -> Response {
    answer(http.act(&token, place, Deed::Acknowledge).await)
}

pub(super) async fn unshelve(
    State(http): State<Http>,
    Extension(token): Bearer,
    place: Place,
) -> Response {
    answer(http.act(&token, place, Deed::Unshelve).await)
}

pub(super) async fn shelve(
    State(http): State<Http>,
    Extension(token): Bearer,
    place: Place,
    body: Bytes,
) -> Response {
    if let Err(refused) = may_act(&token) {
        return refused.into_response();
    }
    let longest = http.service.config.longest_shelf;
    let deed = serde_json::from_slice::<Shelf>(&body)
        .map_err(|_| {
            let expected = "expected {\"minutes\": 30, \"reason\": \"sensor is being replaced\"}";
            Refused::malformed(None, expected)
        })
        .and_then(|Shelf { minutes, reason }| {
            let during = Duration::from_secs(minutes.saturating_mul(60));
            if minutes == 0 || during > longest {
                let most = longest.as_secs() / 60;
                let message = format!("minutes is not understood: expected 1 to {most}");
                return Err(Refused::malformed(Some("minutes"), message));
            }
            Ok(Deed::Shelve { during, reason })
        });
    let done = match deed {
        Ok(deed) => http.act(&token, place, deed).await,
        Err(refused) => Err(refused),
    };
    answer(done)
}

/// Whether a token may act.
pub(super) fn may_act(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Operator | Role::Admin => Ok(()),
        Role::Edge | Role::Viewer => {
            Err(Refused::forbidden("this token may not act: use one of role operator"))
        }
    }
}

fn answer(done: Result<Value, Refused>) -> Response {
    match done {
        Ok(state) => Json(state).into_response(),
        Err(refused) => refused.into_response(),
    }
}

impl Http {
    async fn act(&self, caller: &Caller, place: Place, deed: Deed) -> Result<Value, Refused> {
        may_act(caller)?;
        let Path((plant, area, unit, tag)) = place;
        // The names came with the request, so they are not said back.
        let unknown =
            || Refused::new(StatusCode::NOT_FOUND, "no_such_alarm", "there is no such alarm");
        let key: Key = format!("{plant}.{area}.{unit}.{tag}").parse().map_err(|_| unknown())?;
        let mut client = self.service.pool.get().await.map_err(|error| unavailable(&error))?;
        let (actor, rules) = (Actor::from(caller), &self.service.config.rules);
        let done = act(&mut client, &actor, &key, &deed, Timestamp::now(), rules).await;
        done.map_err(|error| match error {
            NotDone::NotAllowed(_) => {
                Refused::new(StatusCode::CONFLICT, "not_allowed", error.to_string())
            }
            NotDone::Unknown(_) => unknown(),
            NotDone::Reason => Refused::malformed(Some("reason"), error.to_string()),
            NotDone::Database(error) => unavailable(&error),
        })?;
        let query = format!(
            "SELECT row_to_json(q)::text FROM (SELECT {STATE} FROM alarm_state
             WHERE plant = $1 AND area = $2 AND unit_name = $3 AND tag = $4) AS q"
        );
        let row = client.query_one(&query, &[&key.plant, &key.area, &key.unit, &key.tag]).await;
        let row = row.map_err(|error| unavailable(&error.into()))?;
        Ok(serde_json::from_str(row.get(0)).unwrap_or_default())
    }
}
