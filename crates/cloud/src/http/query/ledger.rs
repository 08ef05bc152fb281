//! The ledger for the comparison of tiers: docs/spec/verify.md.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use event::id::{Epoch, EventId, MediaId, NodeId};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Parameters, answer, tenant, unavailable};
use crate::copies;
use crate::http::Http;
use crate::http::refused::Refused;
use crate::ledger::states::{self, MAX_BLOCKS, MAX_MARKED, MAX_STREAMS, Wanted};
use crate::ledger::{StreamName, bare, trace};
use crate::tokens::{Caller, Tenants, Token};

type Asker = Extension<Caller>;

/// Adds the routes.
pub(super) fn routes(router: Router<Http>) -> Router<Http> {
    router
        .route("/api/v1/ledger/streams", get(streams))
        .route("/api/v1/ledger/blocks", get(blocks))
        .route("/api/v1/ledger/marks", get(marks))
        .route("/api/v1/ledger/events/{event_id}", get(event))
        .route("/api/v1/ledger/hours", get(hours))
        .route("/api/v1/ledger/held", get(held))
        .route("/api/v1/ledger/told", get(told))
        .route("/api/v1/ledger/media", get(media))
}

async fn streams(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_streams(&token, query.as_deref()).await)
}

async fn blocks(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_blocks(&token, query.as_deref()).await)
}

async fn marks(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_marks(&token, query.as_deref()).await)
}

async fn event(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_event(&token, query.as_deref(), &id).await)
}

async fn hours(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_hours(&token, query.as_deref()).await)
}

async fn held(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_held(&token, query.as_deref()).await)
}

async fn told(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_told(&token, query.as_deref()).await)
}

async fn media(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Response {
    answer(http.ledger_media(&token, query.as_deref()).await)
}

fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Refused> {
    text.parse().map_err(|error| Refused::malformed(Some(name), format!("{name} {error}")))
}

fn given<T: FromStr<Err: Display>>(
    parameters: &Parameters,
    name: &str,
) -> Result<Option<T>, Refused> {
    parameters.get(name).map(|text| parse(name, text)).transpose()
}

fn needed<T: FromStr<Err: Display>>(parameters: &Parameters, name: &str) -> Result<T, Refused> {
    let missing = || Refused::malformed(Some(name), format!("{name} is missing"));
    given(parameters, name)?.ok_or_else(missing)
}

fn stream_name(token: &Token, parameters: &Parameters) -> Result<StreamName, Refused> {
    Ok(StreamName {
        tenant_id: tenant(token, parameters)?,
        stream: needed::<NodeId>(parameters, "stream")?,
        epoch: needed::<Epoch>(parameters, "epoch")?,
    })
}

impl Http {
    async fn ledger_streams(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let known = vec!["tenant_id", "stream", "after", "limit"];
        let parameters = Parameters::read(query, known)?;
        let tenants = Tenants::Only(vec![tenant(token, &parameters)?]);
        let limit: Option<u32> = given(&parameters, "limit")?;
        if limit.is_some_and(|limit| !(1..=MAX_STREAMS).contains(&limit)) {
            let message = format!("limit must be from 1 to {MAX_STREAMS}");
            return Err(Refused::malformed(Some("limit"), message));
        }
        let after = parameters.get("after").map(|text| {
            let wrong = || Refused::malformed(Some("after"), "after is not a next_after");
            let [tenant, stream, epoch] =
                text.split(',').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
            let id = |text: &str| text.parse::<uuid::Uuid>().map_err(|_| wrong());
            let stream: NodeId = stream.parse().map_err(|_| wrong())?;
            Ok::<_, Refused>((id(tenant)?, stream.to_string(), id(epoch)?))
        });
        let wanted =
            Wanted { stream: given(&parameters, "stream")?, after: after.transpose()?, limit };
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let page = states::streams(&self.service.pool, &tenants, &wanted).await;
        Ok(json!(page.map_err(|error| unavailable(&error))?))
    }

    async fn ledger_blocks(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "stream", "epoch", "after"])?;
        let name = stream_name(token, &parameters)?;
        let after: Option<u64> = given(&parameters, "after")?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let found = states::blocks(&self.service.pool, &name, after).await;
        let found = found.map_err(|error| unavailable(&error))?;
        let full = found.len() == MAX_BLOCKS as usize;
        let next = found.last().filter(|_| full).map(|one| one.block);
        Ok(json!({"blocks": found, "next_after": next}))
    }

    async fn ledger_marks(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "stream", "epoch", "blocks"])?;
        let name = stream_name(token, &parameters)?;
        let text: String = needed(&parameters, "blocks")?;
        let blocks =
            text.split(',').map(|one| parse("blocks", one)).collect::<Result<Vec<u64>, _>>()?;
        if blocks.len() > MAX_MARKED {
            let message = format!("blocks must be 1 to {MAX_MARKED} numbers with commas");
            return Err(Refused::malformed(Some("blocks"), message));
        }
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let marks = states::marks(&self.service.pool, &name, &blocks).await;
        Ok(json!({"marks": marks.map_err(|error| unavailable(&error))?}))
    }

    async fn ledger_event(
        &self,
        token: &Token,
        query: Option<&str>,
        id: &str,
    ) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "occurred_at"])?;
        let tenants = Tenants::Only(vec![tenant(token, &parameters)?]);
        let occurred_at: Option<Timestamp> = given(&parameters, "occurred_at")?;
        let id: EventId = parse("event_id", id)?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let found = trace(&self.service.pool, &tenants, id, occurred_at).await;
        let found = found.map_err(|error| unavailable(&error))?;
        let missing = || {
            let message = "this tenant has no such event here";
            Refused::new(StatusCode::NOT_FOUND, "not_found", message)
        };
        Ok(json!(found.ok_or_else(missing)?))
    }

    async fn ledger_hours(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "hours"])?;
        let tenant = tenant(token, &parameters)?;
        let hours: Vec<i64> = several(&parameters, "hours")?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let found = bare::hours(&self.service.pool, tenant, &hours).await;
        let found = found.map_err(|error| unavailable(&error))?;
        let remembers = self.service.dedupe_ttl.as_secs();
        Ok(json!({"hours": found, "remembers_for_seconds": remembers}))
    }

    async fn ledger_held(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "event_ids"])?;
        let tenant = tenant(token, &parameters)?;
        let mut events: Vec<EventId> = several(&parameters, "event_ids")?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let lacking = bare::lacking(&self.service.pool, tenant, &events).await;
        let lacking = lacking.map_err(|error| unavailable(&error))?;
        events.retain(|event| !lacking.contains(event));
        Ok(json!({"held": events}))
    }

    async fn ledger_told(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "since"])?;
        let tenant = tenant(token, &parameters)?;
        let since: Timestamp = needed(&parameters, "since")?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let told = bare::told(&self.service.pool, tenant, since).await;
        Ok(json!({"told": told.map_err(|error| unavailable(&error))?}))
    }

    async fn ledger_media(&self, token: &Token, query: Option<&str>) -> Result<Value, Refused> {
        let parameters = Parameters::read(query, vec!["tenant_id", "media_ids"])?;
        let tenant = tenant(token, &parameters)?.uuid();
        let media: Vec<MediaId> = several(&parameters, "media_ids")?;
        let (_turn, _place) = (self.query_turn(token)?, self.query_place()?);
        let images: Vec<_> = media.iter().map(|media| (tenant, media.uuid())).collect();
        let answer = copies::held(&self.service.pool, &images, self.service.copies).await;
        Ok(json!(answer.map_err(|error| unavailable(&error))?))
    }
}

/// A list with commas. The length of a parameter bounds it.
fn several<T: FromStr<Err: Display>>(
    parameters: &Parameters,
    name: &str,
) -> Result<Vec<T>, Refused> {
    let text: String = needed(parameters, name)?;
    text.split(',').map(|one| parse(name, one)).collect()
}
