//! The routes of telemetry: who may do what, and the answers.

use api::Refused;
use api::open::Open;
use api::tokens::{Role as TokenRole, Token};
use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::json;

use super::ask::{self, Format};
use super::{csv, gaps, query, readings, series};
use crate::config::Role;
use crate::http::access::{Answer, Asker, may_look, read, unavailable};
use crate::http::trace::Trace;
use crate::http::{Http, Service};
use crate::ingress::check::READINGS_ROUTE;

/// How many gaps there are, in an answer that cannot show them.
const GAPS: HeaderName = HeaderName::from_static("x-holdfast-gaps");

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Telemetry,
    routes: &[
        (Method::GET, "/api/v1/telemetry", Open::Never),
        (Method::GET, "/api/v1/telemetry/latest", Open::Never),
        (Method::GET, "/api/v1/telemetry/series", Open::Never),
        (Method::POST, READINGS_ROUTE, Open::Never),
    ],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new()
        .route("/api/v1/telemetry", get(points))
        .route("/api/v1/telemetry/latest", get(latest))
        .route("/api/v1/telemetry/series", get(list))
        .route(READINGS_ROUTE, post(take))
}

/// Whether the token is of a machine or a person that writes readings.
fn may_write(token: &Token) -> Result<(), Refused> {
    match token.role {
        TokenRole::Edge | TokenRole::Operator | TokenRole::Admin => Ok(()),
        TokenRole::Viewer => Err(Refused::forbidden("this needs the role edge, operator or admin")),
    }
}

/// Points of a series over a range, with the known gaps.
async fn points(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = ask::points(&token, &query.unwrap_or_default(), Timestamp::now())?;
    let client = http.pool().get().await.map_err(unavailable)?;
    let gaps = gaps::gaps(&client, &asked.range).await.map_err(unavailable)?;
    match asked.format {
        Format::Csv { rows, gaps: shown } => {
            drop(client);
            let kind = HeaderValue::from_static("text/csv; charset=utf-8");
            let headers = [(CONTENT_TYPE, kind), (GAPS, HeaderValue::from(gaps.len()))];
            let gaps = shown.then_some(gaps);
            let body = csv::body(http.pool().clone(), asked.range, rows, gaps);
            Ok((headers, body).into_response())
        }
        Format::Json { limit } => {
            let page = query::page(&client, &asked.range, asked.after, limit).await;
            let page = page.map_err(unavailable)?;
            let range = &asked.range;
            Ok(Json(json!({
                "tenant_id": range.tenant,
                "device_id": range.device,
                "metric_type": range.metric,
                "from": range.from,
                "to": range.to,
                "resolution": range.resolution.as_str(),
                "points": page.points,
                "gaps": gaps,
                "next": page.next.map(|next| next.to_string()),
            }))
            .into_response())
        }
    }
}

/// The newest reading of every series.
async fn latest(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = ask::series(&token, &query.unwrap_or_default())?;
    let client = http.pool().get().await.map_err(unavailable)?;
    Ok(Json(series::latest(&client, &asked).await.map_err(unavailable)?).into_response())
}

/// Which series there are.
async fn list(
    State(http): State<Http>,
    Extension(token): Asker,
    RawQuery(query): RawQuery,
) -> Answer {
    may_look(&token)?;
    let asked = ask::series(&token, &query.unwrap_or_default())?;
    let client = http.pool().get().await.map_err(unavailable)?;
    Ok(Json(series::list(&client, &asked).await.map_err(unavailable)?).into_response())
}

/// Takes readings in.
async fn take(
    State(http): State<Http>,
    Extension(token): Asker,
    Extension(trace): Extension<Trace>,
    body: Body,
) -> Answer {
    may_write(&token)?;
    let checked = readings::read(&token, &read(body, readings::MAX_BODY_BYTES).await?, trace)?;
    let committed = http.writer().commit(&checked).await.map_err(|error| {
        tracing::warn!(%error, "readings could not be stored");
        let message = "the edge cannot store anything at the moment; nothing was taken";
        Refused::unavailable("unavailable", message)
    })?;
    let tally = committed.tally;
    let quarantined: u64 = tally.quarantined.values().sum();
    let answer =
        json!({"stored": tally.stored, "duplicate": tally.duplicate, "quarantined": quarantined});
    Ok(Json(answer).into_response())
}
