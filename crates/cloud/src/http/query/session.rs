//! Sessions, and one with its images and results.

use axum::http::StatusCode;
use pg::Client;
use serde_json::{Value, json};
use uuid::Uuid;

use super::listing::Filter::{Flag, Id, Range, Word};
use super::listing::Listing;
use super::listings::{INFERENCE, MEDIA};
use super::{row, unavailable};
use crate::http::refused::Refused;

/// The most images, and the most results, that are shown with a session; all are in their lists.
const MOST: i64 = 200;

/// Sessions, each with what of it has arrived. Whether one is complete is computed when asked for, from
/// what is stored: so it is right in whatever order things came. Where the cloud copies images, one that is not copied is not there yet.
pub(super) const SESSIONS: Listing = Listing {
    columns: &[
        "session_id",
        "status",
        "farm_id",
        "barn_id",
        "device_id",
        "batch_id",
        "started_at",
        "created_at",
        "initial_weight_kg",
        "finalized_at",
        "final_weight_kg",
        "image_count",
        "inference_result_id",
        "inference_result_count",
        "cancelled_at",
        "cancel_reason",
        "media_arrived",
        "media_copied",
        "results_arrived",
        "complete",
        "updated_at",
    ],
    table: "(SELECT s.*, m.media_arrived, m.media_copied, r.results_arrived,
        s.created_at IS NOT NULL AND s.finalized_at IS NOT NULL
            AND CASE WHEN EXISTS (SELECT FROM media_copying) THEN m.media_copied
                ELSE m.media_arrived END >= s.image_count
            AND r.results_arrived >= coalesce(s.inference_result_count, 0)
            AND NOT EXISTS (
                SELECT 1 FROM (
                    SELECT jsonb_array_elements_text(s.inference_result_ids)::uuid
                    UNION ALL SELECT s.inference_result_id) AS named (id)
                WHERE named.id IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM inference_result i
                    WHERE i.tenant_id = s.tenant_id AND i.inference_result_id = named.id)
            ) AS complete
        FROM weighvision_session s
        CROSS JOIN LATERAL (SELECT count(*) AS media_arrived,
                count(*) FILTER (WHERE o.copy_status = 'copied') AS media_copied
            FROM media_object o
            WHERE o.tenant_id = s.tenant_id AND o.session_id = s.session_id) m
        CROSS JOIN LATERAL (SELECT count(*) AS results_arrived FROM inference_result i
            WHERE i.tenant_id = s.tenant_id AND i.session_id = s.session_id) r)",
    filters: &[
        Word("status", &["created", "finalized", "cancelled"]),
        Flag("complete"),
        Id("farm_id"),
        Id("barn_id"),
        Id("device_id"),
        Id("batch_id"),
        Range("started_at"),
    ],
    key: &[("started_at", "timestamptz"), ("session_id", "uuid")],
    newest_first: true,
};

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
