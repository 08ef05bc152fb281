//! What happened meanwhile, on the axis of the plots: alarms and events of the plant, gaps of the farm.

use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use axum::response::IntoResponse;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::User;
use crate::conservation::GapList;
use crate::http::{Answer, Http, Query};
use crate::upstream::PATIENT;

/// The most tenants whose gaps are asked for.
const MAX_TENANTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MarkKind {
    Alarm,
    Event,
    Gap,
}

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Mark {
    at: Timestamp,
    until: Option<Timestamp>,
    kind: MarkKind,
    /// low, medium, high or critical.
    severity: Option<String>,
    text: String,
    /// The series it is about, where it is one.
    series: Option<String>,
}

/// What happened, in the order of time; with more than fit, the newest.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MarkList {
    items: Vec<Mark>,
    truncated: bool,
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Journal {
    plant: String,
    area: String,
    unit_name: String,
    tag: String,
    at: Timestamp,
    action: String,
    severity: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    timestamp: Timestamp,
    plant: String,
    area: String,
    unit_name: String,
    tag: String,
    value: f64,
    unit: String,
}

/// What happened in a time. An upstream that is away adds nothing.
#[utoipa::path(get, path = "/api/v1/explore/marks", tag = "explore",
    params(("from" = String, Query), ("to" = String, Query), ("limit" = Option<usize>, Query)),
    responses((status = 200, body = MarkList)))]
pub(crate) async fn marks(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["from", "to", "limit"], &[])?;
    let (from, to) = query.range()?;
    let limit = query.number("limit", (1, 1_000), 500)?;
    let time = [("from", from.to_string()), ("to", to.to_string()), ("limit", limit.to_string())];
    let mut list = MarkList { items: Vec::new(), truncated: false };
    if let Some(historian) = http.upstreams.historian.as_ref().filter(|_| user.scope.is_all()) {
        let (journal, events) = tokio::join!(
            historian.get::<Page<Journal>>("/api/v1/alarm-journal", &time, PATIENT),
            historian.get::<Page<Event>>("/api/v1/events", &time, PATIENT),
        );
        if let Ok(page) = journal {
            list.truncated |= page.next_cursor.is_some();
            list.items.extend(page.items.into_iter().map(|one| Mark {
                at: one.at,
                until: None,
                kind: MarkKind::Alarm,
                severity: one.severity.map(|word| word.to_lowercase()),
                text: format!("{} {}", one.tag, one.action),
                series: Some(series(&one.plant, &one.area, &one.unit_name, &one.tag)),
            }));
        }
        if let Ok(page) = events {
            list.truncated |= page.next_cursor.is_some();
            list.items.extend(page.items.into_iter().map(|one| Mark {
                at: one.timestamp,
                until: None,
                kind: MarkKind::Event,
                severity: None,
                text: format!("{} {} {}", one.tag, one.value, one.unit),
                series: Some(series(&one.plant, &one.area, &one.unit_name, &one.tag)),
            }));
        }
    }
    if let Some(cloud) = &http.upstreams.cloud {
        let tenants = http.board.tenants(&user.scope);
        // Gaps of the others are not shown, and that is said.
        list.truncated |= tenants.len() > MAX_TENANTS;
        for tenant in tenants.into_iter().take(MAX_TENANTS) {
            let mut asked = time.to_vec();
            asked.push(("tenant_id", tenant.to_string()));
            asked.push(("loss", "true".to_owned()));
            let page = cloud.get::<GapList>("/api/v1/ledger/tombstones", &asked, PATIENT).await;
            let Ok(page) = page else { continue };
            list.truncated |= page.next_cursor.is_some();
            list.items.extend(page.items.into_iter().map(|gap| Mark {
                // As the cloud chooses them by time.
                at: gap.first_at.or(gap.last_at).unwrap_or(gap.recorded_at),
                until: gap.last_at,
                kind: MarkKind::Gap,
                severity: None,
                text: format!("{}: {} lost, {}", gap.stream, gap.lost, gap.reason),
                series: None,
            }));
        }
    }
    list.truncated |= list.items.len() > limit;
    list.items = newest(list.items, limit);
    Ok(Json(list).into_response())
}

/// The newest of them, in the order of time: what is left out is what is furthest from the present, as in every list behind this one.
fn newest(mut marks: Vec<Mark>, limit: usize) -> Vec<Mark> {
    marks.sort_by_key(|mark| mark.at);
    let surplus = marks.len().saturating_sub(limit);
    marks.split_off(surplus)
}

fn series(plant: &str, area: &str, unit: &str, tag: &str) -> String {
    format!("historian:{plant}:{area}:{unit}:{tag}")
}
