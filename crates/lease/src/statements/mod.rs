//! The statements of a table of leased work, made from its description.
//!
//! Values are parameters. docs/spec/leased-work.md has the state table these statements follow.
//! Here is what does not depend on where a lease is written; [`row`] and [`lane`] have the rest.
//!
//! A claim and a renewal commit without waiting for the disk: when the server crashes and takes one
//! back, the fence refuses what its worker writes later. Outcomes wait: one that was taken back would
//! leave its row held until the lease expires, and cost it an attempt.

mod lane;
mod row;

use crate::table::{Lease, Table};

/// True, and makes the transaction's commit not wait for the disk. It holds for this transaction
/// alone: the connection goes back to its pool as it was.
const QUICK: &str = "(SELECT set_config('synchronous_commit', 'off', true)) = 'off'";

/// The statements of a table. Each says its parameters; times are the database's.
#[derive(Debug, Clone)]
pub struct Statements {
    /// Takes rows: worker, token, lease in ms, attempt limit, and for the lanes asked: tenants, ranks,
    /// keys, mark times, mark ids, numbers of rows.
    pub claim: String,
    /// Rows of a claim whose answer was lost, given back as they were: worker, token, and for the
    /// lanes asked: tenants, ranks, keys, mark times, mark ids, numbers of rows. One row: how many.
    pub abandon: String,
    /// What holds and ends a lease.
    pub hold: HoldStatements,
    /// Lanes whose rows became due after a time: that time or null, the most rows to look at.
    pub fresh: String,
    /// Lanes after a lane, in order: tenant, rank, key, the most lanes, the most in one band.
    pub sweep: String,
}

/// The statements that depend on where a lease is written.
#[derive(Debug, Clone)]
pub enum HoldStatements {
    /// On each row.
    Row(Box<RowStatements>),
    /// On the lane.
    Lane(Box<LaneStatements>),
}

/// See [`Lease::Row`].
#[derive(Debug, Clone)]
pub struct RowStatements {
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
}

/// See [`Lease::Lane`].
#[derive(Debug, Clone)]
pub struct LaneStatements {
    /// Makes lanes that are not there yet, free: tenants, ranks, keys.
    pub enter: String,
    /// Holds lanes longer: token, lease in ms, and the lanes: tenants, ranks, keys, turns.
    pub renew: String,
    /// Rows that are delivered, and the end of the lanes' leases: token; the lanes as below; the ids,
    /// and for each the number of its lane in that list.
    pub complete: String,
    /// Outcomes of rows, and the end of the lanes' leases: token; the lanes: tenants, ranks, keys,
    /// turns, whether nobody will need them again. Rows, each with the number of its lane in that list:
    /// that stay held: ids, lanes; that are delivered: ids, lanes; that failed: ids, lanes, delays in ms
    /// or null to bury, reasons, codes, messages; that are given back: lanes. One row: how many rows
    /// were still ours.
    pub settle: String,
    /// Removes free lanes that nobody has claimed for long: how long in ms, the most lanes.
    pub prune: String,
}

impl Table {
    /// The statements.
    pub fn statements(&self) -> Statements {
        let (fresh, sweep) = (self.fresh(), self.sweep());
        match &self.lease {
            Lease::Row(lease) => {
                let by = row::ByRow { table: self, lease };
                let (claim, abandon) = (by.claim(), by.abandon());
                let hold = HoldStatements::Row(Box::new(by.statements()));
                Statements { claim, abandon, hold, fresh, sweep }
            }
            Lease::Lane(lanes) => {
                let by = lane::ByLane { table: self, lanes };
                let (claim, abandon) = (by.claim(), by.abandon());
                let hold = HoldStatements::Lane(Box::new(by.statements()));
                Statements { claim, abandon, hold, fresh, sweep }
            }
        }
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
    coalesce(ask_id, '{least}') AS ask_id, ask_take
  FROM unnest(${}::text[], ${}::int4[], ${}::text[], ${}::timestamptz[], ${}::{id_type}[], ${}::int4[])
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

    fn touch(&self) -> String {
        self.touched.map(|column| format!(", {column} = now()")).unwrap_or_default()
    }

    fn fresh(&self) -> String {
        let Table { name, id, tenant, rank, key, status, pending, due, .. } = self;
        let (time, unfinished) = (self.time(), self.unfinished());
        // Without a time the first id is the place; with one, the time before all its ids.
        let first = match self.at {
            Some(_) => format!("NULL::{}", self.id_kind.name()),
            None => "(array_agg(f_id ORDER BY f_id))[1]".to_owned(),
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
}
