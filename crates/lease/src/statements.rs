//! The statements of a table of leased work, made from its description.
//!
//! Values are parameters. docs/spec/leased-work.md has the state table these statements follow.
//!
//! A claim and a renewal commit without waiting for the disk: when the server crashes and takes one
//! back, the fence refuses what its worker writes later. Outcomes wait: one that was taken back would
//! leave its row held until the lease expires, and cost it an attempt.

use crate::table::{LEASE_EXPIRED, MAX_ATTEMPTS, Table};

/// True, and makes the transaction's commit not wait for the disk. It holds for this transaction
/// alone: the connection goes back to its pool as it was.
const QUICK: &str = "(SELECT set_config('synchronous_commit', 'off', true)) = 'off'";

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
    /// Rows of a claim whose answer was lost, given back as they were: worker, token, and for the
    /// lanes asked: tenants, ranks, keys, mark times, mark ids, numbers of rows.
    pub abandon: String,
    /// Lanes whose rows became due after a time: that time or null, the most rows to look at.
    pub fresh: String,
    /// Lanes after a lane, in order: tenant, rank, key, the most lanes, the most in one band.
    pub sweep: String,
    /// Counts: pending, due, held, and the age of the oldest due row in seconds.
    pub stats: String,
}

impl Table {
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

    /// The columns that rows of a lane are ordered by.
    fn order(&self) -> String {
        let id = self.id;
        self.at.map_or(id.to_owned(), |at| format!("{at}, {id}"))
    }

    /// A row's time in its lane's order; always the same where rows are ordered by id alone.
    fn time(&self) -> &'static str {
        self.at.unwrap_or("'epoch'::timestamptz")
    }

    /// The lanes asked, one row each, from the parameters `first` and the five that follow.
    fn asked(&self, first: u8) -> String {
        let (id_type, least) = (self.id_kind.name(), self.id_kind.least());
        let (tenant_type, key_type) = (self.tenant_kind.name(), self.key_kind.name());
        let n = |offset: u8| first + offset;
        format!(
            "asked AS MATERIALIZED (
  SELECT ask_n, ask_tenant::{tenant_type} AS ask_tenant, ask_rank, ask_key::{key_type} AS ask_key,
    coalesce(ask_at, '-infinity'::timestamptz) AS ask_at,
    coalesce(ask_id, '{least}')::{id_type} AS ask_id, ask_take
  FROM unnest(${}::text[], ${}::int4[], ${}::text[], ${}::timestamptz[], ${}::text[], ${}::int4[])
    WITH ORDINALITY AS u(ask_tenant, ask_rank, ask_key, ask_at, ask_id, ask_take, ask_n))",
            n(0),
            n(1),
            n(2),
            n(3),
            n(4),
            n(5)
        )
    }

    /// Which rows of the table are those of a lane asked, from its mark on.
    fn of_lane(&self) -> String {
        let Table { id, tenant, rank, key, .. } = self;
        let unfinished = self.unfinished();
        let from = match self.at {
            Some(at) => format!("({at}, {id}) >= (ask_at, ask_id)"),
            None => format!("{id} >= ask_id"),
        };
        format!(
            "{tenant} = ask_tenant AND {rank} = ask_rank AND {key} = ask_key AND {unfinished} AND {from}"
        )
    }

    /// The rows of each lane are read once, without a lock. Its first row is then locked if it may
    /// be taken, and with it the lane; the update looks again at every row it takes.
    fn claim(&self) -> String {
        let Table { name, id, status, pending, claimed, buried, .. } = self;
        let Table { token, holder, held_since, expires, attempts, due, payload, .. } = self;
        let Table { error_code, error_message, .. } = self;
        let (claimable, asked, of_lane) = (self.claimable(), self.asked(5), self.of_lane());
        let (order, time) = (self.order(), self.time());
        let spent = format!("{status} <> '{pending}' AND {attempts} + 1 >= $4");
        let mut also = self.touch();
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
            "WITH {asked}, runs AS MATERIALIZED (
  SELECT ask_n, run_id, run_at, run_lost, run_until, row_number() OVER lane AS run_n,
    bool_and(run_open) OVER lane AS run_open
  FROM asked CROSS JOIN LATERAL (
    SELECT {id} AS run_id, {time} AS run_at, {status} <> '{pending}' AS run_lost,
      {claimable} AS run_open,
      CASE WHEN {status} = '{pending}' THEN {due} ELSE {expires} END AS run_until
    FROM {name} WHERE {of_lane}
    ORDER BY {order} LIMIT ask_take) r
  WINDOW lane AS (PARTITION BY ask_n ORDER BY run_at, run_id)
), locked AS MATERIALIZED (
  SELECT {id} AS locked_id FROM {name}
  WHERE {id} = ANY (ARRAY(SELECT run_id FROM runs WHERE run_n = 1 AND run_open)) AND {claimable}
    AND {QUICK}
  FOR UPDATE SKIP LOCKED
), mine AS MATERIALIZED (
  SELECT ask_n AS mine_n FROM runs JOIN locked ON run_id = locked_id
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
  WHERE {id} = ANY (ARRAY(SELECT run_id FROM runs JOIN mine ON ask_n = mine_n WHERE run_open))
    AND {claimable}
  RETURNING {id} AS taken_id, {status} = '{claimed}' AS taken_live, {attempts} AS taken_attempts,
    {error_code} AS taken_error, {payload}
)
SELECT ask_n::int8, run_id::text, run_at, run_n::int8, run_lost,
  CASE WHEN run_n = 1 THEN (extract(epoch FROM run_until - now()) * 1000)::float8 END AS run_wait_ms,
  taken.*
FROM runs LEFT JOIN taken ON taken_id = run_id
ORDER BY ask_n, run_n"
        )
    }

    fn touch(&self) -> String {
        self.touched.map(|column| format!(", {column} = now()")).unwrap_or_default()
    }

    /// What every statement that ends a hold clears.
    fn let_go(&self) -> String {
        let Table { token, holder, held_since, expires, .. } = self;
        let touch = self.touch();
        format!("{token} = NULL, {holder} = NULL, {held_since} = NULL, {expires} = NULL{touch}")
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
        let (fence, touch) = (self.fence(), self.touch());
        format!(
            "UPDATE {name} SET {expires} = now() + $3::int8 * interval '1 ms'{touch}
WHERE {fence} AND {QUICK}"
        )
    }

    fn complete(&self) -> String {
        let Table { name, status, .. } = self;
        let (fence, let_go) = (self.fence(), self.let_go());
        let Some(done) = self.done else {
            return format!("DELETE FROM {name} WHERE {fence}");
        };
        let at = self.done_at.map(|column| format!(", {column} = now()")).unwrap_or_default();
        format!("UPDATE {name} SET {status} = '{done}', {let_go}{at} WHERE {fence}")
    }

    fn release(&self) -> String {
        let Table { name, status, pending, .. } = self;
        let (fence, let_go) = (self.fence(), self.let_go());
        format!("UPDATE {name} SET {status} = '{pending}', {let_go} WHERE {fence}")
    }

    /// Looks where the claim looked, and a little further, for rows may have come in between. What it
    /// misses is taken over when its lease has expired.
    fn abandon(&self) -> String {
        let Table { name, id, status, pending, holder, token, .. } = self;
        let (held, let_go, order) = (self.held(), self.let_go(), self.order());
        let (asked, of_lane) = (self.asked(3), self.of_lane());
        format!(
            "WITH {asked}
UPDATE {name} SET {status} = '{pending}', {let_go}
WHERE {id} = ANY (ARRAY(SELECT run_id FROM asked CROSS JOIN LATERAL (
    SELECT {id} AS run_id FROM {name} WHERE {of_lane} ORDER BY {order} LIMIT 2 * ask_take + 100) r))
  AND {holder} = $1::text AND {token} = $2::uuid AND CASE WHEN {held} THEN true ELSE false END"
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
        let Table { name, id, tenant, rank, key, status, pending, due, .. } = self;
        let (time, unfinished) = (self.time(), self.unfinished());
        // Without a time the first id is the place; with one, the time before all its ids.
        let first = match self.at {
            Some(_) => "NULL::text",
            None => "(array_agg(f_id ORDER BY f_id))[1]::text",
        };
        format!(
            "WITH recent AS MATERIALIZED (
  SELECT {tenant} AS f_tenant, {rank} AS f_rank, {key} AS f_key, {time} AS f_at, {id} AS f_id,
    {due} AS f_due
  FROM {name}
  WHERE {unfinished} AND {status} = '{pending}' AND {due} <= now()
    AND {due} > coalesce($1::timestamptz, now() - interval '2 s')
  ORDER BY {due} LIMIT $2
), seen AS (SELECT now() AS seen_at, max(f_due) AS last_due, count(*) AS seen_rows FROM recent),
lanes AS (
  SELECT f_tenant::text, f_rank, f_key::text, count(*) AS f_rows, min(f_at) AS f_at,
    {first} AS f_id
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
