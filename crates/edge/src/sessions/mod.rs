//! Weighing sessions: `created`, then `finalized` or `cancelled`, one way.
//!
//! docs/spec/sessions.md is the contract: states, transitions, keys, events.
//!
//! Promises: a transition and its outbox event are one transaction. A session ends once: of several who
//! ask one wins, and the others are told the state it is in. A key makes one session, however often and
//! by how many it is sent. Nothing outside the given tenants is seen or changed.
//!
//! It must not know how images are stored or results are made: it counts and chooses among those that
//! are there. It fails with [`Fault`].

mod ask;
mod create;
mod finish;
mod http;
mod look;
mod told;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

pub(crate) use http::SERVICE;

/// The states of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Created,
    Finalized,
    Cancelled,
}

impl Status {
    const ALL: [Status; 3] = [Status::Created, Status::Finalized, Status::Cancelled];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Status::Created => "created",
            Status::Finalized => "finalized",
            Status::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Status, &'static str> {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or("expected created, finalized or cancelled")
    }
}

/// Why something could not be done with a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// There is no such session, or not for these tenants.
    #[error("there is no such session")]
    Missing,
    /// The state does not allow it.
    #[error("the session is {0}")]
    WrongState(Status),
    /// The key was used for another session.
    #[error("this key was used with another body")]
    KeyReused,
    /// It would end before it began.
    #[error("end_at is before start_at")]
    EndsBeforeStart,
    /// The result that was named is none of this session.
    #[error("there is no such result of this session")]
    UnknownResult,
    /// A row that this code did not write: it makes no event.
    #[error("the session's row makes no event: {0}")]
    Damaged(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Database(error.into())
    }
}

/// A session, as its row says it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Uuid,
    pub(crate) farm_id: Uuid,
    pub(crate) barn_id: Uuid,
    pub(crate) device_id: Uuid,
    pub(crate) batch_id: Option<Uuid>,
    pub(crate) status: Status,
    pub(crate) start_at: Timestamp,
    pub(crate) end_at: Option<Timestamp>,
    pub(crate) initial_weight_kg: f64,
    pub(crate) final_weight_kg: Option<f64>,
    pub(crate) image_count: Option<i64>,
    pub(crate) inference_result_id: Option<Uuid>,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// The columns of [`Session::read`].
const COLUMNS: &str =
    "id, tenant_id, farm_id, barn_id, device_id, batch_id, status, start_at, end_at,
    initial_weight_kg, final_weight_kg, image_count, inference_result_id, cancel_reason, created_at,
    updated_at";

impl Session {
    fn read(row: &tokio_postgres::Row) -> Result<Session, Fault> {
        let status: &str = row.try_get(6)?;
        Ok(Session {
            id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            farm_id: row.try_get(2)?,
            barn_id: row.try_get(3)?,
            device_id: row.try_get(4)?,
            batch_id: row.try_get(5)?,
            status: status.parse().map_err(|_| Fault::Damaged("status".to_owned()))?,
            start_at: row.try_get(7)?,
            end_at: row.try_get(8)?,
            initial_weight_kg: row.try_get(9)?,
            final_weight_kg: row.try_get(10)?,
            image_count: row.try_get(11)?,
            inference_result_id: row.try_get(12)?,
            cancel_reason: row.try_get(13)?,
            created_at: row.try_get(14)?,
            updated_at: row.try_get(15)?,
        })
    }
}
