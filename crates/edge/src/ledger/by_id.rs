//! Events without a sequence, and images, over HTTP: for `holdfast verify` from another machine. docs/spec/verify.md has the routes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use api::Refused;
use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::{EventId, MediaId, TenantId};
use serde::Deserialize;
use serde_json::json;

use super::bare::{self, MAX_ACKED, MAX_HOURS};
use super::media::{self, MAX_IMAGES};
use crate::http::Http;
use crate::http::access::{Answer, Asker, may_act, may_look, may_see, read, unavailable};
use crate::http::ask::parse;
use crate::sync::admin::Actor;

/// A thousand ids, with room.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Images that are named in one address.
const MAX_NAMED: usize = 100;

pub(super) fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/ledger/hours", get(list_hours))
        .route("/api/v1/ledger/acked", get(list_acked))
        .route("/api/v1/ledger/resend", post(resend))
        .route("/api/v1/ledger/media", get(list_images))
        .route("/api/v1/ledger/media/events", get(list_events))
        .route("/api/v1/ledger/media/tell", post(tell))
}

/// The parameters of a request, each known and there once.
struct Asked(BTreeMap<String, String>);

impl Asked {
    fn read(query: Option<String>, allowed: &[&str]) -> Result<Asked, Refused> {
        let mut asked = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let known = allowed.contains(&&*name);
            let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            if !known || asked.insert(name.clone(), value.into_owned()).is_some() {
                let message = format!("parameter {name:?} is not known, or there twice");
                return Err(Refused::malformed(Some(&name), message));
            }
        }
        Ok(Asked(asked))
    }

    fn find<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Refused> {
        self.0.get(name).map(|text| parse(name, text)).transpose()
    }

    fn need<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, Refused> {
        let missing = || Refused::malformed(Some(name), format!("{name} is missing"));
        self.find(name)?.ok_or_else(missing)
    }
}

/// The tenants that are asked for: one that is named, or all of the token's.
fn tenants(
    token: &api::tokens::Token,
    named: Option<TenantId>,
) -> Result<api::tokens::Tenants, Refused> {
    may_see(token, named)?;
    let one = |tenant| api::tokens::Tenants::Only(vec![tenant]);
    Ok(named.map_or_else(|| token.tenants.clone(), one))
}

async fn list_hours(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "after"])?;
    let tenants = tenants(&token, asked.find("tenant_id")?)?;
    let after = asked.find::<String>("after")?.map(|text| {
        let wrong = || Refused::malformed(Some("after"), "after is not the next_after of a page");
        let (tenant, hour) = text.split_once(',').ok_or_else(wrong)?;
        let tenant = tenant.parse::<TenantId>().map_err(|_| wrong())?;
        Ok::<_, Refused>((tenant, hour.parse::<i64>().map_err(|_| wrong())?))
    });
    let found = bare::hours(http.pool(), &tenants, after.transpose()?).await;
    let found = found.map_err(unavailable)?;
    let full = i64::try_from(found.len()).is_ok_and(|count| count == MAX_HOURS);
    let last = found.last().filter(|_| full);
    let next = last.map(|one| format!("{},{}", one.tenant_id, one.hour));
    Ok(Json(json!({"hours": found, "next_after": next})).into_response())
}

async fn list_acked(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "hour", "after"])?;
    let tenant: TenantId = asked.need("tenant_id")?;
    may_see(&token, Some(tenant))?;
    let (hour, after) = (asked.need("hour")?, asked.find::<EventId>("after")?);
    let found = bare::acked(http.pool(), tenant, hour, after).await.map_err(unavailable)?;
    let full = i64::try_from(found.len()).is_ok_and(|count| count == MAX_ACKED);
    let next = found.last().filter(|_| full).map(|(event, _)| *event);
    let each = found.iter().map(|(event, at)| json!({"event_id": event, "acked_at": at}));
    let events: Vec<_> = each.collect();
    Ok(Json(json!({"events": events, "next_after": next})).into_response())
}

async fn list_images(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "after"])?;
    let tenants = tenants(&token, asked.find("tenant_id")?)?;
    let found = media::stored(http.pool(), &tenants, asked.find("after")?).await;
    let found = found.map_err(unavailable)?;
    let full = i64::try_from(found.len()).is_ok_and(|count| count == MAX_IMAGES);
    let next = found.last().filter(|_| full).map(|one| one.media_id);
    Ok(Json(json!({"media": found, "next_after": next})).into_response())
}

async fn list_events(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "media_ids"])?;
    let tenant: TenantId = asked.need("tenant_id")?;
    may_see(&token, Some(tenant))?;
    let text: String = asked.need("media_ids")?;
    let each = text.split(',').take(MAX_NAMED + 1).map(|one| parse("media_ids", one));
    let images = each.collect::<Result<Vec<MediaId>, _>>()?;
    if images.len() > MAX_NAMED {
        let message = format!("media_ids must be 1 to {MAX_NAMED} ids with commas");
        return Err(Refused::malformed(Some("media_ids"), message));
    }
    let found = media::events(http.pool(), tenant, &images).await.map_err(unavailable)?;
    Ok(Json(json!({"events": found})).into_response())
}

/// What is to be sent again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "Id: Deserialize<'de>")]
struct Again<Id> {
    tenant_id: TenantId,
    ids: Vec<Id>,
    #[serde(default)]
    dry_run: bool,
}

async fn again<Id: for<'de> Deserialize<'de>>(
    token: &api::tokens::Token,
    body: Body,
    most: i64,
) -> Result<Again<Id>, Refused> {
    may_act(token)?;
    let body = read(body, MAX_BODY_BYTES).await?;
    let what: Again<Id> = crate::http::body::json(&body)?;
    may_see(token, Some(what.tenant_id))?;
    match i64::try_from(what.ids.len()) {
        Ok(count) if (1..=most).contains(&count) => Ok(what),
        _ => Err(Refused::malformed(Some("ids"), format!("ids must be 1 to {most}"))),
    }
}

async fn resend(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    let what = again::<EventId>(&token, body, MAX_ACKED).await?;
    let actor = Actor::token(&token);
    let done = bare::put_back(http.pool(), &actor, what.tenant_id, &what.ids, what.dry_run).await;
    Ok(Json(json!({"sent": done.map_err(unavailable)?})).into_response())
}

async fn tell(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    let what = again::<MediaId>(&token, body, MAX_IMAGES).await?;
    let actor = Actor::token(&token);
    let told =
        media::tell_again(http.pool(), &actor, what.tenant_id, &what.ids, what.dry_run).await;
    Ok(Json(json!({"sent": told.map_err(unavailable)?})).into_response())
}
