//! Which series there are.

use std::collections::HashMap;

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
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::PATIENT;

/// The most series that one upstream is asked for; with more, look for them by name.
const MAX_ASKED: usize = 1_000;

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
    let limit = query.number("limit", (1, MAX_ASKED), 200)?;
    let (sites, plant) = match query.get("source") {
        None => (true, true),
        Some("site") => (true, false),
        Some("historian") => (false, true),
        Some(_) => return Err(wrong("source", "site or historian")),
    };
    let (mut found, mut more) = (Vec::new(), false);
    if sites {
        let (part, cut) = of_sites(&http, &user).await;
        found.extend(part);
        more |= cut;
    }
    if plant && user.scope.is_all() {
        let (part, cut) = of_plant(&http).await;
        found.extend(part);
        more |= cut;
    }
    let part = query.get("q").map(str::to_lowercase);
    found.retain(|one| part.as_ref().is_none_or(|part| one.name.to_lowercase().contains(part)));
    found.sort_by(|a, b| (a.source, &a.name, &a.id).cmp(&(b.source, &b.name, &b.id)));
    more |= found.len() > limit;
    found.truncate(limit);
    Ok(Json(SeriesList { items: found, more }).into_response())
}

/// A site that is away has no series for now.
async fn of_sites(http: &Http, user: &User) -> (Vec<Series>, bool) {
    #[derive(Deserialize)]
    struct Row {
        device_id: Uuid,
        metric_type: String,
        unit: String,
        first_at: Option<Timestamp>,
        last_at: Option<Timestamp>,
    }
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Row>,
        next: Option<String>,
    }
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
        let query = [("tenant_id", tenant.to_string()), ("limit", MAX_ASKED.to_string())];
        let page = remote.get::<Page>("/api/v1/telemetry/series", &query, PATIENT).await;
        (remote.name.as_str(), tenant, page)
    });
    let (mut found, mut more) = (Vec::new(), false);
    for (site, tenant, page) in join_all(asked).await {
        let Ok(page) = page else { continue };
        more |= page.next.is_some();
        for row in page.items {
            let ids = (TenantId::from_uuid(tenant), DeviceId::from_uuid(row.device_id));
            let (Ok(tenant_id), Ok(device)) = ids else { continue };
            let id = SeriesId::Site {
                site: site.to_owned(),
                tenant: tenant_id,
                device,
                metric: row.metric_type.clone(),
            };
            let device_name = row.device_id.to_string();
            let who = names.get(&(site, row.device_id)).copied().unwrap_or(&device_name);
            found.push(Series {
                id: id.to_string(),
                source: Source::Site,
                site: Some(site.to_owned()),
                tenant_id: Some(tenant),
                device_id: Some(row.device_id),
                name: format!("{who} {}", row.metric_type),
                metric: row.metric_type,
                unit: row.unit,
                first_at: row.first_at,
                last_at: row.last_at,
            });
        }
    }
    (found, more)
}

async fn of_plant(http: &Http) -> (Vec<Series>, bool) {
    #[derive(Deserialize)]
    struct Row {
        plant: String,
        area: String,
        unit_name: String,
        tag: String,
        unit: String,
        last_at: Option<Timestamp>,
    }
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Row>,
        more: bool,
    }
    let Some(historian) = &http.upstreams.historian else { return (Vec::new(), false) };
    let page = historian.get::<Page>("/api/v1/telemetry/tags", &[], PATIENT).await;
    let Ok(page) = page else { return (Vec::new(), false) };
    let each = page.items.into_iter().map(|row| {
        let name = format!("{}.{}.{}.{}", row.plant, row.area, row.unit_name, row.tag);
        let id = SeriesId::Historian {
            plant: row.plant,
            area: row.area,
            unit: row.unit_name,
            tag: row.tag.clone(),
        };
        Series {
            id: id.to_string(),
            source: Source::Historian,
            site: None,
            tenant_id: None,
            device_id: None,
            name,
            metric: row.tag,
            unit: row.unit,
            first_at: None,
            last_at: row.last_at,
        }
    });
    (each.collect(), page.more)
}
