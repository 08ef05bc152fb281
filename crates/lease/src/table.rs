//! The statements of a table of leased work, made from a description of its columns.
//!
//! The names are the owner's constants, never input. Values are parameters. docs/spec/leased-work.md
//! has the state table these statements follow, and says what the index must look like.

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
    fn name(self) -> &'static str {
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
    /// Whose row it is; a constant of the right type where there are no tenants.
    pub tenant: &'static str,
    /// The type of `tenant`.
    pub tenant_kind: Kind,
    /// An `integer`, lower first: `(-priority)`, or a constant.
    pub rank: &'static str,
    /// The ordering key, and the row's id for a row that has none.
    pub key: &'static str,
    /// The type of `key`.
    pub key_kind: Kind,
    /// The `timestamptz` that rows of a key are ordered by, then by id. Not null.
    pub at: &'static str,
    /// The state.
    pub status: &'static str,
    /// The state of a row that waits.
    pub pending: &'static str,
    /// The state of a row that a claim took.
    pub claimed: &'static str,
    /// Another state of a held row, where the table has one.
    pub sending: Option<&'static str>,
    /// The state of a row that was delivered.
    pub done: &'static str,
    /// The state of a dead letter.
    pub buried: &'static str,
    /// `uuid`: the lease token.
    pub token: &'static str,
    /// `text`: who holds it.
    pub holder: &'static str,
    /// `timestamptz`: since when.
    pub held_since: &'static str,
    /// `timestamptz`: until when.
    pub expires: &'static str,
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
    /// What the handler gets: a select list of columns, all with names.
    pub payload: &'static str,
}

/// The statements of a table. Each says its parameters; times are the database's.
#[derive(Debug, Clone)]
pub struct Statements {
    /// Takes rows: worker, token, lease in ms, attempt limit, and for the lanes asked: tenants, ranks,
    /// keys, mark times, mark ids, numbers of rows.
    pub claim: String,
    /// Holds rows longer: ids, token, lease in ms.
    pub renew: String,
    /// Rows that are delivered: ids, token.
    pub complete: String,
    /// Rows to try again: ids, token, delays in ms, codes, messages.
    pub retry: String,
    /// Rows to bury: ids, token, reasons, codes, messages.
    pub bury: String,
    /// Rows given back as they were: ids, token.
    pub release: String,
    /// Rows of a claim whose answer was lost, given back as they were: worker, token.
    pub abandon: String,
    /// Lanes whose rows became due after a time: that time or null, the most rows to look at.
    pub fresh: String,
    /// Lanes after a lane, in order: tenant, rank, key, the most lanes, the most in one band.
    pub sweep: String,
    /// Counts: pending, due, held, and the age of the oldest due row in seconds.
    pub stats: String,
}

impl Table {
    /// The partial index that the claim and the sweep walk, as its definition.
    pub fn lane_index(&self, name: &str) -> String {
        let Table { name: table, id, tenant, rank, key, at, .. } = self;
        let unfinished = self.unfinished();
        format!(
            "CREATE INDEX {name} ON {table} (({tenant}), ({rank}), ({key}), ({at}), {id})
    WHERE {unfinished}"
        )
    }

    /// The statements.
    pub fn statements(&self) -> Statements {
        Statements {
            claim: self.claim(),
            renew: self.renew(),
            complete: self.complete(),
            retry: self.retry(),
            bury: self.bury(),
            release: self.release(),
            abandon: self.abandon(),
            fresh: self.fresh(),
            sweep: self.sweep(),
            stats: self.stats(),
        }
    }

    fn held(&self) -> String {
        let Table { status, claimed, .. } = self;
        match self.sending {
            Some(sending) => format!("{status} IN ('{claimed}', '{sending}')"),
            None => format!("{status} = '{claimed}'"),
        }
    }

    /// The predicate of the lane index. The planner must see it in a query to use the index.
    fn unfinished(&self) -> String {
        let Table { status, pending, claimed, .. } = self;
        match self.sending {
            Some(sending) => format!("{status} IN ('{pending}', '{claimed}', '{sending}')"),
            None => format!("{status} IN ('{pending}', '{claimed}')"),
        }
    }

    /// As a CASE, which no index can serve: the rows are named by id, and a plan that looked for the
    /// state instead would read every row in that state.
    fn claimable(&self) -> String {
        let Table { status, pending, due, expires, .. } = self;
        let held = self.held();
        format!(
            "CASE WHEN {status} = '{pending}' THEN {due} <= now()
      WHEN {held} THEN {expires} <= now() ELSE false END"
        )
    }

    fn claim(&self) -> String {
        let Table { name, id, tenant, rank, key, at, status, pending, claimed, buried, .. } = self;
        let Table { token, holder, held_since, expires, attempts, due, payload, .. } = self;
        let Table { error_code, error_message, .. } = self;
        let (id_type, least) = (self.id_kind.name(), self.id_kind.least());
        let (tenant_type, key_type) = (self.tenant_kind.name(), self.key_kind.name());
        let (unfinished, claimable) = (self.unfinished(), self.claimable());
        let lane = format!("{tenant} = ask_tenant AND {rank} = ask_rank AND {key} = ask_key");
        let spent = format!("{status} <> '{pending}' AND {attempts} + 1 >= $4");
        let mut also = String::new();
        if let Some(column) = self.last_attempt {
            also += &format!(
                ", {column} = CASE WHEN {status} <> '{pending}' THEN now() ELSE {column} END"
            );
        }
        if let Some(column) = self.buried_at {
            also += &format!(", {column} = CASE WHEN {spent} THEN now() ELSE {column} END");
        }
        if let Some(column) = self.buried_reason {
            also +=
                &format!(", {column} = CASE WHEN {spent} THEN '{MAX_ATTEMPTS}' ELSE {column} END");
        }
        format!(
            "WITH asked AS MATERIALIZED (
  SELECT ask_n, ask_tenant::{tenant_type} AS ask_tenant, ask_rank, ask_key::{key_type} AS ask_key,
    coalesce(ask_at, '-infinity'::timestamptz) AS ask_at,
    coalesce(ask_id, '{least}')::{id_type} AS ask_id, ask_take
  FROM unnest($5::text[], $6::int4[], $7::text[], $8::timestamptz[], $9::text[], $10::int4[])
    WITH ORDINALITY AS u(ask_tenant, ask_rank, ask_key, ask_at, ask_id, ask_take, ask_n)
), heads AS MATERIALIZED (
  SELECT * FROM asked LEFT JOIN LATERAL (
    SELECT {id} AS head_id, {at} AS head_at, {claimable} AS head_open,
      CASE WHEN {status} = '{pending}' THEN {due} ELSE {expires} END AS head_until
    FROM {name} WHERE {lane} AND {unfinished} AND ({at}, {id}) >= (ask_at, ask_id)
    ORDER BY {at}, {id} LIMIT 1) h ON true
), locked AS MATERIALIZED (
  SELECT {id} AS locked_id FROM {name}
  WHERE {id} = ANY (ARRAY(SELECT head_id FROM heads WHERE head_open)) AND {claimable}
  FOR UPDATE SKIP LOCKED
), runs AS MATERIALIZED (
  SELECT ask_n, run_id, run_at, run_lost,
    bool_and(run_open) OVER (PARTITION BY ask_n ORDER BY run_at, run_id) AS run_taken
  FROM heads JOIN locked ON locked_id = head_id CROSS JOIN LATERAL (
    SELECT {id} AS run_id, {at} AS run_at, {status} <> '{pending}' AS run_lost,
      {claimable} AS run_open
    FROM {name} WHERE {lane} AND {unfinished} AND ({at}, {id}) >= (head_at, head_id)
    ORDER BY {at}, {id} LIMIT ask_take) r
), taken AS (
  UPDATE {name} SET
    {status} = CASE WHEN {spent} THEN '{buried}' ELSE '{claimed}' END,
    {token} = CASE WHEN {spent} THEN NULL ELSE $2::uuid END,
    {holder} = CASE WHEN {spent} THEN NULL ELSE $1::text END,
    {held_since} = CASE WHEN {spent} THEN NULL ELSE now() END,
    {expires} = CASE WHEN {spent} THEN NULL ELSE now() + $3::int8 * interval '1 ms' END,
    {attempts} = CASE WHEN {status} <> '{pending}' THEN {attempts} + 1 ELSE {attempts} END,
    {error_code} = CASE WHEN {status} <> '{pending}' THEN '{LEASE_EXPIRED}' ELSE {error_code} END,
    {error_message} = CASE WHEN {status} <> '{pending}'
      THEN 'the lease of ' || {holder} || ' expired' ELSE {error_message} END{also}
  WHERE {id} = ANY (ARRAY(SELECT run_id FROM runs WHERE run_taken)) AND {claimable}
  RETURNING {id} AS taken_id, {status} = '{claimed}' AS taken_live, {attempts} AS taken_attempts,
    {error_code} AS taken_error, {payload}
)
SELECT ask_n::int8, head_id::text, head_at, head_open,
  (extract(epoch FROM head_until - now()) * 1000)::float8 AS head_wait_ms,
  run_id::text, run_at, run_lost, taken.*
FROM heads LEFT JOIN runs USING (ask_n) LEFT JOIN taken ON taken_id = run_id
ORDER BY ask_n, run_at, run_id"
        )
    }

    /// What every statement that ends a hold clears.
    fn let_go(&self) -> String {
        let Table { token, holder, held_since, expires, .. } = self;
        format!("{token} = NULL, {holder} = NULL, {held_since} = NULL, {expires} = NULL")
    }

    /// The fence: the row is held, by this very claim. A CASE for the same reason as above.
    fn fence(&self) -> String {
        let Table { id, token, .. } = self;
        let (held, id_type) = (self.held(), self.id_kind.name());
        format!(
            "{id} = ANY ($1::text[]::{id_type}[]) AND {token} = $2::uuid
  AND CASE WHEN {held} THEN true ELSE false END"
        )
    }

    fn renew(&self) -> String {
        let Table { name, expires, .. } = self;
        let fence = self.fence();
        format!("UPDATE {name} SET {expires} = now() + $3::int8 * interval '1 ms' WHERE {fence}")
    }

    fn complete(&self) -> String {
        let Table { name, status, done, .. } = self;
        let (fence, let_go) = (self.fence(), self.let_go());
        let at = self.done_at.map(|column| format!(", {column} = now()")).unwrap_or_default();
        format!("UPDATE {name} SET {status} = '{done}', {let_go}{at} WHERE {fence}")
    }

    fn release(&self) -> String {
        let Table { name, status, pending, .. } = self;
        let (fence, let_go) = (self.fence(), self.let_go());
        format!("UPDATE {name} SET {status} = '{pending}', {let_go} WHERE {fence}")
    }

    fn abandon(&self) -> String {
        let Table { name, status, pending, holder, token, .. } = self;
        let (held, let_go) = (self.held(), self.let_go());
        format!(
            "UPDATE {name} SET {status} = '{pending}', {let_go}
WHERE {holder} = $1::text AND {token} = $2::uuid AND {held}"
        )
    }

    fn retry(&self) -> String {
        let Table { name, id, status, pending, due, attempts, error_code, error_message, .. } =
            self;
        let (fence, let_go, id_type) = (self.fence(), self.let_go(), self.id_kind.name());
        let last = self.last_attempt.map(|c| format!(", {c} = now()")).unwrap_or_default();
        format!(
            "UPDATE {name} SET {status} = '{pending}', {let_go}, {attempts} = {attempts} + 1,
  {due} = now() + new_delay * interval '1 ms', {error_code} = new_code,
  {error_message} = new_message{last}
FROM unnest($1::text[], $3::int8[], $4::text[], $5::text[])
  AS n(new_id, new_delay, new_code, new_message)
WHERE {id} = new_id::{id_type} AND {fence}"
        )
    }

    fn bury(&self) -> String {
        let Table { name, id, status, buried, attempts, error_code, error_message, .. } = self;
        let (fence, let_go, id_type) = (self.fence(), self.let_go(), self.id_kind.name());
        let mut also = String::new();
        for column in [self.last_attempt, self.buried_at].into_iter().flatten() {
            also += &format!(", {column} = now()");
        }
        if let Some(column) = self.buried_reason {
            also += &format!(", {column} = new_reason");
        }
        format!(
            "UPDATE {name} SET {status} = '{buried}', {let_go}, {attempts} = {attempts} + 1,
  {error_code} = new_code, {error_message} = new_message{also}
FROM unnest($1::text[], $3::text[], $4::text[], $5::text[])
  AS n(new_id, new_reason, new_code, new_message)
WHERE {id} = new_id::{id_type} AND {fence}"
        )
    }

    fn fresh(&self) -> String {
        let Table { name, tenant, rank, key, at, status, pending, due, .. } = self;
        format!(
            "WITH recent AS MATERIALIZED (
  SELECT {tenant} AS f_tenant, {rank} AS f_rank, {key} AS f_key, {at} AS f_at, {due} AS f_due
  FROM {name}
  WHERE {status} = '{pending}' AND {due} <= now()
    AND {due} > coalesce($1::timestamptz, now() - interval '2 s')
  ORDER BY {due} LIMIT $2
), seen AS (SELECT now() AS seen_at, max(f_due) AS last_due, count(*) AS seen_rows FROM recent),
lanes AS (
  SELECT f_tenant::text, f_rank, f_key::text, count(*) AS f_rows, min(f_at) AS f_at
  FROM recent GROUP BY 1, 2, 3)
SELECT * FROM seen LEFT JOIN lanes ON true"
        )
    }

    fn sweep(&self) -> String {
        let Table { name, tenant, rank, key, .. } = self;
        let (tenant_type, key_type) = (self.tenant_kind.name(), self.key_kind.name());
        let unfinished = self.unfinished();
        let (columns, order) = (
            format!("{tenant} AS s_tenant, {rank} AS s_rank, {key} AS s_key"),
            format!("ORDER BY {tenant}, {rank}, {key} LIMIT 1"),
        );
        format!(
            "WITH RECURSIVE swept AS (
  (SELECT {columns}, 1 AS s_band, 1 AS s_n FROM {name}
   WHERE {unfinished} AND ({tenant}, {rank}, {key}) > ($1::text::{tenant_type}, $2::int4, $3::text::{key_type})
   {order})
  UNION ALL
  SELECT n.s_tenant, n.s_rank, n.s_key,
    CASE WHEN (n.s_tenant, n.s_rank) = (s.s_tenant, s.s_rank) THEN s.s_band + 1 ELSE 1 END, s.s_n + 1
  FROM swept s CROSS JOIN LATERAL (
    (SELECT {columns} FROM {name}
     WHERE s.s_band < $5::int4 AND {unfinished} AND ({tenant}, {rank}, {key}) > (s.s_tenant, s.s_rank, s.s_key)
     {order})
    UNION ALL
    (SELECT {columns} FROM {name}
     WHERE s.s_band >= $5::int4 AND {unfinished} AND ({tenant}, {rank}) > (s.s_tenant, s.s_rank)
     {order})
  ) n WHERE s.s_n < $4::int4
)
SELECT s_tenant::text, s_rank, s_key::text FROM swept"
        )
    }

    fn stats(&self) -> String {
        let Table { name, status, pending, due, .. } = self;
        let (held, unfinished) = (self.held(), self.unfinished());
        format!(
            "SELECT count(*) FILTER (WHERE {status} = '{pending}'),
  count(*) FILTER (WHERE {status} = '{pending}' AND {due} <= now()),
  count(*) FILTER (WHERE {held}),
  coalesce(extract(epoch FROM now() - min({due}) FILTER (WHERE {status} = '{pending}' AND {due} <= now())), 0)::float8
FROM {name} WHERE {unfinished}"
        )
    }
}
