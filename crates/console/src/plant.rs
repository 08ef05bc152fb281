//! The plant's alarms, as the historian has them, and what operators do with them.

use std::time::Duration;

use api::Refused;
use axum::Json;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use event::scada::{AssetName, Tag};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::access::User;
use crate::answers::Answers;
use crate::http::{Answer, Body, Http, Query, wrong};
use crate::picture::AlarmCounts;
use crate::upstream::historian::{self, Flood, HistorianFacts};
use crate::upstream::{PATIENT, Remote};

/// The longest reason of a shelf.
const MAX_REASON_CHARS: usize = 500;

/// An alarm.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Alarm {
    /// PLANT.AREA.UNIT.TAG
    #[serde(default)]
    id: String,
    plant: String,
    area: String,
    unit_name: String,
    tag: String,
    state: String,
    severity: String,
    value: f64,
    unit: String,
    last_raised_at: Option<Timestamp>,
    last_cleared_at: Option<Timestamp>,
    acknowledged_at: Option<Timestamp>,
    acknowledged_by: Option<String>,
    shelved_until: Option<Timestamp>,
    shelved_by: Option<String>,
    shelf_reason: Option<String>,
    chattering: bool,
    occurrences: i64,
}

impl Alarm {
    fn named(self) -> Alarm {
        let id = format!("{}.{}.{}.{}", self.plant, self.area, self.unit_name, self.tag);
        Alarm { id, ..self }
    }
}

/// A page of alarms, the latest raised first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlarmList {
    items: Vec<Alarm>,
    next_cursor: Option<String>,
    counts: AlarmCounts,
    /// Those that go on.
    floods: Vec<Flood>,
}

/// A page as the historian has it.
#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Alarm>,
    next_cursor: Option<String>,
}

/// How old a page of alarms and their numbers may be.
const LIFE: Duration = Duration::from_secs(1);

/// What the historian says of alarms, by what was asked, for everybody who looks.
#[derive(Debug)]
pub(crate) struct Alarms {
    pages: Answers<Vec<(&'static str, String)>, Page>,
    summary: Answers<(), HistorianFacts>,
}

impl Default for Alarms {
    fn default() -> Alarms {
        Alarms { pages: Answers::new(LIFE), summary: Answers::new(LIFE) }
    }
}

/// For how long, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shelve {
    minutes: u32,
    reason: String,
}

/// Nothing more is to be said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

fn historian<'a>(http: &'a Http, user: &User) -> Result<&'a Remote, Refused> {
    user.may_see_everything()?;
    http.upstreams.historian.as_ref().ok_or_else(|| {
        Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no historian to ask for alarms")
    })
}

/// Alarms with their states.
#[utoipa::path(get, path = "/api/v1/alarms", tag = "alarms", params(
    ("state" = Option<String>, Query), ("severity" = Option<String>, Query), ("plant" = Option<String>, Query),
    ("shelved" = Option<bool>, Query),
    ("open" = Option<bool>, Query, description = "true: neither normal nor shelved"), ("limit" = Option<usize>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = AlarmList), (status = 403), (status = 503)))]
pub(crate) async fn alarms(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = ["state", "severity", "plant", "shelved", "open", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known, &[])?;
    let historian = historian(&http, &user)?;
    let limit = query.number("limit", (1, 1_000), 100)?;
    let mut asked = vec![("limit", limit.to_string())];
    for name in ["state", "severity", "plant", "shelved", "open", "cursor"] {
        asked.extend(query.get(name).map(|value| (name, value.to_owned())));
    }
    let (page, summary) = tokio::join!(
        http.alarms.pages.get(asked.clone(), async || {
            let mut page: Page = historian.get("/api/v1/alarm-states", &asked, PATIENT).await?;
            page.items = page.items.into_iter().map(Alarm::named).collect();
            Ok(page)
        }),
        http.alarms.summary.get((), async || historian::poll(historian).await),
    );
    let page = page.map_err(|fault| fault.refuse("the historian"))?;
    let summary = summary.map_err(|fault| fault.refuse("the historian"))?;
    Ok(Json(AlarmList {
        items: page.items.clone(),
        next_cursor: page.next_cursor.clone(),
        counts: AlarmCounts {
            active_unacknowledged: summary.alarms.active_unacknowledged,
            active_acknowledged: summary.alarms.active_acknowledged,
            cleared_unacknowledged: summary.alarms.cleared_unacknowledged,
            shelved: summary.alarms.shelved,
            flood: !summary.floods.is_empty(),
        },
        floods: summary.floods.clone(),
    })
    .into_response())
}

/// Acknowledges an alarm.
#[utoipa::path(post, path = "/api/v1/alarms/{id}/acknowledge", tag = "alarms", params(("id" = String, Path)), request_body = Nothing,
    responses((status = 200, body = Alarm), (status = 403), (status = 404), (status = 409)))]
pub(crate) async fn acknowledge(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answer {
    act(&http, &user, &id, "acknowledge", &json!({})).await
}

/// Takes an alarm off its shelf.
#[utoipa::path(post, path = "/api/v1/alarms/{id}/unshelve", tag = "alarms", params(("id" = String, Path)), request_body = Nothing,
    responses((status = 200, body = Alarm), (status = 403), (status = 404), (status = 409)))]
pub(crate) async fn unshelve(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answer {
    act(&http, &user, &id, "unshelve", &json!({})).await
}

/// Puts an alarm on the shelf.
#[utoipa::path(post, path = "/api/v1/alarms/{id}/shelve", tag = "alarms", params(("id" = String, Path)), request_body = Shelve,
    responses((status = 200, body = Alarm), (status = 400), (status = 403), (status = 404), (status = 409)))]
pub(crate) async fn shelve(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(shelf): Body<Shelve>,
) -> Answer {
    if shelf.reason.trim().is_empty() || shelf.reason.chars().count() > MAX_REASON_CHARS {
        return Err(wrong("reason", "1 to 500 characters"));
    }
    let body = json!({"minutes": shelf.minutes, "reason": shelf.reason.trim()});
    act(&http, &user, &id, "shelve", &body).await
}

async fn act(http: &Http, user: &User, id: &str, what: &str, body: &Value) -> Answer {
    let historian = historian(http, user)?;
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such alarm");
    let words: Vec<&str> = id.split('.').collect();
    let [plant, area, unit, tag] = words[..] else { return Err(missing()) };
    for name in [plant, area, unit] {
        name.parse::<AssetName>().map_err(|_| missing())?;
    }
    tag.parse::<Tag>().map_err(|_| missing())?;
    let path = format!("/api/v1/alarm-states/{plant}/{area}/{unit}/{tag}/{what}");
    let done = historian.post::<Alarm>(&user.person(), &path, body, PATIENT).await;
    let alarm = done.map_err(|fault| fault.refuse("the historian"))?;
    // Whoever did it looks again at once, and sees it done.
    http.alarms.pages.forget().await;
    http.alarms.summary.forget().await;
    tracing::info!(token = %user.token.id, alarm = id, what, "an alarm was acted on");
    Ok(Json(alarm.named()).into_response())
}
