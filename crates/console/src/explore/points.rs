//! Points of a few series over a time, in as many as a screen shows.

use api::Refused;
use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use axum::response::IntoResponse;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::down_sample::{Sample, breaks, columns, reduce};
use super::id::SeriesId;
use crate::access::User;
use crate::http::{Answer, Http, Query, wrong};
use crate::upstream::{Fault, PATIENT, Remote};

/// The most series of a question.
pub(super) const MAX_SERIES: usize = 8;
/// How wide a screen may be.
const WIDTH: (usize, usize) = (50, 4_000);
/// Points of one page of a site.
const PAGE: usize = 10_000;
/// Points that are read of one series; a finer look wants a shorter time.
const MAX_READ: usize = 200_000;
/// The most points that the historian gives.
const MAX_OF_HISTORIAN: usize = 2_000;

/// A known gap of a series.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlotGap {
    from: Timestamp,
    to: Timestamp,
    count: u64,
    reason: String,
}

/// One line.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Plot {
    id: String,
    unit: String,
    /// raw, 1m, 1h, 1d or buckets.
    resolution: String,
    /// What the points stand for.
    samples: u64,
    down_sampled: bool,
    truncated: bool,
    /// Seconds since 1970, ascending.
    t: Vec<f64>,
    /// Null: a break in the line.
    v: Vec<Option<f64>>,
    gaps: Vec<PlotGap>,
    error: Option<String>,
}

/// Some lines over the same time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Plots {
    from: Timestamp,
    to: Timestamp,
    width: usize,
    series: Vec<Plot>,
}

/// The series that a question names, all of which the asker may see.
pub(super) fn asked(query: &Query, user: &User) -> Result<Vec<SeriesId>, Refused> {
    let mut found = Vec::new();
    for text in query.all("series") {
        let id: SeriesId = text.parse().map_err(|expected| wrong("series", expected))?;
        match &id {
            SeriesId::Site { tenant, .. } => user.may_see(tenant.uuid())?,
            SeriesId::Historian { .. } => user.may_see_everything()?,
        }
        found.push(id);
    }
    match found.len() {
        1..=MAX_SERIES => Ok(found),
        _ => Err(wrong("series", &format!("1 to {MAX_SERIES} of them"))),
    }
}

/// Points of series.
#[utoipa::path(get, path = "/api/v1/explore/points", tag = "explore", params(
    ("series" = Vec<String>, Query, description = "1 to 8, each by itself"), ("from" = String, Query), ("to" = String, Query),
    ("width" = Option<usize>, Query, description = "50 to 4000; 1000 when absent")),
    responses((status = 200, body = Plots), (status = 400), (status = 403)))]
pub(crate) async fn points(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["from", "to", "width"], &["series"])?;
    let (from, to) = query.range()?;
    let width = query.number("width", WIDTH, 1_000)?;
    let ids = asked(&query, &user)?;
    let each = ids.iter().map(async |id| {
        let plot = match read(&http, id, (from, to), width).await {
            Ok(read) => draw(read, (from, to), width),
            Err(fault) => Plot { error: Some(fault.to_string()), ..Plot::default() },
        };
        Plot { id: id.to_string(), ..plot }
    });
    let series = join_all(each).await;
    Ok(Json(Plots { from, to, width, series }).into_response())
}

/// What an upstream gave.
#[derive(Debug, Default)]
pub(super) struct Read {
    unit: String,
    resolution: String,
    count: u64,
    samples: Vec<Sample>,
    truncated: bool,
    /// Already in buckets, by the upstream.
    reduced: bool,
    gaps: Vec<PlotGap>,
}

pub(super) fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

fn draw(read: Read, (from, to): (Timestamp, Timestamp), width: usize) -> Plot {
    let kept = reduce(&read.samples, seconds(from), seconds(to), width);
    let known: Vec<(f64, f64)> =
        read.gaps.iter().map(|gap| (seconds(gap.from), seconds(gap.to))).collect();
    let (t, v) = columns(&kept, &breaks(&read.samples), &known);
    Plot {
        id: String::new(),
        unit: read.unit,
        resolution: read.resolution,
        samples: read.count,
        down_sampled: read.reduced || kept.len() < read.samples.len(),
        truncated: read.truncated,
        t,
        v,
        gaps: read.gaps,
        error: None,
    }
}

async fn read(
    http: &Http,
    id: &SeriesId,
    range: (Timestamp, Timestamp),
    width: usize,
) -> Result<Read, Fault> {
    let nobody = || Fault::Away("it is not configured".to_owned());
    match id {
        SeriesId::Site { site, tenant, device, metric } => {
            let remote = http.upstreams.site(site).ok_or_else(nobody)?;
            let query = [
                ("tenant_id", tenant.to_string()),
                ("device_id", device.to_string()),
                ("metric_type", metric.clone()),
                ("from", range.0.to_string()),
                ("to", range.1.to_string()),
                ("limit", PAGE.to_string()),
            ];
            of_site(remote, &query).await
        }
        SeriesId::Historian { plant, area, unit, tag } => {
            let remote = http.upstreams.historian.as_ref().ok_or_else(nobody)?;
            let query = [
                ("plant", plant.clone()),
                ("area", area.clone()),
                ("unit_name", unit.clone()),
                ("tag", tag.clone()),
                ("from", range.0.to_string()),
                ("to", range.1.to_string()),
                ("points", width.min(MAX_OF_HISTORIAN).to_string()),
            ];
            of_historian(remote, &query, range).await
        }
    }
}

/// A page of a site: readings, or aggregates.
#[derive(Deserialize)]
struct SitePage {
    resolution: String,
    points: Vec<SitePoint>,
    #[serde(default)]
    gaps: Vec<SiteGap>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SitePoint {
    Reading {
        occurred_at: Timestamp,
        metric_value: f64,
        unit: String,
    },
    Bucket {
        bucket_start_at: Timestamp,
        bucket_end_at: Timestamp,
        min_value: f64,
        max_value: f64,
        count: u64,
        unit: String,
    },
}

#[derive(Deserialize)]
struct SiteGap {
    lost: u64,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    reason: String,
}

async fn of_site(remote: &Remote, query: &[(&str, String)]) -> Result<Read, Fault> {
    let mut read = Read::default();
    let mut query = query.to_vec();
    loop {
        let page: SitePage = remote.get("/api/v1/telemetry", &query, PATIENT).await?;
        for point in &page.points {
            match point {
                SitePoint::Reading { occurred_at, metric_value, unit } => {
                    read.samples.push((seconds(*occurred_at), *metric_value));
                    read.count += 1;
                    read.unit.clone_from(unit);
                }
                SitePoint::Bucket {
                    bucket_start_at,
                    bucket_end_at,
                    min_value,
                    max_value,
                    count,
                    unit,
                } => {
                    let (start, end) = (seconds(*bucket_start_at), seconds(*bucket_end_at));
                    // Which of them came first is not known any more.
                    let span = end - start;
                    read.samples.push((start + span / 4.0, *min_value));
                    if max_value > min_value {
                        read.samples.push((end - span / 4.0, *max_value));
                    }
                    read.count += count;
                    read.unit.clone_from(unit);
                    read.reduced = true;
                }
            }
        }
        if read.resolution.is_empty() {
            read.resolution = page.resolution;
            let known = page.gaps.into_iter().filter_map(|gap| {
                let (from, to) = (gap.from?, gap.to?);
                Some(PlotGap { from, to, count: gap.lost, reason: gap.reason })
            });
            read.gaps = known.collect();
        }
        match page.next {
            Some(next) if read.samples.len() < MAX_READ => {
                query.retain(|(name, _)| *name != "after");
                query.push(("after", next));
            }
            next => {
                read.truncated = next.is_some();
                return Ok(read);
            }
        }
    }
}

async fn of_historian(
    remote: &Remote,
    query: &[(&str, String)],
    (from, to): (Timestamp, Timestamp),
) -> Result<Read, Fault> {
    #[derive(Deserialize)]
    struct Answer {
        raw: bool,
        #[serde(default)]
        unit: String,
        #[serde(default)]
        bucket_seconds: f64,
        points: Vec<Point>,
    }
    #[derive(Deserialize)]
    struct Point {
        at: Timestamp,
        value: Option<f64>,
        min: Option<f64>,
        max: Option<f64>,
        count: Option<u64>,
    }
    let answer: Answer = remote.get("/api/v1/telemetry/series", query, PATIENT).await?;
    let mut read = Read {
        unit: answer.unit,
        resolution: if answer.raw { "raw" } else { "buckets" }.to_owned(),
        reduced: !answer.raw,
        ..Read::default()
    };
    for point in answer.points {
        // The first and the last bucket may reach beyond the range; what they hold does not.
        let start = seconds(point.at).max(seconds(from));
        let span = (seconds(point.at) + answer.bucket_seconds).min(seconds(to)) - start;
        read.count += point.count.unwrap_or(1);
        read.samples.extend(point.value.map(|value| (start, value)));
        read.samples.extend(point.min.map(|min| (start + span / 4.0, min)));
        let higher = point.max.filter(|max| point.min.is_none_or(|min| *max > min));
        read.samples.extend(higher.map(|max| (start + span * 0.75, max)));
    }
    Ok(read)
}
