//! Readings as CSV, as they were stored.

use std::fmt::Write as _;

use axum::extract::{Extension, RawQuery, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use jiff::Timestamp;
use serde::Deserialize;

use super::id::SeriesId;
use super::points::asked;
use crate::access::User;
use crate::http::{Answer, Http, Query};
use crate::upstream::{Fault, PATIENT, Remote};

/// The most rows of an answer.
const MAX_ROWS: usize = 100_000;
/// Rows of a page of a site, and of the historian.
const SITE_PAGE: usize = 10_000;
const HISTORIAN_PAGE: usize = 1_000;

type Row = (Timestamp, f64, Option<String>);

/// Readings of series.
#[utoipa::path(get, path = "/api/v1/explore/csv", tag = "explore",
    params(("series" = Vec<String>, Query), ("from" = String, Query), ("to" = String, Query)),
    responses((status = 200, content_type = "text/csv", body = String), (status = 503)))]
pub(crate) async fn csv(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["from", "to"], &["series"])?;
    let (from, to) = query.range()?;
    let mut text = String::from("series,at,value,quality\n");
    let (mut left, mut truncated) = (MAX_ROWS, false);
    let series = asked(&query, &user)?;
    for (index, id) in series.iter().enumerate() {
        // What an earlier series leaves of its share is for the later ones: none of them is left out for another.
        let share = left / (series.len() - index);
        let (rows, more) =
            rows(&http, id, (from, to), share).await.map_err(|fault| fault.refuse("the source"))?;
        for (at, value, quality) in &rows {
            let quality = quality.as_deref().unwrap_or_default();
            let quality: String = quality.chars().filter(char::is_ascii_alphanumeric).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{id},{at},{value},{quality}");
        }
        left = left.saturating_sub(rows.len());
        truncated |= more;
    }
    if truncated {
        text.push_str("# truncated\n");
    }
    let head = [
        (CONTENT_TYPE, "text/csv; charset=utf-8"),
        (CONTENT_DISPOSITION, "attachment; filename=\"telemetry.csv\""),
    ];
    Ok((head, text).into_response())
}

async fn rows(
    http: &Http,
    id: &SeriesId,
    range: (Timestamp, Timestamp),
    most: usize,
) -> Result<(Vec<Row>, bool), Fault> {
    let nobody = || Fault::Away("it is not configured".to_owned());
    let time = [("from", range.0.to_string()), ("to", range.1.to_string())];
    match id {
        SeriesId::Site { site, tenant, device, metric } => {
            let mut query = time.to_vec();
            query.extend([
                ("tenant_id", tenant.to_string()),
                ("device_id", device.to_string()),
                ("metric_type", metric.clone()),
                ("resolution", "raw".to_owned()),
            ]);
            of_site(http.upstreams.site(site).ok_or_else(nobody)?, query, most).await
        }
        SeriesId::Historian { plant, area, unit, tag } => {
            let mut query = time.to_vec();
            query.extend([
                ("plant", plant.clone()),
                ("area", area.clone()),
                ("unit_name", unit.clone()),
                ("tag", tag.clone()),
            ]);
            let remote = http.upstreams.historian.as_ref().ok_or_else(nobody)?;
            of_historian(remote, query, most).await
        }
    }
}

async fn of_site(
    remote: &Remote,
    mut query: Vec<(&str, String)>,
    most: usize,
) -> Result<(Vec<Row>, bool), Fault> {
    #[derive(Deserialize)]
    struct Page {
        points: Vec<Point>,
        next: Option<String>,
    }
    #[derive(Deserialize)]
    struct Point {
        occurred_at: Timestamp,
        metric_value: f64,
        quality: Option<String>,
    }
    let mut found: Vec<Row> = Vec::new();
    query.push(("limit", SITE_PAGE.to_string()));
    loop {
        let page: Page = remote.get("/api/v1/telemetry", &query, PATIENT).await?;
        let each = page.points.into_iter();
        found.extend(each.map(|one| (one.occurred_at, one.metric_value, one.quality)));
        match page.next {
            Some(next) if found.len() < most => {
                query.retain(|(name, _)| *name != "after");
                query.push(("after", next));
            }
            next => {
                let more = next.is_some() || found.len() > most;
                found.truncate(most);
                return Ok((found, more));
            }
        }
    }
}

/// The historian gives the newest first; a file has the oldest first.
async fn of_historian(
    remote: &Remote,
    mut query: Vec<(&str, String)>,
    most: usize,
) -> Result<(Vec<Row>, bool), Fault> {
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Point>,
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    struct Point {
        timestamp: Timestamp,
        value: f64,
        quality: Option<String>,
    }
    let mut found: Vec<Row> = Vec::new();
    query.push(("limit", HISTORIAN_PAGE.to_string()));
    loop {
        let page: Page = remote.get("/api/v1/telemetry", &query, PATIENT).await?;
        let each = page.items.into_iter();
        found.extend(each.map(|one| (one.timestamp, one.value, one.quality)));
        match page.next_cursor {
            Some(next) if found.len() < most => {
                query.retain(|(name, _)| *name != "cursor");
                query.push(("cursor", next));
            }
            next => {
                let more = next.is_some() || found.len() > most;
                found.truncate(most);
                found.reverse();
                return Ok((found, more));
            }
        }
    }
}
