//! One session with its images and results.

use axum::http::StatusCode;
use pg::Client;
use serde_json::{Value, json};
use uuid::Uuid;

use super::listing::Listing;
use super::listings::{INFERENCE, MEDIA, SESSIONS};
use super::{row, unavailable};
use crate::http::refused::Refused;

/// The most images, and the most results, that are shown with a session; all are in their lists.
const MOST: i64 = 200;

pub(super) async fn fetch(client: &Client, tenant: Uuid, session: Uuid) -> Result<Value, Refused> {
    let rows = async |listing: &Listing, order: &str| {
        let statement = format!(
            "SELECT {} FROM {} q WHERE tenant_id = $1 AND session_id = $2 ORDER BY {order} LIMIT $3",
            listing.columns.join(", "),
            listing.table
        );
        let rows = client.query(&statement, &[&tenant, &session, &MOST]).await?;
        let shown = listing.columns.len();
        rows.iter().map(|one| row::to_json(one, shown)).collect::<Result<Vec<Value>, _>>()
    };
    let found = async {
        let sessions = rows(&SESSIONS, "session_id").await?;
        let media = rows(&MEDIA, "occurred_at, media_id").await?;
        let inference = rows(&INFERENCE, "occurred_at, inference_result_id").await?;
        Ok::<_, tokio_postgres::Error>((sessions, media, inference))
    };
    let (sessions, media, inference) = found.await.map_err(|error| unavailable(&error.into()))?;
    match sessions.into_iter().next() {
        Some(session) => Ok(json!({"session": session, "media": media, "inference": inference})),
        None => {
            let message = "this tenant has no such session";
            Err(Refused::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}
