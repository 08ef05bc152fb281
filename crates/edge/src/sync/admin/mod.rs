//! What operators do with the outbox: look, redrive dead letters or give them up, free stuck rows.
//!
//! The HTTP API and the command line stand on this. docs/spec/sync-forwarder.md is the contract.
//!
//! Promises: nothing outside the given tenants is seen or changed; a change and its audit are one
//! transaction; a row that a forwarder holds under a living lease is never touched. It must not know
//! HTTP or terminals. It fails with the database's errors alone.

mod act;
mod groups;
mod look;
mod stats;

use std::fmt;
use std::str::FromStr;

use api::tokens::{Caller, Tenants};
use event::id::TenantId;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Json;
use uuid::Uuid;

pub use act::{
    DEFAULT_LIMIT, Done, GiveUp, MAX_BECAUSE_CHARS, MAX_IDS, MAX_LIMIT, Redrive, Unclaim, give_up,
    redrive, unclaim_stuck,
};
pub use groups::{DeadGroup, dead_groups};
pub use look::{Detail, Filter, MAX_PAGE, Noted, PAGE, Page, Row, list, show};
pub use stats::{Breaker, PACE_SECONDS, Stats, TenantStats, stats, stats_over};

/// The states of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waits.
    Pending,
    /// A forwarder holds it.
    Claimed,
    /// The same.
    Sending,
    /// The cloud has it.
    Acked,
    /// A dead letter.
    Dlq,
    /// An operator gave it up.
    Failed,
}

impl Status {
    /// Every state.
    pub const ALL: [Status; 6] = [
        Status::Pending,
        Status::Claimed,
        Status::Sending,
        Status::Acked,
        Status::Dlq,
        Status::Failed,
    ];

    /// The state as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Claimed => "claimed",
            Status::Sending => "sending",
            Status::Acked => "acked",
            Status::Dlq => "dlq",
            Status::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Status, String> {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| "expected pending, claimed, sending, acked, dlq or failed".to_owned())
    }
}

/// The longest name of an actor, in characters.
const MAX_ACTOR_CHARS: usize = 200;

/// Who acts, for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    via: &'static str,
    name: String,
    acting_for: Option<String>,
}

impl Actor {
    /// Whoever has a token.
    pub fn token(caller: &Caller) -> Actor {
        let name = clip(&format!("token {} ({})", caller.name, caller.id));
        Actor { via: "http", name, acting_for: caller.acting_for().map(str::to_owned) }
    }

    /// A user of this machine.
    pub fn user(name: &str) -> Actor {
        Actor { via: "cli", name: clip(&format!("user {name}")), acting_for: None }
    }

    /// How they came.
    pub(crate) fn via(&self) -> &'static str {
        self.via
    }

    /// Who they are.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What was asked for, as the audit keeps it: with the person beside it that a token acts for.
    pub(crate) fn noted(&self, mut filter: Value) -> Json<Value> {
        if let Some(person) = &self.acting_for {
            filter["acting_for"] = person.as_str().into();
        }
        Json(filter)
    }
}

fn clip(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_ACTOR_CHARS).collect()
}

/// The tenants as a parameter: null for all.
pub(crate) fn scope(tenants: &Tenants) -> Option<Vec<Uuid>> {
    match tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(list.iter().map(|tenant| tenant.uuid()).collect()),
    }
}

fn uuid(tenant: Option<TenantId>) -> Option<Uuid> {
    tenant.map(TenantId::uuid)
}
