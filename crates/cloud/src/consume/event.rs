//! A message as the consumers see it: an event with its coordinates, or why it is none.

use bus::{Cause, Delivery};
use event::farm::Envelope;
use event::id::Epoch;
use event::ledger::MAX_SEQ;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// The dead letter's cause when a body is not an envelope.
pub(super) const INVALID: &str = "invalid_envelope";
/// The dead letter's cause when Postgres refuses the values.
pub(super) const REFUSED: &str = "refused_by_database";

/// Where an event stands in the ledger, from the message's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stream: String,
    pub(super) epoch: Uuid,
    pub(super) seq: i64,
}

/// An event to be stored.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Its place in the batch it came with.
    pub(super) index: usize,
    pub(super) envelope: Envelope,
    pub(super) place: Option<Place>,
}

impl Event {
    /// Reads a delivery. Coordinates ride beside the envelope and are optional, so those that cannot
    /// be read are left out: the event itself is sound.
    pub(super) fn read(index: usize, delivery: &Delivery) -> Result<Event, Cause> {
        let message = &delivery.message;
        let envelope = Envelope::parse(&message.body).map_err(|fault| {
            // The fault may quote what it found, and a dead letter's cause must hold no payload.
            let field = fault.field;
            Cause::new(INVALID, format!("the field {field} breaks the rules of its event type"))
        })?;
        let place = (|| {
            let stream = message.headers.get("stream")?;
            let stream: event::id::NodeId = stream.parse().ok()?;
            let epoch: Epoch = message.headers.get("epoch")?.parse().ok()?;
            let seq: u64 = message.headers.get("seq")?.parse().ok()?;
            let seq = i64::try_from(seq).ok().filter(|_| (1..=MAX_SEQ).contains(&seq))?;
            Some(Place { stream: stream.as_str().to_owned(), epoch: epoch.uuid(), seq })
        })();
        Ok(Event { index, envelope, place })
    }

    pub(super) fn tenant(&self) -> Uuid {
        self.envelope.tenant_id.uuid()
    }

    pub(super) fn id(&self) -> Uuid {
        self.envelope.event_id.uuid()
    }

    pub(super) fn farm(&self) -> Option<Uuid> {
        self.envelope.farm_id.map(|id| id.uuid())
    }

    pub(super) fn barn(&self) -> Option<Uuid> {
        self.envelope.barn_id.map(|id| id.uuid())
    }

    pub(super) fn device(&self) -> Option<Uuid> {
        self.envelope.device_id.map(|id| id.uuid())
    }

    pub(super) fn session(&self) -> Option<Uuid> {
        self.envelope.session_id.map(|id| id.uuid())
    }

    /// The payload's documented fields. The envelope was checked when it was read, so `None` means
    /// that the rules and the type disagree.
    pub(super) fn payload<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.envelope.payload.get()).ok()
    }
}
