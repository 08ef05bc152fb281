//! The queue's statements, run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pg::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::Error;
use crate::lanes::{Ask, Lane, Mark, RowId};
use crate::queue::{Item, Outcome, Queue};

/// What a claim found in one lane.
#[derive(Debug)]
pub(crate) struct Found {
    /// The first unfinished row's place; `None` when the lane is empty.
    pub(crate) head: Option<Mark>,
    /// When nothing was taken: how long until the head may be taken.
    pub(crate) wait: Duration,
    /// How many rows were taken, or buried because their attempts are used up.
    pub(crate) taken: u32,
    /// There are rows that were looked at and not taken.
    pub(crate) more: bool,
    /// The place of the last row taken without a gap.
    pub(crate) last: Option<Mark>,
}

/// A claimed row, read or not.
#[derive(Debug)]
pub(crate) struct Claimed<T> {
    /// Which lane of the claim it is from.
    pub(crate) ask: usize,
    /// Its last failure took its worker along.
    pub(crate) suspect: bool,
    /// An earlier row of its lane changed under the claim and was not taken: it must wait for that.
    pub(crate) behind: bool,
    pub(crate) item: Item<Result<T, String>>,
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) struct Claim<T> {
    pub(crate) found: Vec<Found>,
    pub(crate) rows: Vec<Claimed<T>>,
    /// Rows whose attempts were used up by a lost lease.
    pub(crate) buried: u64,
    /// Rows that were taken over from a lost lease.
    pub(crate) reclaimed: u64,
}

/// A row's outcome as it is written.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) id: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) delay: Duration,
}

/// How far the fresh rows have been seen, and the lanes they are in.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) since: Timestamp,
    pub(crate) lanes: Vec<(Lane, u32, Mark)>,
}

/// Counts of a queue's unfinished rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// Rows that wait, due or not.
    pub pending: u64,
    /// Rows that wait and are due.
    pub due: u64,
    /// Rows that a worker holds.
    pub held: u64,
    /// How long the oldest due row has been due, in seconds.
    pub oldest_due_seconds: f64,
}

/// Rows looked at in one look for fresh ones.
const FRESH_ROWS: i64 = 20_000;
/// How far back a look for fresh rows reaches, because a row's time is that of its transaction's
/// start and it shows at its end. Rows of longer transactions are found by the sweep.
const FRESH_OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn count(rows: i64) -> u64 {
    u64::try_from(rows).unwrap_or_default()
}

/// The lanes of a claim as parameters.
struct Asked<'a> {
    tenants: Vec<&'a str>,
    ranks: Vec<i32>,
    keys: Vec<&'a str>,
    at: Vec<Option<Timestamp>>,
    ids: Vec<Option<String>>,
    takes: Vec<i32>,
}

impl Asked<'_> {
    fn new(asks: &[Ask]) -> Asked<'_> {
        let marks = || asks.iter().map(|ask| ask.mark.as_ref());
        let takes = asks.iter().map(|ask| i32::try_from(ask.take).unwrap_or(i32::MAX));
        Asked {
            tenants: asks.iter().map(|ask| &*ask.lane.tenant).collect(),
            ranks: asks.iter().map(|ask| ask.lane.rank).collect(),
            keys: asks.iter().map(|ask| &*ask.lane.key).collect(),
            at: marks().map(|mark| mark.map(|mark| mark.at)).collect(),
            ids: marks().map(|mark| mark?.id.as_ref().map(RowId::to_string)).collect(),
            takes: takes.collect(),
        }
    }
}

impl<T> Queue<T> {
    pub(crate) async fn claim(
        &self,
        pool: &Pool,
        worker: &str,
        token: Uuid,
        lease: Duration,
        max_attempts: u32,
        asks: &[Ask],
    ) -> Result<Claim<T>, Error> {
        let max_attempts = i32::try_from(max_attempts).unwrap_or(i32::MAX);
        let client = pool.get().await?;
        let statement = client.prepare_cached(&self.statements.claim).await?;
        let lease = milliseconds(lease);
        let Asked { tenants, ranks, keys, at, ids, takes } = Asked::new(asks);
        let parameters: [&(dyn ToSql + Sync); 10] =
            [&worker, &token, &lease, &max_attempts, &tenants, &ranks, &keys, &at, &ids, &takes];
        let rows = client.query(&statement, &parameters).await?;
        self.read_claim(asks, &rows)
    }

    fn read_claim(&self, asks: &[Ask], rows: &[Row]) -> Result<Claim<T>, Error> {
        let nothing =
            || Found { head: None, wait: Duration::ZERO, taken: 0, more: false, last: None };
        let mut claim = Claim {
            found: asks.iter().map(|_| nothing()).collect(),
            rows: Vec::new(),
            buried: 0,
            reclaimed: 0,
        };
        for row in rows {
            let ask = usize::try_from(row.try_get::<_, i64>("ask_n")? - 1).unwrap_or_default();
            let (Some(found), Some(asked)) = (claim.found.get_mut(ask), asks.get(ask)) else {
                continue;
            };
            let run_id: &str = row.try_get("run_id")?;
            let place = Mark {
                at: row.try_get("run_at")?,
                id: Some(RowId::new(self.table.id_kind, run_id)),
            };
            if row.try_get::<_, i64>("run_n")? == 1 {
                let wait: Option<f64> = row.try_get("run_wait_ms")?;
                found.wait =
                    Duration::from_secs_f64((wait.unwrap_or_default() / 1000.0).clamp(0.0, 1e6));
                found.head = Some(place.clone());
            }
            let Some(live) = row.try_get::<_, Option<bool>>("taken_live")? else {
                found.more = true;
                continue;
            };
            found.taken += 1;
            // A row that was not taken is unfinished: no place behind it may become the mark.
            if !found.more {
                found.last = Some(place);
            }
            claim.reclaimed += u64::from(row.try_get::<_, bool>("run_lost")?);
            let error: Option<&str> = row.try_get("taken_error")?;
            if !live {
                claim.buried += 1;
                continue;
            }
            let attempts: i32 = row.try_get("taken_attempts")?;
            let suspect = matches!(error, Some(crate::LEASE_EXPIRED | crate::HANDLER_PANIC));
            let item = Item {
                id: run_id.into(),
                lane: asked.lane.clone(),
                attempts: u32::try_from(attempts).unwrap_or_default(),
                row: (self.read)(row),
            };
            claim.rows.push(Claimed { ask, suspect, behind: found.more, item });
        }
        Ok(claim)
    }

    pub(crate) async fn renew(
        &self,
        pool: &Pool,
        ids: &[Arc<str>],
        token: Uuid,
        lease: Duration,
    ) -> Result<u64, Error> {
        let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
        let client = pool.get().await?;
        let statement = client.prepare_cached(&self.statements.renew).await?;
        Ok(client.execute(&statement, &[&ids, &token, &milliseconds(lease)]).await?)
    }

    /// Gives back what a claim took whose answer was lost.
    pub(crate) async fn abandon(
        &self,
        pool: &Pool,
        worker: &str,
        token: Uuid,
        asks: &[Ask],
    ) -> Result<u64, Error> {
        let client = pool.get().await?;
        let Asked { tenants, ranks, keys, at, ids, takes } = Asked::new(asks);
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&worker, &token, &tenants, &ranks, &keys, &at, &ids, &takes];
        Ok(client.execute(&self.statements.abandon, &parameters).await?)
    }

    /// Writes the outcomes, all or none. Returns how many rows were still ours.
    pub(crate) async fn settle(
        &self,
        pool: &Pool,
        token: Uuid,
        settles: &[Settle],
    ) -> Result<u64, Error> {
        let mut done: Vec<&str> = Vec::new();
        let mut untouched: Vec<&str> = Vec::new();
        let (mut retry_ids, mut delays) = (Vec::<&str>::new(), Vec::<i64>::new());
        let (mut bury_ids, mut reasons) = (Vec::<&str>::new(), Vec::<&str>::new());
        let mut errors = HashMap::<bool, (Vec<&str>, Vec<&str>)>::new();
        for settle in settles {
            match &settle.outcome {
                Outcome::Done => done.push(&settle.id),
                Outcome::NotTried => untouched.push(&settle.id),
                Outcome::Retry { code, message } => {
                    retry_ids.push(&settle.id);
                    delays.push(milliseconds(settle.delay));
                    let (codes, messages) = errors.entry(false).or_default();
                    codes.push(code);
                    messages.push(message);
                }
                Outcome::Bury { reason, code, message } => {
                    bury_ids.push(&settle.id);
                    reasons.push(reason);
                    let (codes, messages) = errors.entry(true).or_default();
                    codes.push(code);
                    messages.push(message);
                }
            }
        }
        let (retry_codes, retry_messages) = errors.remove(&false).unwrap_or_default();
        let (bury_codes, bury_messages) = errors.remove(&true).unwrap_or_default();
        let texts = &self.statements;
        let all: [(&str, bool, &[&(dyn ToSql + Sync)]); 4] = [
            (&texts.complete, done.is_empty(), &[&done, &token]),
            (
                &texts.bury,
                bury_ids.is_empty(),
                &[&bury_ids, &token, &reasons, &bury_codes, &bury_messages],
            ),
            (
                &texts.retry,
                retry_ids.is_empty(),
                &[&retry_ids, &token, &delays, &retry_codes, &retry_messages],
            ),
            (&texts.release, untouched.is_empty(), &[&untouched, &token]),
        ];
        let mut client = pool.get().await?;
        let needed: Vec<_> = all.into_iter().filter(|(_, empty, _)| !empty).collect();
        if let [(text, _, parameters)] = needed.as_slice() {
            let statement = client.prepare_cached(text).await?;
            return Ok(client.execute(&statement, parameters).await?);
        }
        let transaction = client.transaction().await?;
        let mut ours = 0;
        for (text, _, parameters) in needed {
            let statement = transaction.prepare_cached(text).await?;
            ours += transaction.execute(&statement, parameters).await?;
        }
        transaction.commit().await?;
        Ok(ours)
    }

    /// Lanes with rows that became due after `since`.
    pub(crate) async fn fresh(
        &self,
        pool: &Pool,
        since: Option<Timestamp>,
    ) -> Result<Fresh, Error> {
        let client = pool.get().await?;
        let statement = client.prepare_cached(&self.statements.fresh).await?;
        let rows = client.query(&statement, &[&since, &FRESH_ROWS]).await?;
        let mut lanes = Vec::with_capacity(rows.len());
        let mut seen = since.unwrap_or(Timestamp::MIN);
        for row in &rows {
            let seen_at: Timestamp = row.try_get("seen_at")?;
            let last_due: Option<Timestamp> = row.try_get("last_due")?;
            let full = row.try_get::<_, i64>("seen_rows")? >= FRESH_ROWS;
            let reached = if full { last_due.unwrap_or(seen_at) } else { seen_at };
            seen = seen.max(reached.checked_sub(FRESH_OVERLAP).unwrap_or(reached));
            if full {
                // The next look goes on from here, or it would see the same rows for ever.
                seen = seen.max(reached);
            }
            let Some(tenant) = row.try_get::<_, Option<&str>>("f_tenant")? else { continue };
            let key: &str = row.try_get("f_key")?;
            let lane =
                Lane { tenant: tenant.into(), rank: row.try_get("f_rank")?, key: key.into() };
            let rows = u32::try_from(row.try_get::<_, i64>("f_rows")?).unwrap_or(u32::MAX);
            let id: Option<&str> = row.try_get("f_id")?;
            let id = id.map(|id| RowId::new(self.table.id_kind, id));
            lanes.push((lane, rows, Mark { at: row.try_get("f_at")?, id }));
        }
        Ok(Fresh { since: seen, lanes })
    }

    /// Up to `limit` lanes after `cursor`, at most `band` of one tenant and rank.
    pub(crate) async fn sweep(
        &self,
        pool: &Pool,
        cursor: Option<&Lane>,
        limit: i32,
        band: i32,
    ) -> Result<Vec<Lane>, Error> {
        let (tenant, rank, key) = match cursor {
            Some(lane) => (&*lane.tenant, lane.rank, &*lane.key),
            None => (self.table.tenant_kind.least(), i32::MIN, self.table.key_kind.least()),
        };
        let client = pool.get().await?;
        let statement = client.prepare_cached(&self.statements.sweep).await?;
        let rows = client.query(&statement, &[&tenant, &rank, &key, &limit, &band]).await?;
        rows.iter()
            .map(|row| {
                let (tenant, key): (&str, &str) = (row.try_get(0)?, row.try_get(2)?);
                Ok(Lane { tenant: tenant.into(), rank: row.try_get(1)?, key: key.into() })
            })
            .collect()
    }

    /// Counts the unfinished rows. It reads every one of them: for a gauge every half minute, not
    /// for every request.
    pub async fn stats(&self, pool: &Pool) -> Result<Stats, Error> {
        let client = pool.get().await?;
        let row = client.query_one(&self.statements.stats, &[]).await?;
        let stats = Stats {
            pending: count(row.try_get(0)?),
            due: count(row.try_get(1)?),
            held: count(row.try_get(2)?),
            oldest_due_seconds: row.try_get(3)?,
        };
        crate::meter::Meter::new(self.name).stats(&stats);
        Ok(stats)
    }
}
