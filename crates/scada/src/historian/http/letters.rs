//! What the historian gave up: by cause, sent back, and how far that is. docs/spec/historian.md says how, on each bus.

use api::Refused;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bus::{CauseGroup, Filter, ReplayOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::may_act;
use super::{Bearer, Http, may_read, unavailable};
use crate::historian::audit::Actor;
use crate::historian::dead_letters::Replay;

/// The largest body: a thousand ids, with room.
pub(super) const MAX_BODY_BYTES: usize = 256 << 10;
/// The most ids that one call names.
const MAX_IDS: usize = 1_000;
/// The most letters of one replay.
const MAX_LETTERS: usize = 10_000;
/// Letters a second that are sent back unless something else is asked for, and at most.
const PER_SECOND: u32 = 100;
const MAX_PER_SECOND: u32 = 10_000;
/// The most groups that are shown, the largest first.
const MAX_GROUPS: usize = 500;

pub(super) async fn list(
    State(http): State<Http>,
    Extension(token): Bearer,
) -> Result<Json<Value>, Refused> {
    may_read(&token)?;
    let look = http.service.letters.look().await.map_err(|_| {
        let message = "the dead letters cannot be looked at now; the historian's log says why";
        Refused::unavailable("unavailable", message)
    })?;
    let group = |((), group): &((), CauseGroup)| {
        json!({
            "queue": group.queue, "cause": group.cause_code, "event_type": group.routing_key,
            "count": group.count, "first_at": group.first_at, "last_at": group.last_at,
            "sample_id": group.sample_id, "sample_message": group.sample_message,
        })
    };
    let groups: Vec<Value> = look.groups.iter().take(MAX_GROUPS).map(group).collect();
    Ok(Json(json!({
        "groups": groups, "at": look.at, "more": look.looked_at < look.total,
        "looked_at": look.looked_at, "total": look.total,
    })))
}

/// Which dead letters; all that is given must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    #[serde(default)]
    ids: Vec<String>,
    reason: Option<String>,
    #[serde(default)]
    all: bool,
    limit: Option<usize>,
    per_second: Option<u32>,
    #[serde(default)]
    dry_run: bool,
}

impl Meant {
    fn read(body: &[u8]) -> Result<Meant, Refused> {
        let meant: Meant = serde_json::from_slice(body).map_err(|_| {
            let expected =
                "expected {\"reason\", \"ids\" or \"all\", \"limit\", \"per_second\", \"dry_run\"}";
            Refused::malformed(None, expected)
        })?;
        let refuse = |field: &str, message: String| Err(Refused::malformed(Some(field), message));
        if meant.ids.is_empty() && meant.reason.is_none() && !meant.all {
            return refuse("all", "say which: ids or reason; or all for every one".to_owned());
        }
        if meant.ids.len() > MAX_IDS {
            return refuse("ids", format!("at most {MAX_IDS} ids"));
        }
        if meant.limit.is_some_and(|limit| !(1..=MAX_LETTERS).contains(&limit)) {
            return refuse("limit", format!("limit must be from 1 to {MAX_LETTERS}"));
        }
        if meant.per_second.is_some_and(|rate| !(1..=MAX_PER_SECOND).contains(&rate)) {
            return refuse("per_second", format!("per_second must be from 1 to {MAX_PER_SECOND}"));
        }
        Ok(meant)
    }
}

pub(super) async fn replay(
    State(http): State<Http>,
    Extension(token): Bearer,
    body: Bytes,
) -> Result<Response, Refused> {
    may_act(&token)?;
    let Meant { ids, reason, limit, per_second, dry_run, .. } = Meant::read(&body)?;
    let (limit, per_second) = (limit.unwrap_or(MAX_LETTERS), per_second.unwrap_or(PER_SECOND));
    let parameters = json!({
        "cause": reason, "id": ids, "limit": limit, "per_second": per_second, "dry_run": dry_run,
    });
    let message_ids = (!ids.is_empty()).then(|| ids.into_iter().collect());
    let filter = Filter { message_ids, cause_code: reason, ..Filter::default() };
    let (database, actor) = (&http.service.config.database, Actor::from(&token));
    let begun = Replay::begin(database, &actor, parameters).await;
    let replay = begun.map_err(|error| unavailable(&error))?.ok_or_else(|| {
        let message = "dead letters are being replayed already, one replay at a time: come back when it has ended";
        Refused::new(StatusCode::CONFLICT, "replay_runs", message)
    })?;
    let id = replay.id();
    let options = ReplayOptions { filter, limit, per_second, dry_run };
    http.service.letters.start(options, Box::new(replay));
    let begun = Json(json!({"replay_id": id, "state": "running"}));
    Ok((StatusCode::ACCEPTED, begun).into_response())
}

pub(super) async fn progress(
    State(http): State<Http>,
    Extension(token): Bearer,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refused> {
    may_read(&token)?;
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such replay");
    let id: i64 = id.parse().map_err(|_| missing())?;
    let (_place, client) = http.query().await?;
    let shown = Replay::show(&client, id).await.map_err(|error| unavailable(&error))?;
    shown.map(Json).ok_or_else(missing)
}
