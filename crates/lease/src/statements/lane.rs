//! Statements where the lease stands on the lane.
//!
//! A lane's row says whose turn it is. Every claim makes the next `turn`, and `turn` is part of the
//! key, so that the newest is read first and old versions are never walked.
//!
//! A claim is one statement, so that it sees lane and rows at one moment. It takes the lane only if
//! its turn and token are still those it saw: whoever changes rows of a lane changes its lane row in
//! the same transaction, and first. So what it read of the rows is still so when it has the lane.
//!
//! A lane that has no row is never taken directly, or a claim could miss that another one made the
//! lane, finished its rows and removed it, all since the claim looked. It is made free first
//! (`enter`), by a statement of its own. Two of them may make a lane twice: the second is then at
//! turn 0 below the first, and whoever sees it sees the first too; only the highest turn counts.

use super::{LaneStatements, QUICK};
use crate::table::{LEASE_EXPIRED, MAX_ATTEMPTS, Table};

/// A table whose lanes have leases.
pub(super) struct ByLane<'a> {
    pub(super) table: &'a Table,
    pub(super) lanes: &'a str,
}

impl ByLane<'_> {
    pub(super) fn statements(&self) -> LaneStatements {
        LaneStatements {
            enter: self.enter(),
            renew: self.renew(),
            complete: self.complete(),
            settle: self.settle(),
            prune: self.prune(),
        }
    }

    /// A row that may have an outcome, as a CASE, which no index can serve: the rows are named by id,
    /// and a plan that looked for the state instead would read every row in that state.
    fn waits(&self) -> String {
        let Table { status, pending, .. } = self.table;
        format!("CASE WHEN {status} = '{pending}' THEN true ELSE false END")
    }

    /// The newest row of the lane asked.
    fn newest(&self) -> String {
        let lanes = self.lanes;
        format!(
            "SELECT * FROM {lanes} WHERE tenant_id = ask_tenant AND rank = ask_rank AND key = ask_key
    ORDER BY turn DESC LIMIT 1"
        )
    }

    fn enter(&self) -> String {
        let (lanes, newest) = (self.lanes, self.newest());
        let (tenant, key) = (self.table.tenant_kind.name(), self.table.key_kind.name());
        // In order, so that two of them do not wait for each other.
        format!(
            "INSERT INTO {lanes} (tenant_id, rank, key)
SELECT ask_tenant, ask_rank, ask_key FROM (
  SELECT t::{tenant} AS ask_tenant, r AS ask_rank, k::{key} AS ask_key
  FROM unnest($1::text[], $2::int4[], $3::text[]) AS u(t, r, k)) a
WHERE NOT EXISTS ({newest}) AND {QUICK}
ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING"
        )
    }

    /// Lane and rows are read; the lanes that may be taken are locked, if they are still as they were
    /// read, and get the next turn with the ids of the rows. Rows that a lost holder had are counted
    /// an attempt, and those among them that have used theirs up are buried. A row that may not go bars
    /// those behind it. The answer is in no order; in it a barred row looks like one that was taken,
    /// and it is for the reader to see what is before it. Every column of the answer is paid for with
    /// every row: `run_due` is null where the lane is another's, `run_wait_ms` where it has no row.
    pub(super) fn claim(&self) -> String {
        let Table { name, id, status, pending, buried, attempts, due, payload, .. } = self.table;
        let Table { error_code, error_message, .. } = self.table;
        let (lanes, newest, waits) = (self.lanes, self.newest(), self.waits());
        let (asked, of_lane) = (self.table.asked(5), self.table.of_lane());
        let order = self.table.order();
        let (run_at, place) = match self.table.at {
            Some(at) => (format!("{at} AS run_at, "), ["run_at", "run_id"].as_slice()),
            None => (String::new(), ["run_id"].as_slice()),
        };
        let place_of = |rows: &str| {
            let columns: Vec<String> =
                place.iter().map(|column| format!("{rows}.{column}")).collect();
            format!("({})", columns.join(", "))
        };
        let (place_b, place_w) = (place_of("b"), place_of("w"));
        let spent = format!("{attempts} + 1 >= $4");
        let mut also = self.table.touch();
        if let Some(column) = self.table.last_attempt {
            also += &format!(", {column} = now()");
        }
        if let Some(column) = self.table.buried_at {
            also += &format!(", {column} = CASE WHEN {spent} THEN now() ELSE {column} END");
        }
        if let Some(column) = self.table.buried_reason {
            also +=
                &format!(", {column} = CASE WHEN {spent} THEN '{MAX_ATTEMPTS}' ELSE {column} END");
        }
        format!(
            "WITH {asked}, lane AS MATERIALIZED (
  SELECT asked.*, turn AS lane_turn, lease_token AS lane_token, claimed_by AS lane_holder,
    lease_expires_at AS lane_expires, taken AS lane_taken,
    turn IS NOT NULL AND (lease_token IS NULL OR lease_expires_at <= now()) AS lane_open
  FROM asked LEFT JOIN LATERAL ({newest}) l ON true
), runs AS MATERIALIZED (
  SELECT r.*, ask_n::int4
  FROM lane CROSS JOIN LATERAL (
    SELECT {id} AS run_id, {run_at}
      CASE WHEN lane_open THEN {status} = '{pending}' AND {due} <= now() END AS run_due,
      coalesce({id} = ANY (lane_taken) AND {spent}, false) AS run_spent,
      CASE WHEN {id} = ANY (lane_taken) THEN {attempts} + 1 ELSE {attempts} END AS taken_attempts,
      CASE WHEN {id} = ANY (lane_taken) THEN '{LEASE_EXPIRED}' ELSE {error_code} END AS taken_error,
      CASE WHEN lane_turn IS NULL THEN NULL WHEN lane_open AND {due} <= now() THEN 0
        ELSE (extract(epoch FROM CASE WHEN lane_open THEN {due} ELSE lane_expires END - now()) * 1000)::float8
      END AS run_wait_ms, {payload}
    FROM {name} WHERE {of_lane}
    ORDER BY {order} LIMIT CASE WHEN lane_open THEN ask_take ELSE 1 END) r
), ready AS MATERIALIZED (
  SELECT ask_n AS want_n, bool_and(run_due) AS all_due, bool_or(run_due) AS some_due,
    array_agg(run_id) FILTER (WHERE NOT run_spent) AS want_all
  FROM runs WHERE run_due IS NOT NULL GROUP BY ask_n
), wanted AS MATERIALIZED (
  SELECT want_n, want_all AS want_ids FROM ready WHERE all_due
  UNION ALL
  SELECT want_n, want_some FROM ready CROSS JOIN LATERAL (
    SELECT array_agg(run_id) FILTER (WHERE NOT run_spent) AS want_some, count(*) AS want_rows
    FROM runs w WHERE w.ask_n = want_n AND NOT EXISTS (
      SELECT FROM runs b WHERE b.ask_n = want_n AND NOT b.run_due AND {place_b} <= {place_w})) s
  WHERE some_due AND NOT all_due AND want_rows > 0
), locked AS MATERIALIZED (
  SELECT ask_n AS lock_n, ask_tenant, ask_rank, ask_key, lane_turn, want_ids
  FROM lane JOIN wanted ON want_n = ask_n CROSS JOIN LATERAL (
    SELECT FROM {lanes} l
    WHERE tenant_id = ask_tenant AND rank = ask_rank AND key = ask_key AND turn = lane_turn
      AND lease_token IS NOT DISTINCT FROM lane_token
      AND (lease_token IS NULL OR lease_expires_at <= now()) AND {QUICK}
    LIMIT 1 FOR UPDATE SKIP LOCKED) l
), mine AS (
  UPDATE {lanes} SET turn = turn + 1, claimed_at = now(), taken = want_ids,
    lease_token = CASE WHEN want_ids IS NOT NULL THEN $2::uuid END,
    claimed_by = CASE WHEN want_ids IS NOT NULL THEN $1::text END,
    lease_expires_at = CASE WHEN want_ids IS NOT NULL THEN now() + $3::int8 * interval '1 ms' END
  FROM locked WHERE tenant_id = ask_tenant AND rank = ask_rank AND key = ask_key AND turn = lane_turn
  RETURNING lock_n AS mine_n, turn AS mine_turn
), lost AS (
  UPDATE {name} SET
    {status} = CASE WHEN {spent} THEN '{buried}' ELSE {status} END,
    {attempts} = {attempts} + 1, {error_code} = '{LEASE_EXPIRED}',
    {error_message} = 'the lease of ' || lost_holder || ' expired'{also}
  FROM (SELECT unnest(lane_taken) AS lost_id, lane_holder AS lost_holder
    FROM locked JOIN lane ON ask_n = lock_n) t
  WHERE {id} = lost_id AND {waits}
  RETURNING {spent_now} AS lost_spent
), counted AS (
  SELECT nullif(count(*), 0) AS lost_rows, nullif(count(*) FILTER (WHERE lost_spent), 0) AS lost_spent
  FROM lost)
SELECT runs.*, counted.*, mine_turn
FROM runs LEFT JOIN mine ON mine_n = ask_n CROSS JOIN counted",
            spent_now = format_args!("{attempts} >= $4"),
        )
    }

    /// The lanes that a worker holds, from the parameters `first` and the three that follow. What is
    /// always true of them makes the planner expect few, and look each up by its key: reading the
    /// whole table may mean reading every old version that a snapshot keeps.
    fn held(&self, first: u8, more: &str, names: &str) -> String {
        let (tenant, key) = (self.table.tenant_kind.name(), self.table.key_kind.name());
        let [t, r, k, n] = [first, first + 1, first + 2, first + 3];
        format!(
            "held AS MATERIALIZED (
  SELECT held_n::int4, held_tenant::{tenant} AS held_tenant, held_rank, held_key::{key} AS held_key, held_turn{names}
  FROM unnest(${t}::text[], ${r}::int4[], ${k}::text[], ${n}::int8[]{more})
    WITH ORDINALITY AS u(held_tenant, held_rank, held_key, held_turn{names}, held_n)
  WHERE held_n > 0 AND held_turn > 0)"
        )
    }

    /// The fence: the lane's turn is the one that was claimed, under this very token.
    fn fence(&self) -> &'static str {
        "tenant_id = held_tenant AND rank = held_rank AND key = held_key AND turn = held_turn
    AND lease_token = $1::uuid"
    }

    fn renew(&self) -> String {
        let (lanes, held, fence) = (self.lanes, self.held(3, "", ""), self.fence());
        format!(
            "WITH {held}
UPDATE {lanes} SET lease_expires_at = now() + $2::int8 * interval '1 ms'
FROM held WHERE {fence} AND {QUICK}"
        )
    }

    /// The lanes that nobody will need again are removed, and `ours` has the numbers of all lanes
    /// that were still ours: who has changed the lane row under its token has the lane.
    fn ours(&self) -> String {
        let (lanes, fence) = (self.lanes, self.fence());
        format!(
            "over AS (
  DELETE FROM {lanes} USING held WHERE held_over AND {fence}
  RETURNING held_n
), ours AS MATERIALIZED (
  SELECT held_n AS our_n FROM freed UNION ALL SELECT held_n FROM over
)"
        )
    }

    /// Ends the rows whose ids are the parameter `ids`, in the lanes of the parameter after it. Mostly
    /// every lane is still ours; then there is nothing to be looked up.
    fn end_done(&self, ids: u8) -> String {
        let Table { name, id, status, .. } = self.table;
        let (id_type, waits, touch) = (self.table.id_kind.name(), self.waits(), self.table.touch());
        let done_at = self.table.done_at.map(|c| format!(", {c} = now()")).unwrap_or_default();
        let of_done = format!(
            "{id} = ANY (CASE WHEN (SELECT count(*) FROM ours) = (SELECT count(*) FROM held) THEN ${ids}::{id_type}[]
    ELSE ARRAY(SELECT done_id FROM unnest(${ids}::{id_type}[], ${lanes}::int4[]) AS u(done_id, done_n)
      JOIN ours ON our_n = done_n) END) AND {waits}",
            lanes = ids + 1
        );
        match self.table.done {
            None => format!("DELETE FROM {name} WHERE {of_done}"),
            Some(done) => {
                format!("UPDATE {name} SET {status} = '{done}'{done_at}{touch} WHERE {of_done}")
            }
        }
    }

    /// What `settle` does when every row of the claim is delivered, which is nearly always.
    fn complete(&self) -> String {
        let (lanes, fence) = (self.lanes, self.fence());
        let held = self.held(2, ", $6::bool[]", ", held_over");
        let (ours, done) = (self.ours(), self.end_done(7));
        format!(
            "WITH {held}, freed AS (
  UPDATE {lanes} SET taken = NULL, lease_token = NULL, claimed_by = NULL, lease_expires_at = NULL
  FROM held WHERE NOT held_over AND {fence}
  RETURNING held_n
), {ours}
{done}"
        )
    }

    /// The lanes come first: rows of no lane but ours are touched.
    fn settle(&self) -> String {
        let Table { name, id, status, buried, due, attempts, .. } = self.table;
        let Table { error_code, error_message, .. } = self.table;
        let (lanes, fence, waits) = (self.lanes, self.fence(), self.waits());
        let id_type = self.table.id_kind.name();
        let held = self.held(2, ", $6::bool[]", ", held_over");
        let (ours, done) = (self.ours(), self.end_done(9));
        let mut also = self.table.touch();
        if let Some(column) = self.table.last_attempt {
            also += &format!(", {column} = now()");
        }
        if let Some(column) = self.table.buried_at {
            also +=
                &format!(", {column} = CASE WHEN why_delay IS NULL THEN now() ELSE {column} END");
        }
        if let Some(column) = self.table.buried_reason {
            also += &format!(
                ", {column} = CASE WHEN why_delay IS NULL THEN why_reason ELSE {column} END"
            );
        }
        format!(
            "WITH {held}, kept AS MATERIALIZED (
  SELECT kept_n, array_agg(kept_id) AS kept_ids
  FROM unnest($7::{id_type}[], $8::int4[]) AS u(kept_id, kept_n) GROUP BY kept_n
), freed AS (
  UPDATE {lanes} SET taken = kept_ids,
    lease_token = CASE WHEN kept_n IS NOT NULL THEN lease_token END,
    claimed_by = CASE WHEN kept_n IS NOT NULL THEN claimed_by END,
    lease_expires_at = CASE WHEN kept_n IS NOT NULL THEN lease_expires_at END
  FROM held LEFT JOIN kept ON kept_n = held_n
  WHERE NOT held_over AND {fence}
  RETURNING held_n
), {ours}, done AS (
  {done}
  RETURNING 1
), failed AS (
  UPDATE {name} SET {attempts} = {attempts} + 1, {error_code} = why_code, {error_message} = why_message,
    {status} = CASE WHEN why_delay IS NULL THEN '{buried}' ELSE {status} END,
    {due} = CASE WHEN why_delay IS NULL THEN {due} ELSE now() + why_delay * interval '1 ms' END{also}
  FROM unnest($11::{id_type}[], $12::int4[], $13::int8[], $14::text[], $15::text[], $16::text[])
      AS w(why_id, why_n, why_delay, why_reason, why_code, why_message)
    JOIN ours ON our_n = why_n
  WHERE {id} = why_id AND {waits}
  RETURNING 1
)
SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM failed)
  + (SELECT count(*) FROM unnest($17::int4[]) AS u(untried_n) JOIN ours ON our_n = untried_n)"
        )
    }

    pub(super) fn abandon(&self) -> String {
        let (lanes, asked, newest) = (self.lanes, self.table.asked(3), self.newest());
        format!(
            "WITH {asked}, mine AS MATERIALIZED (
  SELECT l.*, cardinality(taken) AS n FROM asked CROSS JOIN LATERAL ({newest}) l
  WHERE claimed_by = $1::text AND lease_token = $2::uuid
), back AS (
  UPDATE {lanes} l SET lease_token = NULL, claimed_by = NULL, lease_expires_at = NULL, taken = NULL
  FROM mine m
  WHERE l.tenant_id = m.tenant_id AND l.rank = m.rank AND l.key = m.key AND l.turn = m.turn
    AND l.lease_token = $2::uuid
  RETURNING m.n)
SELECT coalesce(sum(n), 0)::int8 FROM back"
        )
    }

    fn prune(&self) -> String {
        let lanes = self.lanes;
        format!(
            "DELETE FROM {lanes} WHERE lease_token IS NULL AND ctid = ANY (ARRAY(
  SELECT ctid FROM {lanes}
  WHERE lease_token IS NULL AND claimed_at < now() - $1::int8 * interval '1 ms'
  LIMIT $2 FOR UPDATE SKIP LOCKED))"
        )
    }
}
