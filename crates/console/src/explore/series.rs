//! Which series there are.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use axum::response::IntoResponse;
use event::id::{DeviceId, TenantId};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::id::SeriesId;
use crate::access::User;
use crate::answers::Answers;
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::{Fault, PATIENT, Remote};

/// The most series that are shown at once; with more, look for them by name.
const MAX_SHOWN: usize = 1_000;
/// The most series of a page of a site.
const PAGE: usize = 1_000;
/// The most pages of a tenant at a site. Names are looked for in the console, because a site does not know what its nodes are called.
const MAX_PAGES: usize = 20;
/// The most series of the plant: as many as of a tenant at a site.
const MAX_TAGS: usize = PAGE * MAX_PAGES;
/// How old the list of an upstream may be: somebody who types asks for every letter.
const LIFE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Site,
    Historian,
}

/// A series.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Series {
    id: String,
    source: Source,
    site: Option<String>,
    tenant_id: Option<Uuid>,
    device_id: Option<Uuid>,
    /// For people.
    name: String,
    metric: String,
    unit: String,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
}

/// Series, in the order of their names.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesList {
    items: Vec<Series>,
    /// Whether there are more than are shown.
    more: bool,
}

/// Which series there are.
#[utoipa::path(get, path = "/api/v1/explore/series", tag = "explore", params(
    ("q" = Option<String>, Query, description = "part of the name"), ("source" = Option<Source>, Query), ("limit" = Option<usize>, Query)),
    responses((status = 200, body = SeriesList)))]
pub(crate) async fn series(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["q", "source", "limit"], &[])?;
    let limit = query.number("limit", (1, MAX_SHOWN), 200)?;
    let (sites, plant) = match query.get("source") {
        None => (true, true),
        Some("site") => (true, false),
        Some("historian") => (false, true),
        Some(_) => return Err(wrong("source", "site or historian")),
    };
    let part = query.get("q").unwrap_or_default().to_lowercase();
    let mut list = SeriesList { items: Vec::new(), more: false };
    if sites {
        of_sites(&http, &user, &part, &mut list).await;
    }
    if plant && user.scope.is_all() {
        of_plant(&http, &part, &mut list).await;
    }
    list.items.sort_by(|a, b| (a.source, &a.name, &a.id).cmp(&(b.source, &b.name, &b.id)));
    list.more |= list.items.len() > limit;
    list.items.truncate(limit);
    Ok(Json(list).into_response())
}

/// The series of every site and of the plant, for everybody who looks.
#[derive(Debug)]
pub(crate) struct AllSeries {
    sites: Answers<(String, Uuid), Rows>,
    plant: Answers<(), Tags>,
}

impl Default for AllSeries {
    fn default() -> AllSeries {
        AllSeries { sites: Answers::new(LIFE), plant: Answers::new(LIFE) }
    }
}

/// Series of a tenant at a site.
#[derive(Debug, Default)]
struct Rows {
    items: Vec<Row>,
    /// Whether there are more than are asked for.
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Row {
    device_id: Uuid,
    metric_type: String,
    unit: String,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
}

async fn rows(site: &Remote, tenant: Uuid) -> Result<Rows, Fault> {
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Row>,
        next: Option<String>,
    }
    let asked = [("tenant_id", tenant.to_string()), ("limit", PAGE.to_string())];
    let (mut query, mut rows) = (asked.to_vec(), Rows::default());
    for _ in 0..MAX_PAGES {
        let page = site.get::<Page>("/api/v1/telemetry/series", &query, PATIENT).await?;
        rows.items.extend(page.items);
        let Some(next) = page.next else { return Ok(rows) };
        query.truncate(asked.len());
        query.push(("after", next));
    }
    rows.more = true;
    Ok(rows)
}

/// Series whose name has `part` in it. A site that is away has no series for now.
async fn of_sites(http: &Http, user: &User, part: &str, list: &mut SeriesList) {
    let snapshot = http.board.now();
    let names: HashMap<(&str, Uuid), &str> = snapshot
        .nodes
        .iter()
        .map(|entry| ((entry.row.site.as_str(), entry.row.device_id), entry.row.node_id.as_str()))
        .collect();
    let mut wanted = Vec::new();
    for site in &snapshot.tick.sites {
        let tenants = site.tenants.keys().filter(|tenant| user.scope.allows(**tenant));
        let remote = http.upstreams.site(&site.name);
        wanted.extend(tenants.filter_map(|tenant| Some((remote?, *tenant))));
    }
    let asked = wanted.into_iter().map(async |(remote, tenant)| {
        let key = (remote.name.clone(), tenant);
        let rows = http.series.sites.get(key, async || rows(remote, tenant).await).await;
        (remote.name.as_str(), tenant, rows)
    });
    for (site, tenant, rows) in join_all(asked).await {
        let Ok(rows) = rows else { continue };
        list.more |= rows.more;
        for row in &rows.items {
            let device_name = row.device_id.to_string();
            let who = names.get(&(site, row.device_id)).copied().unwrap_or(&device_name);
            let name = format!("{who} {}", row.metric_type);
            if !name.to_lowercase().contains(part) {
                continue;
            }
            let ids = (TenantId::from_uuid(tenant), DeviceId::from_uuid(row.device_id));
            let (Ok(tenant_id), Ok(device)) = ids else { continue };
            let id = SeriesId::Site {
                site: site.to_owned(),
                tenant: tenant_id,
                device,
                metric: row.metric_type.clone(),
            };
            list.items.push(Series {
                id: id.to_string(),
                source: Source::Site,
                site: Some(site.to_owned()),
                tenant_id: Some(tenant),
                device_id: Some(row.device_id),
                name,
                metric: row.metric_type.clone(),
                unit: row.unit.clone(),
                first_at: row.first_at,
                last_at: row.last_at,
            });
        }
    }
}

/// Series of the plant.
#[derive(Debug, Deserialize)]
struct Tags {
    items: Vec<Tag>,
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Tag {
    plant: String,
    area: String,
    unit_name: String,
    tag: String,
    unit: String,
    last_at: Option<Timestamp>,
}

async fn of_plant(http: &Http, part: &str, list: &mut SeriesList) {
    let Some(historian) = &http.upstreams.historian else { return };
    let tags = http.series.plant.get((), async || {
        let asked = [("limit", MAX_TAGS.to_string())];
        historian.get::<Tags>("/api/v1/telemetry/tags", &asked, PATIENT).await
    });
    let Ok(tags) = tags.await else { return };
    list.more |= tags.more;
    for row in &tags.items {
        let name = format!("{}.{}.{}.{}", row.plant, row.area, row.unit_name, row.tag);
        if !name.to_lowercase().contains(part) {
            continue;
        }
        let id = SeriesId::Historian {
            plant: row.plant.clone(),
            area: row.area.clone(),
            unit: row.unit_name.clone(),
            tag: row.tag.clone(),
        };
        list.items.push(Series {
            id: id.to_string(),
            source: Source::Historian,
            site: None,
            tenant_id: None,
            device_id: None,
            name,
            metric: row.tag.clone(),
            unit: row.unit.clone(),
            first_at: None,
            last_at: row.last_at,
        });
    }
}
