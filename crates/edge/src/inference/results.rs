//! `inference_results`: a result, once for each id, with its event.

use event::farm::{Envelope, EventType};
use event::id::{
    BarnId, DeviceId, EventId, FarmId, InferenceResultId, MediaId, SessionId, TenantId,
};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::Fault;
use super::look::{COLUMNS, ResultRow};
use super::model::Prediction;
use crate::outbox;

/// A result to be stored.
#[derive(Debug)]
pub(super) struct NewResult {
    pub(super) id: InferenceResultId,
    pub(super) tenant_id: TenantId,
    pub(super) session_id: Option<SessionId>,
    pub(super) media_id: Option<MediaId>,
    pub(super) farm_id: Option<FarmId>,
    pub(super) barn_id: Option<BarnId>,
    pub(super) device_id: Option<DeviceId>,
    pub(super) prediction: Prediction,
    pub(super) occurred_at: Timestamp,
    pub(super) trace_id: Option<String>,
    /// What the request said, for those who use the id again.
    pub(super) digest: [u8; 32],
    /// Whether it is stored only while its image has no other result.
    pub(super) only_first: bool,
}

/// Where a result belongs.
struct Place {
    farm: FarmId,
    barn: BarnId,
    device: DeviceId,
    session: Option<SessionId>,
}

/// Stores a result, or finds the one that was stored with this id. True when it is new.
pub(super) async fn store(pool: &pg::Pool, new: &NewResult) -> Result<(ResultRow, bool), Fault> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    // A repeat is answered even when its media has been removed since.
    if let Some(known) = find(&transaction, new).await? {
        return Ok((known, false));
    }
    let place = place(&transaction, new).await?;
    if let (true, Some(media)) = (new.only_first, new.media_id) {
        let query =
            "SELECT 1 FROM inference_results WHERE tenant_id = $1 AND media_id = $2 LIMIT 1";
        if transaction.query_opt(query, &[&new.tenant_id.uuid(), &media.uuid()]).await?.is_some() {
            return Err(Fault::Answered);
        }
    }
    let event = told(new, &place)?;
    let insert = format!(
        "INSERT INTO inference_results (id, tenant_id, farm_id, barn_id, device_id, session_id,
             media_id, predicted_weight_kg, predicted_size, confidence, model_version, occurred_at,
             request_sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         ON CONFLICT (id) DO NOTHING RETURNING {COLUMNS}"
    );
    let media = new.media_id.map(MediaId::uuid);
    let made = transaction
        .query_opt(
            &insert,
            &[
                &new.id.uuid(),
                &new.tenant_id.uuid(),
                &place.farm.uuid(),
                &place.barn.uuid(),
                &place.device.uuid(),
                &place.session.map(SessionId::uuid),
                &media,
                &new.prediction.predicted_weight_kg,
                &new.prediction.predicted_size,
                &new.prediction.confidence,
                &new.prediction.model_version,
                &new.occurred_at,
                &new.digest.as_slice(),
            ],
        )
        .await?;
    let Some(row) = made else {
        // Another came with this id meanwhile, and has committed.
        let known = find(&transaction, new).await?.ok_or(Fault::IdReused)?;
        return Ok((known, false));
    };
    if let Some(media) = media {
        // The image has its result. A worker that is at it finds out by itself.
        let answered = "DELETE FROM inference_jobs
            WHERE tenant_id = $1 AND media_id = $2 AND status <> 'claimed'";
        transaction.execute(answered, &[&new.tenant_id.uuid(), &media]).await?;
    }
    outbox::add(&transaction, &event).await?;
    let row = ResultRow::read(&row)?;
    transaction.commit().await?;
    Ok((row, true))
}

/// Whether there is a result of this id.
pub(super) async fn is_there(pool: &pg::Pool, id: InferenceResultId) -> Result<bool, Fault> {
    let client = pool.get().await?;
    let query = "SELECT 1 FROM inference_results WHERE id = $1";
    Ok(client.query_opt(query, &[&id.uuid()]).await?.is_some())
}

/// The result of this id, if it is the same.
async fn find(
    transaction: &pg::Transaction<'_>,
    new: &NewResult,
) -> Result<Option<ResultRow>, Fault> {
    let query = format!(
        "SELECT {COLUMNS}, coalesce(tenant_id = $2 AND request_sha256 = $3, false)
         FROM inference_results WHERE id = $1"
    );
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&new.id.uuid(), &new.tenant_id.uuid(), &new.digest.as_slice()];
    let Some(row) = transaction.query_opt(&query, &values).await? else { return Ok(None) };
    match row.try_get(13)? {
        true => Ok(Some(ResultRow::read(&row)?)),
        false => Err(Fault::IdReused),
    }
}

/// The farm, barn and device that a row names.
type Ids = (Uuid, Uuid, Uuid);

/// Where the result belongs: by its media, else by its session, else by what it says itself.
async fn place(transaction: &pg::Transaction<'_>, new: &NewResult) -> Result<Place, Fault> {
    let tenant = new.tenant_id.uuid();
    let mut session = new.session_id.map(SessionId::uuid);
    let mut of_media: Option<Ids> = None;
    if let Some(media) = new.media_id {
        // Results of one image come one after the other, so that the second knows of the first.
        let query = "SELECT farm_id, barn_id, device_id, session_id FROM media_objects
            WHERE id = $1 AND tenant_id = $2 AND status = 'stored' FOR NO KEY UPDATE";
        let row = transaction.query_opt(query, &[&media.uuid(), &tenant]).await?;
        let row = row.ok_or(Fault::UnknownMedia)?;
        let its_session: Option<Uuid> = row.try_get(3)?;
        if session.is_some() && its_session.is_some() && session != its_session {
            return Err(Fault::Contradiction("session_id"));
        }
        session = session.or(its_session);
        of_media = Some((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let mut of_session: Option<Ids> = None;
    if let Some(id) = session {
        // In share mode: a finalization waits for this result, or this for the finalization.
        let query = "SELECT farm_id, barn_id, device_id FROM weight_sessions
            WHERE id = $1 AND tenant_id = $2 FOR SHARE";
        let row = transaction.query_opt(query, &[&id, &tenant]).await?;
        if row.is_none() && new.session_id.is_some() {
            return Err(Fault::UnknownSession);
        }
        of_session = match row {
            Some(row) => Some((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)),
            None => None,
        };
    }
    let given = |known: [Option<Uuid>; 2], said: Option<Uuid>, name: &'static str| {
        let contradicts =
            |known: &Option<Uuid>| known.is_some() && said.is_some() && *known != said;
        if known.iter().any(contradicts) {
            return Err(Fault::Contradiction(name));
        }
        known[0].or(known[1]).or(said).ok_or(Fault::NoPlace(name))
    };
    let damaged = |name: &'static str| move |_| Fault::Damaged(name.to_owned());
    let of = |get: fn(Ids) -> Uuid| [of_media.map(get), of_session.map(get)];
    let farm = given(of(|ids| ids.0), new.farm_id.map(FarmId::uuid), "farm_id")?;
    let barn = given(of(|ids| ids.1), new.barn_id.map(BarnId::uuid), "barn_id")?;
    // A camera need not be the scale that opened the session: the session's device stands in last.
    let said = new.device_id.map(DeviceId::uuid);
    let device =
        given([of_media.map(|ids| ids.2), None], said, "device_id").or_else(|fault| {
            match (fault, of_session) {
                (Fault::NoPlace(_), Some(ids)) => Ok(ids.2),
                (fault, _) => Err(fault),
            }
        })?;
    Ok(Place {
        farm: FarmId::from_uuid(farm).map_err(damaged("farm_id"))?,
        barn: BarnId::from_uuid(barn).map_err(damaged("barn_id"))?,
        device: DeviceId::from_uuid(device).map_err(damaged("device_id"))?,
        session: session.map(SessionId::from_uuid).transpose().map_err(damaged("session_id"))?,
    })
}

/// What the cloud is told of it.
fn told(new: &NewResult, place: &Place) -> Result<Envelope, Fault> {
    let mut payload = json!({
        "inference_result_id": new.id,
        "predicted_weight_kg": new.prediction.predicted_weight_kg,
        "confidence": new.prediction.confidence,
        "model_version": new.prediction.model_version,
    });
    if let Some(media) = new.media_id {
        payload["media_id"] = json!(media);
    }
    if let Some(size) = &new.prediction.predicted_size {
        payload["predicted_size"] = json!(size);
    }
    let envelope = Envelope {
        event_id: EventId::mint(),
        event_type: EventType::INFERENCE_COMPLETED,
        tenant_id: new.tenant_id,
        farm_id: Some(place.farm),
        barn_id: Some(place.barn),
        device_id: Some(place.device),
        session_id: place.session,
        occurred_at: new.occurred_at,
        trace_id: new.trace_id.clone(),
        payload: serde_json::value::to_raw_value(&payload)
            .map_err(|_| Fault::Damaged("payload".to_owned()))?,
    };
    envelope.check().map_err(|invalid| Fault::Damaged(invalid.field.to_string()))?;
    Ok(envelope)
}
