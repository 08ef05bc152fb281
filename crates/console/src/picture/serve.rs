//! The picture over HTTP: whole, as a stream, its history; nodes; and the links of `up`.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use api::Refused;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Json, extract};
use futures_util::stream::{self, Stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch;

use super::board::{HISTORY, Snapshot};
use super::nodes::{self, Sort};
use super::{
    Changed, FlowHistory, FlowSeries, Liveness, NodeChanges, NodeList, NodePage, NodeRow, Picture,
    flow,
};
use crate::access::{Scope, User};
use crate::http::{Answer, Http, Query, wrong};

/// The most changed nodes of one event.
const MAX_CHANGES: usize = 200;
/// The most nodes of a page.
const MAX_PAGE: usize = 1_000;
const MAX_LOST_RANGES: usize = 200;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream looks whether its token may still be used.
const LOOK_EVERY: u64 = 5;

/// The picture.
#[utoipa::path(get, path = "/api/v1/picture", tag = "picture", responses((status = 200, body = Picture)))]
pub(crate) async fn whole(State(http): State<Http>, Extension(user): Extension<User>) -> Response {
    let (_, words) = http.board.words(&user.scope);
    ([(CONTENT_TYPE, "application/json")], words).into_response()
}

/// What one stream needs from event to event.
struct Follower {
    http: Http,
    user: User,
    ticks: watch::Receiver<u64>,
    /// An event that follows the one before at once.
    then: Option<Event>,
    sent: u64,
    /// The tick whose changes it was told last.
    told: u64,
    over: bool,
    _place: OwnedSemaphorePermit,
}

/// The picture as server-sent events: `picture` at once and with every tick, `nodes` when something about a node changed, `bye` at the end.
#[utoipa::path(get, path = "/api/v1/stream", tag = "picture",
    responses((status = 200, content_type = "text/event-stream", body = Picture), (status = 503)))]
pub(crate) async fn stream(State(http): State<Http>, Extension(user): Extension<User>) -> Answer {
    let place = std::sync::Arc::clone(&http.streams).try_acquire_owned().map_err(|_| {
        Refused::unavailable("busy", "as many browsers as allowed follow already: come back later")
    })?;
    let mut ticks = http.board.follow();
    ticks.mark_changed();
    let follower =
        Follower { http, user, ticks, then: None, sent: 0, told: 0, over: false, _place: place };
    let events = Sse::new(events(follower)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(events.into_response())
}

fn events(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    })
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.then.take() {
            return Some(event);
        }
        if self.over {
            return None;
        }
        self.ticks.changed().await.ok()?;
        self.ticks.mark_unchanged();
        if !self.may_go_on().await {
            self.over = true;
            return Some(Event::default().event("bye").data("{}"));
        }
        let (number, words) = self.http.board.words(&self.user.scope);
        // The words are JSON, which has no line breaks.
        let text = String::from_utf8_lossy(&words);
        let event = Event::default().event("picture").id(number.to_string()).data(text);
        let snapshot = self.http.board.now();
        if self.sent > 0 {
            self.then = changes(&snapshot, &self.user.scope, self.told)
                .and_then(|changes| Event::default().event("nodes").json_data(&changes).ok());
        }
        self.told = snapshot.tick.number;
        self.sent += 1;
        Some(event)
    }

    /// Whether the session and its token still let this user look.
    async fn may_go_on(&self) -> bool {
        let lasts = self.http.sessions.lasts(&self.user.session, Instant::now());
        if !lasts || !self.sent.is_multiple_of(LOOK_EVERY) {
            return lasts;
        }
        // A database that is away ends no stream.
        !matches!(crate::access::look_up(&self.http, &self.user.session.token).await, Ok(None))
    }
}

/// What changed since the tick that somebody was told last. A tick keeps its own changes only: who left one out is to ask again.
pub(super) fn changes(snapshot: &Snapshot, scope: &Scope, told: u64) -> Option<NodeChanges> {
    if snapshot.tick.number <= told {
        return None;
    }
    let left_out = snapshot.tick.number > told + 1;
    let rows = snapshot.changed.iter().map(|index| &snapshot.nodes[*index].row);
    let seen: Vec<&NodeRow> = rows.filter(|row| scope.allows(row.tenant_id)).collect();
    let gone = snapshot.removed.iter().filter(|(_, _, tenant)| scope.allows(*tenant));
    let removed: Vec<String> = gone.map(|(site, node, _)| format!("{site}/{node}")).collect();
    if seen.is_empty() && removed.is_empty() && !left_out {
        return None;
    }
    Some(NodeChanges {
        at: snapshot.tick.at,
        more: seen.len().saturating_sub(MAX_CHANGES).max(usize::from(left_out)),
        changed: seen.into_iter().take(MAX_CHANGES).cloned().collect(),
        removed,
    })
}

/// Rate and holdings of every stage and link, over the last ten minutes.
#[utoipa::path(get, path = "/api/v1/flow/history", tag = "picture", params(("seconds" = Option<u32>, Query, description = "1 to 600")),
    responses((status = 200, body = FlowHistory)))]
pub(crate) async fn history(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["seconds"], &[])?;
    let wanted = query.number("seconds", (1, HISTORY), HISTORY)?;
    let ring = http.board.ring();
    let ticks = &ring[ring.len().saturating_sub(wanted)..];
    let mut history = FlowHistory { step_s: 1, at: Vec::new(), series: Vec::new() };
    let mut places: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for (place, tick) in ticks.iter().enumerate() {
        history.at.push(tick.at);
        let drawn = flow::draw(tick, &user.scope);
        let stages = drawn.stages.into_iter().map(|one| (one.id, one.rate_per_s, one.held));
        let links = drawn.links.into_iter().map(|one| (one.id, one.rate_per_s, one.held));
        for (id, rate, held) in stages.chain(links) {
            let index = *places.entry(id.clone()).or_insert_with(|| {
                let (rate_per_s, held) = (vec![None; place], vec![None; place]);
                history.series.push(FlowSeries { id, rate_per_s, held });
                history.series.len() - 1
            });
            history.series[index].rate_per_s.push(rate);
            history.series[index].held.push(held);
        }
        for series in &mut history.series {
            series.rate_per_s.resize(place + 1, None);
            series.held.resize(place + 1, None);
        }
    }
    Ok(Json(history).into_response())
}

/// Nodes, a page of them.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", params(
    ("site" = Option<String>, Query), ("liveness" = Option<Liveness>, Query), ("q" = Option<String>, Query, description = "part of the id or label"),
    ("sort" = Option<String>, Query), ("order" = Option<String>, Query, description = "asc or desc"),
    ("offset" = Option<usize>, Query), ("limit" = Option<usize>, Query, description = "at most 1000")),
    responses((status = 200, body = NodeList)))]
pub(crate) async fn nodes(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = ["site", "liveness", "q", "sort", "order", "offset", "limit"];
    let query = Query::read(query.as_deref(), &known, &[])?;
    let sort: Sort = query.parse("sort")?.unwrap_or(Sort::NodeId);
    let down = match query.get("order") {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(_) => return Err(wrong("order", "asc or desc")),
    };
    let liveness = query.get("liveness").map(liveness).transpose()?;
    let (offset, limit) =
        (query.number("offset", (0, 1_000_000), 0)?, query.number("limit", (1, MAX_PAGE), 100)?);
    let part = query.get("q").map(str::to_lowercase);
    let snapshot = http.board.now();
    let mut rows: Vec<&NodeRow> = snapshot
        .nodes
        .iter()
        .map(|entry| &entry.row)
        .filter(|row| user.scope.allows(row.tenant_id))
        .filter(|row| query.get("site").is_none_or(|site| row.site == site))
        .filter(|row| liveness.is_none_or(|wanted| row.liveness == wanted))
        .filter(|row| {
            part.as_ref().is_none_or(|part| {
                row.node_id.contains(part.as_str()) || row.label.to_lowercase().contains(part)
            })
        })
        .collect();
    rows.sort_by(|a, b| nodes::compare(a, b, sort, down));
    let total = rows.len();
    let items = rows.into_iter().skip(offset).take(limit).cloned().collect();
    Ok(Json(NodeList { total, offset, items }).into_response())
}

fn liveness(text: &str) -> Result<Liveness, Refused> {
    Ok(match text {
        "online" => Liveness::Online,
        "late" => Liveness::Late,
        "offline" => Liveness::Offline,
        "never" => Liveness::Never,
        "unknown" => Liveness::Unknown,
        _ => return Err(wrong("liveness", "online, late, offline, never or unknown")),
    })
}

/// One node.
#[utoipa::path(get, path = "/api/v1/nodes/{site}/{node_id}", tag = "nodes",
    params(("site" = String, Path), ("node_id" = String, Path)),
    responses((status = 200, body = NodePage), (status = 404)))]
pub(crate) async fn node(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path((site, node_id)): Path<(String, String)>,
) -> Answer {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such node");
    let snapshot = http.board.now();
    let entry = snapshot
        .nodes
        .iter()
        .find(|entry| entry.row.site == site && entry.row.node_id == node_id)
        .filter(|entry| user.scope.allows(entry.row.tenant_id))
        .ok_or_else(missing)?;
    let fact = &entry.fact;
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let words = fact.status.as_ref().filter(|words| words.epoch == fact.epoch);
    let lost = fact.lost_ranges.iter().take(MAX_LOST_RANGES);
    let page = NodePage {
        node: entry.row.clone(),
        enrolled_at: fact.enrolled_at,
        disabled_at: fact.disabled_at,
        flagged_at: fact.flagged_at,
        status_at: fact.status_at,
        epoch: fact.epoch,
        epochs: count(fact.epochs),
        head: words.and_then(|words| words.head),
        acked: count(fact.acked),
        received: count(fact.received),
        recovered: count(fact.recovered),
        cloned: count(fact.cloned),
        lost_ranges: lost.map(|(from, to)| (count(*from), count(*to))).collect(),
        history: http.board.node_history(&site, &node_id),
    };
    Ok(Json(page).into_response())
}

/// Cuts a link of `up`.
#[utoipa::path(post, path = "/api/v1/links/{id}/cut", tag = "picture", params(("id" = String, Path)),
    responses((status = 200, body = Changed), (status = 403), (status = 404)))]
pub(crate) async fn cut(
    state: State<Http>,
    user: Extension<User>,
    id: extract::Path<String>,
) -> Answer {
    set(state, user, id, true).await
}

/// Restores a link of `up`.
#[utoipa::path(post, path = "/api/v1/links/{id}/restore", tag = "picture", params(("id" = String, Path)),
    responses((status = 200, body = Changed), (status = 403), (status = 404)))]
pub(crate) async fn restore(
    state: State<Http>,
    user: Extension<User>,
    id: extract::Path<String>,
) -> Answer {
    set(state, user, id, false).await
}

async fn set(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    cut: bool,
) -> Answer {
    let missing = || {
        let message = "there is no such link here that can be cut";
        Refused::new(StatusCode::NOT_FOUND, "not_found", message)
    };
    let control = http.upstreams.control.as_ref().ok_or_else(missing)?;
    let snapshot = http.board.now();
    let site = http.upstreams.sites.first().map(|site| site.name.as_str()).ok_or_else(missing)?;
    let of_site = |entry: &&super::NodeEntry| entry.row.site == site && entry.row.cuttable;
    let cables: Vec<String> = match id.split(':').collect::<Vec<_>>()[..] {
        ["uplink", name] if name == site => vec!["cloud".to_owned()],
        ["nodes", name] if name == site => {
            let nodes = snapshot.nodes.iter().filter(of_site);
            nodes.map(|entry| entry.row.node_id.clone()).collect()
        }
        ["node", name, node] if name == site => {
            let mut nodes = snapshot.nodes.iter().filter(of_site);
            let found = nodes.find(|entry| entry.row.node_id == node).ok_or_else(missing)?;
            vec![found.row.node_id.clone()]
        }
        _ => return Err(missing()),
    };
    // No name would mean all of them.
    if cables.is_empty() {
        return Err(missing());
    }
    user.may_see_everything()?;
    let changed = control.set(cut, &cables).await.map_err(|fault| fault.refuse("up"))?;
    tracing::info!(token = %user.token.id, link = id, cut, "a link was set");
    Ok(Json(Changed { changed }).into_response())
}
