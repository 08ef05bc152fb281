//! The consumers' dead letters: by cause, sent back, and how far that is.
//!
//! On the inline bus they are rows, which a replay marks and the cloud works off. A broker keeps its own: they are looked at there, and the replica that was asked sends them
//! back in the background. Either way a replay is a record of `operator_audit`, by which any replica says how far it is.

use api::tokens::{Tenants, Token};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bus::ReplayOptions;
use bus::letterbox::Desk;
use event::id::TenantId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answer, Asker, Http, Meant, Refused, may_act, may_look, tally, unavailable};
use crate::dead_letters::audit::{self, Actor, Counted, Deed, Record};
use crate::dead_letters::broker::Replay;
use crate::dead_letters::{self, Wanted};

/// Letters a second that are replayed unless something else is asked for, and at most.
const PER_SECOND: u32 = 100;
const MAX_PER_SECOND: u32 = 10_000;
/// The deed, as it is recorded.
const REPLAY: &str = "dlq.replay";

pub(super) async fn list(State(http): State<Http>, Extension(token): Asker) -> Answer {
    may_look(&token)?;
    let Some(desk) = &http.service.letters else {
        let client = http.service.pool.get().await.map_err(unavailable)?;
        let groups = tally::bus_groups(&client, &token.tenants).await.map_err(unavailable)?;
        return Ok(Json(json!({"groups": groups})));
    };
    let look = desk.look().await.map_err(|_| {
        let message = "the broker does not show its dead letters now; the cloud's log says why";
        Refused::unavailable("unavailable", message)
    })?;
    let groups = tally::looked_groups(&look, &token.tenants);
    // How many there are of everybody is for those who see everybody's.
    let all = matches!(token.tenants, Tenants::All);
    Ok(Json(json!({
        "groups": groups, "at": look.at, "more": look.looked_at < look.total,
        "looked_at": all.then_some(look.looked_at), "total": all.then_some(look.total),
    })))
}

pub(super) async fn replay(
    State(http): State<Http>,
    Extension(token): Asker,
    body: Body,
) -> Result<Response, Refused> {
    let meant = Meant::read(&token, body).await?;
    let per_second = meant.per_second.unwrap_or(PER_SECOND);
    if !(1..=MAX_PER_SECOND).contains(&per_second) {
        let message = format!("per_second must be from 1 to {MAX_PER_SECOND}");
        return Err(Refused::malformed(Some("per_second"), message));
    }
    let wanted = Wanted {
        message_ids: (!meant.ids.is_empty()).then(|| meant.ids.clone()),
        cause_code: meant.reason.clone(),
        tenant: meant.tenant(),
        ..Wanted::default()
    };
    let limit = meant.limit() as usize;
    let parameters = json!({
        "cause": meant.reason, "tenant": meant.tenant_id, "id": meant.ids, "limit": limit,
        "per_second": per_second, "bus": http.service.bus,
    });
    let actor = Actor::from(&token);
    let deed = Deed { actor: &actor, action: REPLAY, parameters, dry_run: meant.dry_run };
    match &http.service.letters {
        None => {
            let marked = mark(&http, &meant, &wanted, (limit, per_second), &deed).await?;
            Ok(Json(marked).into_response())
        }
        Some(desk) => {
            let dry_run = meant.dry_run;
            let options = ReplayOptions { filter: wanted.filter(), limit, per_second, dry_run };
            let begun = send_back(&http, desk, options, &deed).await?;
            Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
        }
    }
}

/// On the inline bus: marks the rows.
async fn mark(
    http: &Http,
    meant: &Meant,
    wanted: &Wanted,
    (limit, per_second): (usize, u32),
    deed: &Deed<'_>,
) -> Result<Value, Refused> {
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let replay = async |id| {
        let matched = dead_letters::count(&client, wanted).await?;
        let changed = match deed.dry_run {
            true => 0,
            false => dead_letters::request_replay(&client, wanted, limit, per_second, id).await?,
        };
        Ok(Counted { matched, changed })
    };
    let done = audit::recorded(&client, deed, replay).await;
    let (id, Counted { matched, changed }) = done.map_err(unavailable)?;
    let state = if changed == 0 { "done" } else { "running" };
    let by_cause = meant.by_cause(matched);
    Ok(json!({
        "matched": matched, "changed": changed, "by_cause": by_cause, "replay_id": id, "state": state
    }))
}

/// On a broker: begins in the background.
async fn send_back(
    http: &Http,
    desk: &Desk<Option<Uuid>>,
    options: ReplayOptions,
    deed: &Deed<'_>,
) -> Result<Value, Refused> {
    let replay = Replay::begin(&http.service.database, deed).await.map_err(unavailable)?;
    let replay = replay.ok_or_else(|| {
        let message = "dead letters are being replayed already, one replay at a time: come back when it has ended";
        Refused::new(StatusCode::CONFLICT, "replay_runs", message)
    })?;
    let id = replay.id();
    desk.start(options, Box::new(replay));
    Ok(json!({"replay_id": id, "state": "running"}))
}

pub(super) async fn progress(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(id): Path<String>,
) -> Answer {
    may_act(&token)?;
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such replay");
    let id: i64 = id.parse().map_err(|_| missing())?;
    let client = http.service.pool.get().await.map_err(unavailable)?;
    // Before the record is read: one that ends in between has said so there, and was not cut off.
    let runs = Replay::runs(&client, id).await.map_err(unavailable)?;
    let record = audit::show(&client, id).await.map_err(unavailable)?;
    let record = record.filter(|record| record.action == REPLAY && is_of(&token, record));
    let record = record.ok_or_else(missing)?;
    let (state, left, total) = stands(&client, &record, runs).await.map_err(unavailable)?;
    Ok(Json(json!({
        "replay_id": record.id, "state": state, "dry_run": record.dry_run,
        "matched": record.matched, "changed": record.changed, "left": left, "total": total,
        "error": record.error,
    })))
}

/// Whether a replay is of tenants of the token's own.
fn is_of(token: &Token, record: &Record) -> bool {
    match &token.tenants {
        Tenants::All => true,
        Tenants::Only(_) => {
            let tenant = record.parameters["tenant"].as_str();
            let tenant = tenant.and_then(|text| text.parse::<TenantId>().ok());
            tenant.is_some_and(|tenant| token.tenants.allow(tenant))
        }
    }
}

/// How a replay stands: in a word, how many are left, and of how many.
async fn stands(
    client: &pg::Client,
    record: &Record,
    runs: bool,
) -> Result<(&'static str, u64, u64), pg::Error> {
    let number = |value: Option<i64>| value.unwrap_or_default().unsigned_abs();
    let total = number(record.total);
    Ok(match record.outcome.as_str() {
        "started" => {
            let left = total.saturating_sub(number(record.seen));
            (if runs { "running" } else { "cut_off" }, left, total)
        }
        "failed" => ("failed", total.saturating_sub(number(record.seen)), total),
        // A replay on a broker is over. One of rows is recorded when they are marked.
        _ if record.total.is_some() => ("done", 0, total),
        _ => {
            let left = dead_letters::replays_left(client, record.id).await?;
            (if left == 0 { "done" } else { "running" }, left, number(record.changed))
        }
    })
}
