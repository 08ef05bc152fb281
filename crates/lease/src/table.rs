//! A table of leased work, described by its columns.
//!
//! The names are the owner's constants, never input. docs/spec/leased-work.md says what the indexes
//! must look like; `statements` makes the SQL.

/// The error code of a row whose worker lost its lease.
pub const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
/// The error code of a row whose handler panicked.
pub const HANDLER_PANIC: &str = "HANDLER_PANIC";
/// Why a row is buried that failed too often.
pub const MAX_ATTEMPTS: &str = "max_attempts_exceeded";

/// The type of a column that names something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `uuid`.
    Uuid,
    /// `text`. The column or expression needs COLLATE "C" for byte order, or any one collation.
    Text,
    /// `bigint`.
    Bigint,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Uuid => "uuid",
            Kind::Text => "text",
            Kind::Bigint => "bigint",
        }
    }

    /// The value before all others.
    pub(crate) fn least(self) -> &'static str {
        match self {
            Kind::Uuid => "00000000-0000-0000-0000-000000000000",
            Kind::Text => "",
            Kind::Bigint => "-9223372036854775808",
        }
    }
}

/// Where a lease is written.
#[derive(Debug, Clone)]
pub enum Lease {
    /// On every row that a claim takes.
    Row(RowLease),
    /// On the lane that a claim takes rows of, in a table of its own with this name: see
    /// [`Table::lane_table`]. A claim then writes no row of the work itself.
    Lane(&'static str),
}

/// The columns and states of a row that is held.
#[derive(Debug, Clone)]
pub struct RowLease {
    /// The state of a row that a claim took.
    pub claimed: &'static str,
    /// Another state of a held row, where the table has one.
    pub sending: Option<&'static str>,
    /// `uuid`: the lease token.
    pub token: &'static str,
    /// `text`: who holds it.
    pub holder: &'static str,
    /// `timestamptz`: since when.
    pub held_since: &'static str,
    /// `timestamptz`: until when.
    pub expires: &'static str,
}

/// A table of leased work. Expressions use bare column names; those of `tenant`, `rank`, `key` and
/// `at` are the ones the lane index is made of, letter by letter.
#[derive(Debug, Clone)]
pub struct Table {
    /// The table.
    pub name: &'static str,
    /// Its primary key, one column.
    pub id: &'static str,
    /// The type of `id`.
    pub id_kind: Kind,
    /// Whose row it is. Where there are no tenants a constant, but made of a column, as in
    /// `(0 * length(kind))`: one that is not would be no condition of the index.
    pub tenant: &'static str,
    /// The type of `tenant`.
    pub tenant_kind: Kind,
    /// An `integer`, lower first: `(-priority)`, or a constant made of a column.
    pub rank: &'static str,
    /// The ordering key, and the row's id for a row that has none.
    pub key: &'static str,
    /// The type of `key`.
    pub key_kind: Kind,
    /// The `timestamptz` that rows of a key are ordered by, then by id. Not null. `None` where they
    /// are ordered by id alone.
    pub at: Option<&'static str>,
    /// The state.
    pub status: &'static str,
    /// The state of a row that waits.
    pub pending: &'static str,
    /// The state of a row that was delivered. `None` for a table that keeps no history: a delivered
    /// row is deleted.
    pub done: Option<&'static str>,
    /// The state of a dead letter.
    pub buried: &'static str,
    /// The predicate of the lane index, where it is not simply the unfinished states: over a
    /// column that a claim leaves as it is, so that a claim writes no index entry, or with a further
    /// condition, so that several queues share a table.
    pub unfinished: Option<&'static str>,
    /// Where a lease is written.
    pub lease: Lease,
    /// `integer`: failed attempts.
    pub attempts: &'static str,
    /// `timestamptz`, not null: not before.
    pub due: &'static str,
    /// `timestamptz`: the last attempt.
    pub last_attempt: Option<&'static str>,
    /// `text`: a code of the last error.
    pub error_code: &'static str,
    /// `text`: the last error in words.
    pub error_message: &'static str,
    /// `timestamptz`: when it was delivered.
    pub done_at: Option<&'static str>,
    /// `timestamptz`: when it was buried.
    pub buried_at: Option<&'static str>,
    /// `text`: why it was buried.
    pub buried_reason: Option<&'static str>,
    /// `timestamptz`: the last change. The engine writes it, so that no trigger need do it.
    pub touched: Option<&'static str>,
    /// What the handler gets: a select list of columns, all with names.
    pub payload: &'static str,
}

impl Table {
    /// The partial index that the claim and the sweep walk, as its definition.
    pub fn lane_index(&self, name: &str) -> String {
        let Table { name: table, id, tenant, rank, key, .. } = self;
        let (at, unfinished) = (self.at.map(|at| format!(" ({at}),")), self.unfinished());
        let at = at.unwrap_or_default();
        format!(
            "CREATE INDEX {name} ON {table} (({tenant}), ({rank}), ({key}),{at} {id})
    WHERE {unfinished}"
        )
    }

    /// The table of lanes for [`Lease::Lane`], as its definition. `turn` is part of the key, so that
    /// the newest version of a lane is found first, however many old ones a snapshot keeps.
    pub fn lane_table(&self, name: &str) -> String {
        let (tenant, key, id) =
            (self.tenant_kind.name(), self.key_kind.name(), self.id_kind.name());
        let bytes = if self.key_kind == Kind::Text { " COLLATE \"C\"" } else { "" };
        format!(
            "CREATE TABLE {name} (
    tenant_id        {tenant} NOT NULL,
    rank             integer NOT NULL,
    key              {key}{bytes} NOT NULL,
    turn             bigint NOT NULL DEFAULT 0,
    claimed_at       timestamptz NOT NULL DEFAULT now(),
    lease_token      uuid,
    claimed_by       text,
    lease_expires_at timestamptz,
    taken            {id}[],
    PRIMARY KEY (tenant_id, rank, key, turn),
    CHECK (num_nulls(lease_token, claimed_by, lease_expires_at, taken) IN (0, 4))
) WITH (fillfactor = 10)"
        )
    }

    /// The predicate of the lane index. The planner must see it in a query to use the index.
    pub(crate) fn unfinished(&self) -> String {
        let Table { status, pending, .. } = self;
        match (self.unfinished, &self.lease) {
            (Some(predicate), _) => predicate.to_owned(),
            (None, Lease::Lane(_)) => format!("{status} = '{pending}'"),
            (None, Lease::Row(RowLease { claimed, sending: None, .. })) => {
                format!("{status} IN ('{pending}', '{claimed}')")
            }
            (None, Lease::Row(RowLease { claimed, sending: Some(sending), .. })) => {
                format!("{status} IN ('{pending}', '{claimed}', '{sending}')")
            }
        }
    }
}
