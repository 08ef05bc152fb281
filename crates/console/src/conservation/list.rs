//! The account of every stream, and the gaps that are known.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use axum::response::IntoResponse;
use event::id::{Epoch, NodeId, TenantId};
use event::ledger::StreamState;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::account::{Counts, Said, account};
use crate::access::{Scope, User};
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::PATIENT;

/// The most rows of a page.
const MAX_PAGE: usize = 1_000;

/// Whether a stream is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamStanding {
    Missing,
    Unknown,
    Moving,
    Whole,
}

/// A stream's account.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct StreamRow {
    /// Null: only the cloud knows it.
    site: Option<String>,
    #[schema(value_type = Uuid)]
    tenant_id: TenantId,
    #[schema(value_type = String)]
    stream: NodeId,
    #[schema(value_type = Uuid)]
    epoch: Epoch,
    #[serde(flatten)]
    counts: Counts,
    at_node: u64,
    at_edge: u64,
    state: StreamStanding,
}

/// The account of everything.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Conservation {
    at: Timestamp,
    totals: Counts,
    total: usize,
    offset: usize,
    items: Vec<StreamRow>,
    notes: Vec<String>,
}

type Key = (TenantId, NodeId, Epoch);

/// What the tiers said, by stream.
#[derive(Default)]
struct Gathered {
    edge: BTreeMap<Key, (String, StreamState)>,
    cloud: BTreeMap<Key, StreamState>,
    cloud_known: bool,
    notes: Vec<String>,
}

/// Every stream with its account; those that do not add up first.
#[utoipa::path(get, path = "/api/v1/conservation", operation_id = "conservation", tag = "conservation", params(
    ("site" = Option<String>, Query), ("q" = Option<String>, Query), ("state" = Option<StreamStanding>, Query),
    ("offset" = Option<usize>, Query), ("limit" = Option<usize>, Query)),
    responses((status = 200, body = Conservation)))]
pub(crate) async fn list(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["site", "q", "state", "offset", "limit"], &[])?;
    let (offset, limit) =
        (query.number("offset", (0, 1_000_000), 0)?, query.number("limit", (1, MAX_PAGE), 100)?);
    let wanted = match query.get("state") {
        None => None,
        Some("whole") => Some(StreamStanding::Whole),
        Some("moving") => Some(StreamStanding::Moving),
        Some("missing") => Some(StreamStanding::Missing),
        Some("unknown") => Some(StreamStanding::Unknown),
        Some(_) => return Err(wrong("state", "whole, moving, missing or unknown")),
    };
    let gathered = gather(&http, &user.scope).await;
    let mut rows = rows(&http, &gathered);
    rows.retain(|row| query.get("site").is_none_or(|site| row.site.as_deref() == Some(site)));
    let part = query.get("q");
    rows.retain(|row| part.is_none_or(|part| row.stream.as_str().contains(part)));
    let mut totals = Counts::default();
    rows.iter().for_each(|row| totals.add(&row.counts));
    rows.retain(|row| wanted.is_none_or(|wanted| row.state == wanted));
    rows.sort_by(|a, b| {
        let key = |row: &StreamRow| (row.state, row.stream.clone(), row.epoch.uuid());
        key(a).cmp(&key(b))
    });
    let total = rows.len();
    let items = rows.into_iter().skip(offset).take(limit).collect();
    let notes = gathered.notes;
    let at = Timestamp::now();
    Ok(Json(Conservation { at, totals, total, offset, items, notes }).into_response())
}

async fn gather(http: &Http, scope: &Scope) -> Gathered {
    let mut gathered = Gathered::default();
    let sites = http.upstreams.sites.iter();
    let asked = sites.map(async |site| (site, http.ledgers.of_site(site).await));
    for (site, answer) in join_all(asked).await {
        match answer {
            Ok(states) => {
                let seen = states.iter().filter(|one| scope.allows(one.tenant_id.uuid()));
                gathered.edge.extend(seen.map(|one| {
                    let key = (one.tenant_id, one.stream.clone(), one.epoch);
                    (key, (site.name.clone(), one.clone()))
                }));
            }
            Err(fault) => gathered.notes.push(format!("{} was not asked: {fault}", site.name)),
        }
    }
    let Some(cloud) = &http.upstreams.cloud else { return gathered };
    let mut tenants: Vec<Uuid> = http.board.tenants(scope);
    tenants.extend(gathered.edge.keys().map(|key| key.0.uuid()));
    tenants.sort_unstable();
    tenants.dedup();
    gathered.cloud_known = true;
    let tenants = tenants.into_iter().filter_map(|tenant| TenantId::from_uuid(tenant).ok());
    for tenant in tenants {
        match http.ledgers.of_cloud(cloud, tenant).await {
            Ok(states) => gathered.cloud.extend(
                states
                    .iter()
                    .map(|one| ((one.tenant_id, one.stream.clone(), one.epoch), one.clone())),
            ),
            Err(fault) => {
                gathered.cloud_known = false;
                gathered.notes.push(format!("the cloud was not asked: {fault}"));
                break;
            }
        }
    }
    gathered
}

fn rows(http: &Http, gathered: &Gathered) -> Vec<StreamRow> {
    let snapshot = http.board.now();
    let quarantined: BTreeMap<(&str, &str), (Option<Uuid>, u64)> = snapshot
        .nodes
        .iter()
        .map(|entry| {
            let row = &entry.row;
            ((row.site.as_str(), row.node_id.as_str()), (entry.fact.epoch, row.quarantined))
        })
        .collect();
    let forwards = |site: &str| {
        let found = snapshot.tick.sites.iter().find(|one| one.name == site);
        found.is_none_or(|one| one.forwards)
    };
    let mut keys: Vec<&Key> = gathered.edge.keys().collect();
    keys.extend(gathered.cloud.keys().filter(|key| !gathered.edge.contains_key(*key)));
    let has_cloud = http.upstreams.cloud.is_some();
    let row = |key: &Key| {
        let (edge, cloud) = (gathered.edge.get(key), gathered.cloud.get(key));
        let site = edge.map(|(site, _)| site.as_str());
        let to_cloud = has_cloud && site.is_none_or(forwards);
        let newest = site.and_then(|site| quarantined.get(&(site, key.1.as_str())));
        let newest = newest.filter(|(epoch, _)| *epoch == Some(key.2.uuid()));
        let found = account(&Said {
            edge: edge.map(|(_, state)| state),
            cloud,
            to_cloud,
            quarantined: newest.map_or(0, |(_, count)| *count),
        });
        let unknown = (to_cloud && !gathered.cloud_known) || edge.is_none();
        let state = match found.counts {
            _ if unknown => StreamStanding::Unknown,
            Counts { missing: 1.., .. } => StreamStanding::Missing,
            Counts { in_flight: 1.., .. } => StreamStanding::Moving,
            _ => StreamStanding::Whole,
        };
        StreamRow {
            site: site.map(str::to_owned),
            tenant_id: key.0,
            stream: key.1.clone(),
            epoch: key.2,
            counts: found.counts,
            at_node: found.at_node,
            at_edge: found.at_edge,
            state,
        }
    };
    keys.into_iter().map(row).collect()
}

/// A range that was declared lost, and of which some is lost.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Gap {
    #[serde(default)]
    pub(crate) tenant_id: Uuid,
    pub(crate) stream: String,
    epoch: Uuid,
    from_seq: u64,
    to_seq: u64,
    count: u64,
    /// How many of them are lost now: the others came after all.
    pub(crate) lost: u64,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) last_at: Option<Timestamp>,
    pub(crate) reason: String,
    origin: String,
    pub(crate) recorded_at: Timestamp,
}

/// A page of gaps, the newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct GapList {
    pub(crate) items: Vec<Gap>,
    pub(crate) next_cursor: Option<String>,
}

/// Known gaps.
#[utoipa::path(get, path = "/api/v1/conservation/gaps", tag = "conservation", params(
    ("tenant_id" = Option<Uuid>, Query), ("stream" = Option<String>, Query), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("limit" = Option<usize>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = GapList)))]
pub(crate) async fn gaps(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = ["tenant_id", "stream", "from", "to", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known, &[])?;
    let limit = query.number("limit", (1, MAX_PAGE), 200)?;
    let empty = GapList { items: Vec::new(), next_cursor: None };
    let Some(cloud) = &http.upstreams.cloud else { return Ok(Json(empty).into_response()) };
    let tenant = http.one_tenant(&user, &query)?;
    let mut asked = vec![("tenant_id", tenant.to_string()), ("limit", limit.to_string())];
    asked.push(("loss", "true".to_owned()));
    for name in ["stream", "from", "to", "cursor"] {
        asked.extend(query.get(name).map(|value| (name, value.to_owned())));
    }
    let page = cloud.get::<GapList>("/api/v1/ledger/tombstones", &asked, PATIENT).await;
    let mut page = page.map_err(|fault| fault.refuse("the cloud"))?;
    page.items.iter_mut().for_each(|gap| gap.tenant_id = tenant);
    Ok(Json(page).into_response())
}
