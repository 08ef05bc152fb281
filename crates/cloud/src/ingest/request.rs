//! Reading a body and judging each of its events. Pure.
//!
//! Promises: never panics, whatever the bytes; the frame of a batch is read whole or refused whole,
//! but a bad event, or a bad tombstone, fails alone; no limit is found out by allocating beyond it.
//! It must not know sequences seen before, or SQL.

mod event;
mod frame;
mod tombstone;

pub use event::{BadEvent, Event, Item, Place};
pub use frame::{BadBatch, parse};
pub use tombstone::{BadTombstone, Origin, Range, Reason, Tombstone};

use ::event::{Invalid, InvalidKind};

/// A batch that was read and judged.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Its sender's name for it.
    pub batch_id: String,
    /// The site.
    pub edge_cluster_id: Option<String>,
    /// Its events, in the order of the request.
    pub items: Vec<Item>,
    /// Its tombstones, in the order of the request.
    pub tombstones: Vec<Result<Tombstone, BadTombstone>>,
}

/// Why an event or a tombstone was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// It breaks a rule.
    Invalid,
    /// The token may not write that tenant.
    TenantForbidden,
    /// It is larger than an event may be.
    TooLarge,
    /// The database refuses its row.
    RefusedByDatabase,
    /// A tombstone whose range the frontier has no room for at the moment.
    LedgerFull,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 5] = [
        Code::Invalid,
        Code::TenantForbidden,
        Code::TooLarge,
        Code::RefusedByDatabase,
        Code::LedgerFull,
    ];

    /// The word in the tables and the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::TenantForbidden => "tenant_forbidden",
            Code::TooLarge => "too_large",
            Code::RefusedByDatabase => "refused_by_database",
            Code::LedgerFull => "ledger_full",
        }
    }

    /// The word on the wire, where what the database refuses is one more way of being invalid.
    pub fn on_wire(self) -> &'static str {
        match self {
            Code::RefusedByDatabase => Code::Invalid.as_str(),
            other => other.as_str(),
        }
    }
}

/// What is wrong with one event or tombstone, for a machine and for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// The field, where it is one.
    pub field: Option<String>,
    /// The sentence.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, field: Option<&str>, message: impl Into<String>) -> Refusal {
        Refusal { code, field: field.map(str::to_owned), message: message.into() }
    }

    fn forbidden() -> Refusal {
        let message = "tenant_id is not among the tenants that this token may write";
        Refusal::new(Code::TenantForbidden, Some("tenant_id"), message)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Refusal {
        let code = match invalid.kind {
            InvalidKind::TooLarge => Code::TooLarge,
            _ => Code::Invalid,
        };
        Refusal { code, message: invalid.to_string(), field: Some(invalid.field) }
    }
}
