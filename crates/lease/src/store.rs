//! The queue's statements, run.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use pg::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::Error;
use crate::id::RowId;
use crate::lanes::{Ask, Lane, Mark};
use crate::queue::{Item, Queue};
use crate::statements::HoldStatements;

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
    /// The lane has no row of its own, where lanes have the leases: it is made, and asked again.
    pub(crate) missing: bool,
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

/// What a claim holds, for whoever renews or ends it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) token: Uuid,
    /// The lanes it holds and their turns, by the number in the claim. Empty where rows have the
    /// leases.
    pub(crate) lanes: HashMap<usize, (Lane, i64)>,
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) struct Claim<T> {
    pub(crate) found: Vec<Found>,
    pub(crate) rows: Vec<Claimed<T>>,
    pub(crate) hold: Hold,
    /// Rows whose attempts were used up by a lost lease.
    pub(crate) buried: u64,
    /// Rows that were taken over from a lost lease.
    pub(crate) reclaimed: u64,
}

/// How far the fresh rows have been seen, and the lanes they are in.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) since: Timestamp,
    pub(crate) lanes: Vec<(Lane, u32, Mark)>,
}

/// Rows looked at in one look for fresh ones.
const FRESH_ROWS: i64 = 20_000;
/// How far back a look for fresh rows reaches, because a row's time is that of its transaction's
/// start and it shows at its end. Rows of longer transactions are found by the sweep.
const FRESH_OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// A free lane that nobody has claimed for this long is removed: its key may never come again.
const IDLE_LANE: Duration = Duration::from_secs(3600);
/// The most lanes that are removed at once.
const PRUNED_LANES: i64 = 10_000;

pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn count(rows: i64) -> u64 {
    u64::try_from(rows).unwrap_or_default()
}

/// The lanes of a claim as parameters.
struct Asked<'a> {
    tenants: Vec<&'a str>,
    ranks: Vec<i32>,
    keys: Vec<&'a str>,
    at: Vec<Option<Timestamp>>,
    ids: Vec<Option<&'a RowId>>,
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
            ids: marks().map(|mark| mark?.id.as_ref()).collect(),
            takes: takes.collect(),
        }
    }
}

/// Where the columns of a claim's answer are: hundreds of rows are not asked by name.
struct Columns {
    ask_n: usize,
    run_id: usize,
    run_at: Option<usize>,
    run_wait_ms: usize,
    taken_live: usize,
    run_due: usize,
    run_spent: usize,
    mine_turn: usize,
    taken_error: usize,
    taken_attempts: usize,
}

impl Columns {
    fn new(row: &Row) -> Columns {
        // One that is not there is an error when it is read.
        let at = |name: &str| {
            let found = row.columns().iter().position(|column| column.name() == name);
            found.unwrap_or(usize::MAX)
        };
        Columns {
            ask_n: at("ask_n"),
            run_id: at("run_id"),
            run_at: Some(at("run_at")).filter(|at| *at != usize::MAX),
            run_wait_ms: at("run_wait_ms"),
            taken_live: at("taken_live"),
            run_due: at("run_due"),
            run_spent: at("run_spent"),
            mine_turn: at("mine_turn"),
            taken_error: at("taken_error"),
            taken_attempts: at("taken_attempts"),
        }
    }
}

/// Lanes of a hold as parameters.
pub(crate) struct HeldLanes<'a> {
    pub(crate) tenants: Vec<&'a str>,
    pub(crate) ranks: Vec<i32>,
    pub(crate) keys: Vec<&'a str>,
    pub(crate) turns: Vec<i64>,
}

impl HeldLanes<'_> {
    /// Those of these numbers, in the order of the numbers.
    pub(crate) fn new<'a>(hold: &'a Hold, asks: &BTreeSet<usize>) -> HeldLanes<'a> {
        let lanes = || asks.iter().filter_map(|ask| hold.lanes.get(ask));
        HeldLanes {
            tenants: lanes().map(|(lane, _)| &*lane.tenant).collect(),
            ranks: lanes().map(|(lane, _)| lane.rank).collect(),
            keys: lanes().map(|(lane, _)| &*lane.key).collect(),
            turns: lanes().map(|(_, turn)| *turn).collect(),
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
        let claim = client.query(&statement, &parameters);
        let rows = match &self.statements.hold {
            HoldStatements::Lane(texts) if asks.iter().any(|ask| !ask.entered) => {
                let enter = client.prepare_cached(&texts.enter).await?;
                let new = || asks.iter().filter(|ask| !ask.entered).map(|ask| &ask.lane);
                let tenants: Vec<&str> = new().map(|lane| &*lane.tenant).collect();
                let ranks: Vec<i32> = new().map(|lane| lane.rank).collect();
                let keys: Vec<&str> = new().map(|lane| &*lane.key).collect();
                let parameters: [&(dyn ToSql + Sync); 3] = [&tenants, &ranks, &keys];
                // On their way together; the server does one after the other.
                tokio::try_join!(client.execute(&enter, &parameters), claim)?.1
            }
            _ => claim.await?,
        };
        self.read_claim(token, asks, &rows)
    }

    fn read_claim(&self, token: Uuid, asks: &[Ask], rows: &[Row]) -> Result<Claim<T>, Error> {
        let by_lane = matches!(self.statements.hold, HoldStatements::Lane(_));
        let nothing = || Found {
            head: None,
            wait: Duration::ZERO,
            taken: 0,
            more: false,
            last: None,
            missing: false,
        };
        let mut claim = Claim {
            found: asks.iter().map(|_| nothing()).collect(),
            rows: Vec::new(),
            hold: Hold { token, lanes: HashMap::new() },
            buried: 0,
            reclaimed: 0,
        };
        let Some(columns) = rows.first().map(Columns::new) else { return Ok(claim) };
        let mut placed = Vec::with_capacity(rows.len());
        for row in rows {
            let ask = usize::try_from(row.try_get::<_, i32>(columns.ask_n)? - 1);
            // Rows that are ordered by id alone have no time.
            let at = columns.run_at.map(|at| row.try_get(at)).transpose()?;
            let at = at.unwrap_or(Timestamp::UNIX_EPOCH);
            let place = Mark { at, id: Some(row.try_get(columns.run_id)?) };
            placed.push((ask.unwrap_or(usize::MAX), place, row));
        }
        placed.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (ask, place, row) in placed {
            let (Some(found), Some(asked)) = (claim.found.get_mut(ask), asks.get(ask)) else {
                continue;
            };
            if found.head.is_none() {
                let wait: Option<f64> = row.try_get(columns.run_wait_ms)?;
                found.wait =
                    Duration::from_secs_f64((wait.unwrap_or_default() / 1000.0).clamp(0.0, 1e6));
                found.head = Some(place.clone());
                found.missing = by_lane && wait.is_none();
            }
            let live = self.taken_live(&columns, row)?;
            // A lane is taken up to the first row that may not go.
            let Some(live) = live.filter(|_| !(by_lane && found.more)) else {
                found.more = true;
                continue;
            };
            found.taken += 1;
            // A row that was not taken is unfinished: no place behind it may become the mark.
            if !found.more {
                found.last = Some(place);
            }
            if !by_lane {
                claim.reclaimed += u64::from(row.try_get::<_, bool>("run_lost")?);
                claim.buried += u64::from(!live);
            } else if found.taken == 1 {
                // Of the whole claim, and the same in every row.
                let lost =
                    |name| row.try_get::<_, Option<i64>>(name).map(Option::unwrap_or_default);
                claim.reclaimed = count(lost("lost_rows")?);
                claim.buried = count(lost("lost_spent")?);
            }
            if !live {
                continue;
            }
            if by_lane && !claim.hold.lanes.contains_key(&ask) {
                claim.hold.lanes.insert(ask, (asked.lane.clone(), row.try_get(columns.mine_turn)?));
            }
            let error: Option<&str> = row.try_get(columns.taken_error)?;
            let attempts: i32 = row.try_get(columns.taken_attempts)?;
            let suspect = matches!(error, Some(crate::LEASE_EXPIRED | crate::HANDLER_PANIC));
            let item = Item {
                id: row.try_get(columns.run_id)?,
                lane: asked.lane.clone(),
                attempts: u32::try_from(attempts).unwrap_or_default(),
                row: (self.read)(row),
            };
            claim.rows.push(Claimed { ask, suspect, behind: found.more, item });
        }
        Ok(claim)
    }

    /// Whether a row was taken: true when it is now ours, false when its attempts are used up.
    fn taken_live(&self, columns: &Columns, row: &Row) -> Result<Option<bool>, Error> {
        if matches!(self.statements.hold, HoldStatements::Row(_)) {
            return Ok(row.try_get(columns.taken_live)?);
        }
        let (due, turn) = (row.try_get(columns.run_due)?, row.try_get(columns.mine_turn)?);
        Ok(match (due, turn) {
            (Some(true), Some::<i64>(_)) => Some(!row.try_get::<_, bool>(columns.run_spent)?),
            _ => None,
        })
    }

    /// Holds what a claim took for longer. True when all of it is still ours.
    pub(crate) async fn renew(
        &self,
        pool: &Pool,
        hold: &Hold,
        rows: &[(usize, RowId)],
        lease: Duration,
    ) -> Result<bool, Error> {
        let (client, lease) = (pool.get().await?, milliseconds(lease));
        match &self.statements.hold {
            HoldStatements::Row(texts) => {
                let ids: Vec<&RowId> = rows.iter().map(|(_, id)| id).collect();
                let statement = client.prepare_cached(&texts.renew).await?;
                let renewed = client.execute(&statement, &[&ids, &hold.token, &lease]).await?;
                Ok(renewed == ids.len() as u64)
            }
            HoldStatements::Lane(texts) => {
                let asks: BTreeSet<usize> = rows.iter().map(|(ask, _)| *ask).collect();
                let HeldLanes { tenants, ranks, keys, turns } = HeldLanes::new(hold, &asks);
                let statement = client.prepare_cached(&texts.renew).await?;
                let parameters: [&(dyn ToSql + Sync); 6] =
                    [&hold.token, &lease, &tenants, &ranks, &keys, &turns];
                Ok(client.execute(&statement, &parameters).await? == asks.len() as u64)
            }
        }
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
        let row = client.query_one(&self.statements.abandon, &parameters).await?;
        Ok(count(row.try_get(0)?))
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
            let (at, id) = (row.try_get("f_at")?, row.try_get("f_id")?);
            lanes.push((lane, rows, Mark { at, id }));
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

    /// Removes lanes that nobody has claimed for long, where lanes have rows of their own.
    pub(crate) async fn prune(&self, pool: &Pool) -> Result<u64, Error> {
        let HoldStatements::Lane(texts) = &self.statements.hold else { return Ok(0) };
        let client = pool.get().await?;
        let idle = milliseconds(IDLE_LANE);
        Ok(client.execute(&texts.prune, &[&idle, &PRUNED_LANES]).await?)
    }
}
