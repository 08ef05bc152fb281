//! The ledger over HTTP: who may ask, what they ask, the answers.

use api::Refused;
use api::open::Open;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::ledger::Repair;
use serde_json::json;

use super::states::{self, MAX_BLOCKS, MAX_MARKED, MAX_STREAMS, Wanted};
use super::{Error, StreamName, by_id, repair, trace};
use crate::config::Role;
use crate::http::access::{Answer, Asker, may_act, may_look, may_see, read, unavailable};
use crate::http::ask::{parse, unknown};
use crate::http::{Http, Service};
use crate::sync::admin::Actor;

/// The largest body: ten thousand ranges of each kind, with room.
const MAX_BODY_BYTES: usize = 2 << 20;

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Ingress,
    routes: &[
        (Method::GET, "/api/v1/ledger/streams", Open::Never),
        (Method::GET, "/api/v1/ledger/blocks", Open::Never),
        (Method::GET, "/api/v1/ledger/marks", Open::Never),
        (Method::GET, "/api/v1/ledger/places", Open::Never),
        (Method::GET, "/api/v1/ledger/events/{id}", Open::Never),
        (Method::POST, "/api/v1/ledger/repair", Open::Never),
        (Method::GET, "/api/v1/ledger/hours", Open::Never),
        (Method::GET, "/api/v1/ledger/acked", Open::Never),
        (Method::POST, "/api/v1/ledger/resend", Open::Never),
        (Method::GET, "/api/v1/ledger/media", Open::Never),
        (Method::GET, "/api/v1/ledger/media/events", Open::Never),
        (Method::POST, "/api/v1/ledger/media/tell", Open::Never),
    ],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/ledger/streams", get(list_streams))
        .route("/api/v1/ledger/blocks", get(list_blocks))
        .route("/api/v1/ledger/marks", get(list_marks))
        .route("/api/v1/ledger/places", get(list_places))
        .route("/api/v1/ledger/events/{id}", get(one_event))
        .route("/api/v1/ledger/repair", post(do_repair))
        .merge(by_id::router())
}

/// Every parameter that any of the lists has.
#[derive(Default)]
struct Asked {
    tenant_id: Option<TenantId>,
    stream: Option<NodeId>,
    epoch: Option<Epoch>,
    after: Option<String>,
    limit: Option<u32>,
    blocks: Vec<u64>,
    from: Option<u64>,
    to: Option<u64>,
    rows: bool,
}

impl Asked {
    /// Reads a query strictly: only these parameters, each understood.
    fn read(query: Option<String>, allowed: &[&str]) -> Result<Asked, Refused> {
        let mut asked = Asked::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !allowed.contains(&&*name) {
                return Err(unknown(&name));
            }
            match &*name {
                "tenant_id" => asked.tenant_id = Some(parse(&name, &value)?),
                "stream" => asked.stream = Some(parse(&name, &value)?),
                "epoch" => asked.epoch = Some(parse(&name, &value)?),
                "after" => asked.after = Some(value.into_owned()),
                "limit" => asked.limit = Some(parse(&name, &value)?),
                "from" => asked.from = Some(parse(&name, &value)?),
                "to" => asked.to = Some(parse(&name, &value)?),
                "blocks" => {
                    for number in value.split(',').take(MAX_MARKED + 1) {
                        asked.blocks.push(parse(&name, number)?);
                    }
                }
                _ => {
                    asked.rows = match &*value {
                        "rows" => true,
                        "ledger" => false,
                        _ => {
                            let message = "source must be ledger or rows";
                            return Err(Refused::malformed(Some("source"), message));
                        }
                    }
                }
            }
        }
        Ok(asked)
    }

    fn name(&self) -> Result<StreamName, Refused> {
        let missing = |field: &str| Refused::malformed(Some(field), format!("{field} is missing"));
        let stream = self.stream.clone().ok_or_else(|| missing("stream"))?;
        Ok(StreamName { stream, epoch: self.epoch.ok_or_else(|| missing("epoch"))? })
    }
}

async fn list_streams(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "stream", "after", "limit"])?;
    may_see(&token, asked.tenant_id)?;
    if asked.limit.is_some_and(|limit| !(1..=MAX_STREAMS).contains(&limit)) {
        let message = format!("limit must be from 1 to {MAX_STREAMS}");
        return Err(Refused::malformed(Some("limit"), message));
    }
    let after = asked.after.map(|text| {
        let wrong = || Refused::malformed(Some("after"), "after is not the next_after of a page");
        let (stream, epoch) = text.split_once(',').ok_or_else(wrong)?;
        let stream: NodeId = stream.parse().map_err(|_| wrong())?;
        Ok::<_, Refused>((stream.to_string(), epoch.parse::<uuid::Uuid>().map_err(|_| wrong())?))
    });
    let wanted = Wanted {
        tenant_id: asked.tenant_id,
        stream: asked.stream,
        after: after.transpose()?,
        limit: asked.limit,
    };
    let page = states::streams(http.pool(), &token.tenants, &wanted).await.map_err(unavailable)?;
    Ok(Json(page).into_response())
}

async fn list_blocks(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "stream", "epoch", "after", "source"])?;
    may_see(&token, asked.tenant_id)?;
    let name = asked.name()?;
    let after = asked.after.as_deref().map(|text| parse::<u64>("after", text)).transpose()?;
    let (pool, tenants) = (http.pool(), &token.tenants);
    let found = match asked.rows {
        true => {
            let counted = states::recount(pool, tenants, &name).await.map_err(unavailable)?;
            let above = counted.into_iter().filter(|one| after.is_none_or(|n| one.block > n));
            above.take(MAX_BLOCKS as usize).collect()
        }
        false => states::blocks(pool, tenants, &name, after).await.map_err(unavailable)?,
    };
    let next = (found.len() == MAX_BLOCKS as usize).then(|| found.last().map(|one| one.block));
    Ok(Json(json!({"blocks": found, "next_after": next.flatten()})).into_response())
}

async fn list_marks(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "stream", "epoch", "blocks"])?;
    may_see(&token, asked.tenant_id)?;
    let name = asked.name()?;
    if !(1..=MAX_MARKED).contains(&asked.blocks.len()) {
        let message = format!("blocks must be 1 to {MAX_MARKED} numbers with commas");
        return Err(Refused::malformed(Some("blocks"), message));
    }
    let marks = states::marks(http.pool(), &token.tenants, &name, &asked.blocks).await;
    Ok(Json(json!({"marks": marks.map_err(unavailable)?})).into_response())
}

async fn list_places(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = Asked::read(query, &["tenant_id", "stream", "epoch", "from", "to"])?;
    may_see(&token, asked.tenant_id)?;
    let name = asked.name()?;
    let range = match (asked.from, asked.to) {
        (Some(from), Some(to)) if from <= to => (from, to),
        _ => return Err(Refused::malformed(Some("from"), "from and to must be a range")),
    };
    let places = states::places(http.pool(), &token.tenants, &name, range).await;
    Ok(Json(json!({"places": places.map_err(unavailable)?})).into_response())
}

async fn one_event(
    State(http): State<Http>,
    Extension(token): Asker,
    Path(id): Path<String>,
) -> Answer {
    may_look(&token)?;
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such event");
    let id: EventId = id.parse().map_err(|_| missing())?;
    let found = trace(http.pool(), &token.tenants, id).await.map_err(unavailable)?;
    Ok(Json(found.ok_or_else(missing)?).into_response())
}

async fn do_repair(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    may_act(&token)?;
    let body = read(body, MAX_BODY_BYTES).await?;
    let what: Repair = crate::http::body::json(&body)?;
    let done = repair(http.pool(), &token.tenants, &Actor::token(&token), &what).await;
    match done {
        Ok(done) => Ok(Json(done).into_response()),
        Err(Error::Database(error)) => Err(unavailable(error)),
        Err(Error::UnknownNode(_)) => {
            let message = "there is no such node among the tenants of this token";
            Err(Refused::new(StatusCode::NOT_FOUND, "not_found", message))
        }
        Err(error @ Error::Ranges(field)) => {
            Err(Refused::malformed(Some(field), error.to_string()))
        }
        Err(error) => Err(Refused::new(StatusCode::CONFLICT, "ledger", error.to_string())),
    }
}
