//! Statements where every row has its own lease.

use super::{QUICK, RowStatements};
use crate::table::{LEASE_EXPIRED, MAX_ATTEMPTS, RowLease, Table};

/// A table whose rows have their own leases.
pub(super) struct ByRow<'a> {
    pub(super) table: &'a Table,
    pub(super) lease: &'a RowLease,
}

impl ByRow<'_> {
    pub(super) fn statements(&self) -> RowStatements {
        RowStatements {
            renew: self.renew(),
            complete: self.complete(),
            retry: self.retry(),
            bury: self.bury(),
            release: self.release(),
        }
    }

    fn held(&self) -> String {
        let Table { status, .. } = self.table;
        let RowLease { claimed, .. } = self.lease;
        match self.lease.sending {
            Some(sending) => format!("{status} IN ('{claimed}', '{sending}')"),
            None => format!("{status} = '{claimed}'"),
        }
    }

    /// As a CASE, which no index can serve: the rows are named by id, and a plan that looked for the
    /// state instead would read every row in that state.
    fn claimable(&self) -> String {
        let Table { status, pending, due, .. } = self.table;
        let RowLease { expires, .. } = self.lease;
        let held = self.held();
        format!(
            "CASE WHEN {status} = '{pending}' THEN {due} <= now()
      WHEN {held} THEN {expires} <= now() ELSE false END"
        )
    }

    /// The rows of each lane are read once, without a lock. Its first row is then locked if it may
    /// be taken, and with it the lane; the update looks again at every row it takes.
    pub(super) fn claim(&self) -> String {
        let Table { name, id, status, pending, buried, .. } = self.table;
        let RowLease { claimed, .. } = self.lease;
        let Table { attempts, due, payload, .. } = self.table;
        let RowLease { token, holder, held_since, expires, .. } = self.lease;
        let Table { error_code, error_message, .. } = self.table;
        let (claimable, asked, of_lane) =
            (self.claimable(), self.table.asked(5), self.table.of_lane());
        let (order, time) = (self.table.order(), self.table.time());
        let spent = format!("{status} <> '{pending}' AND {attempts} + 1 >= $4");
        let mut also = self.table.touch();
        if let Some(column) = self.table.last_attempt {
            also += &format!(
                ", {column} = CASE WHEN {status} <> '{pending}' THEN now() ELSE {column} END"
            );
        }
        if let Some(column) = self.table.buried_at {
            also += &format!(", {column} = CASE WHEN {spent} THEN now() ELSE {column} END");
        }
        if let Some(column) = self.table.buried_reason {
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
SELECT ask_n::int4, run_id, run_at, run_lost,
  CASE WHEN run_n = 1 THEN (extract(epoch FROM run_until - now()) * 1000)::float8 END AS run_wait_ms,
  taken.*
FROM runs LEFT JOIN taken ON taken_id = run_id"
        )
    }

    /// What every statement that ends a hold clears.
    fn let_go(&self) -> String {
        let RowLease { token, holder, held_since, expires, .. } = self.lease;
        let touch = self.table.touch();
        format!("{token} = NULL, {holder} = NULL, {held_since} = NULL, {expires} = NULL{touch}")
    }

    /// The fence: the row is held, by this very claim. A CASE for the same reason as above.
    fn fence(&self) -> String {
        let Table { id, .. } = self.table;
        let RowLease { token, .. } = self.lease;
        let (held, id_type) = (self.held(), self.table.id_kind.name());
        format!(
            "{id} = ANY ($1::{id_type}[]) AND {token} = $2::uuid
  AND CASE WHEN {held} THEN true ELSE false END"
        )
    }

    fn renew(&self) -> String {
        let Table { name, .. } = self.table;
        let RowLease { expires, .. } = self.lease;
        let (fence, touch) = (self.fence(), self.table.touch());
        format!(
            "UPDATE {name} SET {expires} = now() + $3::int8 * interval '1 ms'{touch}
WHERE {fence} AND {QUICK}"
        )
    }

    fn complete(&self) -> String {
        let Table { name, status, .. } = self.table;
        let (fence, let_go) = (self.fence(), self.let_go());
        let Some(done) = self.table.done else {
            return format!("DELETE FROM {name} WHERE {fence}");
        };
        let at = self.table.done_at.map(|column| format!(", {column} = now()")).unwrap_or_default();
        format!("UPDATE {name} SET {status} = '{done}', {let_go}{at} WHERE {fence}")
    }

    fn release(&self) -> String {
        let Table { name, status, pending, .. } = self.table;
        let (fence, let_go) = (self.fence(), self.let_go());
        format!("UPDATE {name} SET {status} = '{pending}', {let_go} WHERE {fence}")
    }

    /// Looks where the claim looked, and a little further, for rows may have come in between. What it
    /// misses is taken over when its lease has expired.
    pub(super) fn abandon(&self) -> String {
        let Table { name, id, status, pending, .. } = self.table;
        let RowLease { holder, token, .. } = self.lease;
        let (held, let_go, order) = (self.held(), self.let_go(), self.table.order());
        let (asked, of_lane) = (self.table.asked(3), self.table.of_lane());
        format!(
            "WITH {asked}, back AS (
UPDATE {name} SET {status} = '{pending}', {let_go}
WHERE {id} = ANY (ARRAY(SELECT run_id FROM asked CROSS JOIN LATERAL (
    SELECT {id} AS run_id FROM {name} WHERE {of_lane} ORDER BY {order} LIMIT 2 * ask_take + 100) r))
  AND {holder} = $1::text AND {token} = $2::uuid AND CASE WHEN {held} THEN true ELSE false END
  RETURNING 1)
SELECT count(*) FROM back"
        )
    }

    fn retry(&self) -> String {
        let Table { name, id, status, pending, due, attempts, error_code, error_message, .. } =
            self.table;
        let (fence, let_go, id_type) = (self.fence(), self.let_go(), self.table.id_kind.name());
        let last = self.table.last_attempt.map(|c| format!(", {c} = now()")).unwrap_or_default();
        format!(
            "UPDATE {name} SET {status} = '{pending}', {let_go}, {attempts} = {attempts} + 1,
  {due} = now() + new_delay * interval '1 ms', {error_code} = new_code,
  {error_message} = new_message{last}
FROM unnest($1::{id_type}[], $3::int8[], $4::text[], $5::text[])
  AS n(new_id, new_delay, new_code, new_message)
WHERE {id} = new_id AND {fence}"
        )
    }

    fn bury(&self) -> String {
        let Table { name, id, status, buried, attempts, error_code, error_message, .. } =
            self.table;
        let (fence, let_go, id_type) = (self.fence(), self.let_go(), self.table.id_kind.name());
        let mut also = String::new();
        for column in [self.table.last_attempt, self.table.buried_at].into_iter().flatten() {
            also += &format!(", {column} = now()");
        }
        if let Some(column) = self.table.buried_reason {
            also += &format!(", {column} = new_reason");
        }
        format!(
            "UPDATE {name} SET {status} = '{buried}', {let_go}, {attempts} = {attempts} + 1,
  {error_code} = new_code, {error_message} = new_message{also}
FROM unnest($1::{id_type}[], $3::text[], $4::text[], $5::text[])
  AS n(new_id, new_reason, new_code, new_message)
WHERE {id} = new_id AND {fence}"
        )
    }
}
