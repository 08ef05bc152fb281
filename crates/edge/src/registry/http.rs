//! The nodes over HTTP, as `holdfast edge nodes` shows them.

use api::open::Open;
use axum::extract::{Extension, State};
use axum::http::Method;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::json;

use super::{Error, roll};
use crate::config::Role;
use crate::http::access::{Answer, Asker, may_look, unavailable};
use crate::http::{Http, Service};

/// What this adds to the edge's HTTP.
pub(crate) const SERVICE: Service = Service {
    role: Role::Ingress,
    routes: &[(Method::GET, "/api/v1/nodes", Open::Never)],
    router,
    openapi: include_str!("openapi.json"),
};

fn router() -> Router<Http> {
    Router::new().route("/api/v1/nodes", get(list))
}

/// Every node of the token's tenants.
async fn list(State(http): State<Http>, Extension(token): Asker) -> Answer {
    may_look(&token)?;
    let client = http.pool().get().await.map_err(unavailable)?;
    let now = Timestamp::now();
    let found = roll::list_of(&client, &token.tenants, now, http.liveness()).await;
    let nodes = found.map_err(|error| match error {
        Error::Database(error) => unavailable(error),
        other => {
            tracing::error!(error = %other, "the nodes cannot be listed");
            api::Refused::unavailable("unavailable", "the nodes cannot be listed")
        }
    })?;
    Ok(Json(json!({"at": now, "nodes": nodes})).into_response())
}
