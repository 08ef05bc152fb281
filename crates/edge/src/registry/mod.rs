//! Who may send, for which tenant, and with which secret.
//!
//! Purpose: enrol, rotate, disable and list nodes; keep the broker's files in step; tell ingress
//! what it needs to know of a node. Promises: an id has passed its grammar and is not the edge's
//! own user; a node belongs to one tenant for good; a secret is shown once and kept only as hashes.
//! It must not know messages or the ledger's arithmetic. It fails with [`Error`]; a refusal is the
//! operator's to fix, anything else is the database's or the disk's.

mod broker_files;
mod cache;
mod disk;
mod enrol;
pub(crate) mod http;
mod liveness;
mod node_config;
mod roll;
mod secret;

pub use broker_files::write as write_broker_files;
pub(crate) use cache::Registry;
pub use enrol::{Enrolled, Enrolment, clear_flag, enroll, set_disabled};
pub use liveness::State;
pub use roll::{Node, list};
pub use secret::SecretHash;

use std::path::PathBuf;

use event::id::{BarnId, DeviceId, FarmId, IdError, NodeId, TenantId};
use tokio_postgres::Row;
use uuid::Uuid;

/// The edge's user at the broker; no node can have this name.
pub const EDGE_USER: &str = "holdfast-edge";

/// What ingress knows of a registered node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub node_id: NodeId,
    /// Whose data it sends.
    pub tenant_id: TenantId,
    /// The farm of events that name none.
    pub farm_id: Option<FarmId>,
    /// The barn of events that name none.
    pub barn_id: Option<BarnId>,
    /// The device of events that name none.
    pub device_id: DeviceId,
    /// The hash of its secret.
    pub secret: SecretHash,
    /// Whether it has been shut out.
    pub disabled: bool,
}

/// The columns that [`Entry::from_row`] reads, in its order.
const ENTRY_COLUMNS: &str =
    "node_id, tenant_id, farm_id, barn_id, device_id, secret_hash, disabled_at IS NOT NULL";

impl Entry {
    fn from_row(row: &Row) -> Result<Entry, Error> {
        let node: String = row.get(0);
        let damaged = |problem: String| Error::Damaged { node: node.clone(), problem };
        let id = |error: IdError| damaged(error.to_string());
        Ok(Entry {
            node_id: node.parse().map_err(|error: event::Invalid| damaged(error.to_string()))?,
            tenant_id: TenantId::from_uuid(row.get(1)).map_err(id)?,
            farm_id: row
                .get::<_, Option<Uuid>>(2)
                .map(FarmId::from_uuid)
                .transpose()
                .map_err(id)?,
            barn_id: row
                .get::<_, Option<Uuid>>(3)
                .map(BarnId::from_uuid)
                .transpose()
                .map_err(id)?,
            device_id: DeviceId::from_uuid(row.get(4)).map_err(id)?,
            secret: SecretHash::from_stored(row.get(5))
                .ok_or_else(|| damaged("its hash is not of 32 bytes".to_owned()))?,
            disabled: row.get(6),
        })
    }
}

/// Why the registry did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The id is the edge's own.
    #[error("this id is the edge's own user at the broker: choose another")]
    Reserved,
    /// The node is there already.
    #[error(
        "{0} is enrolled already: its secret is shown only once; give it a new one with --rotate"
    )]
    Enrolled(NodeId),
    /// The node belongs to another tenant.
    #[error(
        "{0} belongs to another tenant: a node does not change tenants, enrol it under another id"
    )]
    OtherTenant(NodeId),
    /// There is no such node.
    #[error("{0} is not enrolled")]
    Unknown(NodeId),
    /// The broker's files need the edge's own password.
    #[error(
        "edge.mqtt.password is not set: without it the edge would be shut out of its own broker"
    )]
    NoEdgePassword,
    /// A file could not be written.
    #[error(
        "{path}: {source}; the registry was changed, write the broker's files again",
        path = path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A row that the registry did not write.
    #[error("the registry's row of {node:?} is damaged: {problem}")]
    Damaged {
        /// The row's key.
        node: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}
