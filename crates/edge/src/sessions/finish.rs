//! The two ends of a session.

use api::tokens::Tenants;
use event::farm::EventType;
use event::id::{InferenceResultId, SessionId};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::{COLUMNS, Fault, Session, Status, told};
use crate::outbox;
use crate::sync::admin::scope;

/// The most results that a `finalized` event names.
const MAX_NAMED: i32 = 1_000;

/// How a session is finalized.
#[derive(Debug)]
pub(super) struct Finalize {
    pub(super) final_weight_kg: f64,
    pub(super) end_at: Option<Timestamp>,
    pub(super) result: Option<InferenceResultId>,
    pub(super) trace_id: Option<String>,
}

/// How a session is cancelled.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) reason: Option<String>,
    pub(super) end_at: Option<Timestamp>,
    pub(super) trace_id: Option<String>,
}

/// What a session has when it ends.
struct Gathered {
    images: i64,
    results: i64,
    /// The highest confidence, of several the latest.
    best: Option<Uuid>,
    named: Vec<Uuid>,
}

/// Ends a session with a weight. A repeat of what happened changes nothing.
pub(super) async fn finalize(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: SessionId,
    what: &Finalize,
    now: Timestamp,
) -> Result<Session, Fault> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let session = lock(&transaction, tenants, id).await?;
    if session.status != Status::Created {
        let same = session.status == Status::Finalized
            && session.final_weight_kg == Some(what.final_weight_kg)
            && what.end_at.is_none_or(|end_at| session.end_at == Some(end_at))
            && what.result.is_none_or(|id| session.inference_result_id == Some(id.uuid()));
        return if same { Ok(session) } else { Err(Fault::WrongState(session.status)) };
    }
    let end_at = end(&session, what.end_at, now)?;
    let gathered = gather(&transaction, &session).await?;
    let chosen = match what.result {
        Some(result) => {
            let known = "SELECT 1 FROM inference_results
                WHERE id = $1 AND tenant_id = $2 AND session_id = $3";
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&result.uuid(), &session.tenant_id, &session.id];
            transaction.query_opt(known, &values).await?.ok_or(Fault::UnknownResult)?;
            Some(result.uuid())
        }
        None => gathered.best,
    };
    let update = format!(
        "UPDATE weight_sessions SET status = 'finalized', end_at = $2, final_weight_kg = $3,
             image_count = $4, inference_result_id = $5
         WHERE id = $1 RETURNING {COLUMNS}"
    );
    let row = transaction
        .query_one(
            &update,
            &[&session.id, &end_at, &what.final_weight_kg, &gathered.images, &chosen],
        )
        .await?;
    let session = Session::read(&row)?;
    let payload = json!({
        "status": session.status,
        "final_weight_kg": session.final_weight_kg,
        "image_count": session.image_count,
        "inference_result_id": session.inference_result_id,
        "inference_result_count": gathered.results,
        "inference_result_ids": gathered.named,
    });
    let at = told::end_of(&session, end_at);
    let kind = EventType::SESSION_FINALIZED;
    let event = told::event(&session, kind, at, what.trace_id.clone(), &payload)?;
    outbox::add(&transaction, &event).await?;
    transaction.commit().await?;
    Ok(session)
}

/// Ends a session without a weight. A repeat of what happened changes nothing.
pub(super) async fn cancel(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: SessionId,
    what: &Cancel,
    now: Timestamp,
) -> Result<Session, Fault> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let session = lock(&transaction, tenants, id).await?;
    if session.status != Status::Created {
        let same = session.status == Status::Cancelled
            && session.cancel_reason == what.reason
            && what.end_at.is_none_or(|end_at| session.end_at == Some(end_at));
        return if same { Ok(session) } else { Err(Fault::WrongState(session.status)) };
    }
    let end_at = end(&session, what.end_at, now)?;
    let update = format!(
        "UPDATE weight_sessions SET status = 'cancelled', end_at = $2, cancel_reason = $3
         WHERE id = $1 RETURNING {COLUMNS}"
    );
    let row = transaction.query_one(&update, &[&session.id, &end_at, &what.reason]).await?;
    let session = Session::read(&row)?;
    let payload = json!({"status": session.status, "reason": session.cancel_reason});
    let at = told::end_of(&session, end_at);
    let kind = EventType::SESSION_CANCELLED;
    let event = told::event(&session, kind, at, what.trace_id.clone(), &payload)?;
    outbox::add(&transaction, &event).await?;
    transaction.commit().await?;
    Ok(session)
}

/// From here on this transaction is alone with the session; results for it wait too.
async fn lock(
    transaction: &pg::Transaction<'_>,
    tenants: &Tenants,
    id: SessionId,
) -> Result<Session, Fault> {
    let query = format!(
        "SELECT {COLUMNS} FROM weight_sessions
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) FOR UPDATE"
    );
    let row = transaction.query_opt(&query, &[&id.uuid(), &scope(tenants)]).await?;
    Session::read(&row.ok_or(Fault::Missing)?)
}

/// When it ended. A start in the future, by the clock of a device, is ended then at the earliest.
fn end(session: &Session, named: Option<Timestamp>, now: Timestamp) -> Result<Timestamp, Fault> {
    match named {
        Some(end_at) if end_at < session.start_at => Err(Fault::EndsBeforeStart),
        Some(end_at) => Ok(end_at),
        None => Ok(now.max(session.start_at)),
    }
}

async fn gather(transaction: &pg::Transaction<'_>, session: &Session) -> Result<Gathered, Fault> {
    let row = transaction
        .query_one(
            "SELECT (SELECT count(*) FROM media_objects
                 WHERE tenant_id = $1 AND session_id = $2 AND status = 'stored'),
               count(*),
               (array_agg(id ORDER BY confidence DESC, occurred_at DESC, id DESC))[1],
               coalesce((array_agg(id ORDER BY id))[1:$3], '{}')
             FROM inference_results WHERE tenant_id = $1 AND session_id = $2",
            &[&session.tenant_id, &session.id, &MAX_NAMED],
        )
        .await?;
    Ok(Gathered {
        images: row.try_get(0)?,
        results: row.try_get(1)?,
        best: row.try_get(2)?,
        named: row.try_get(3)?,
    })
}
