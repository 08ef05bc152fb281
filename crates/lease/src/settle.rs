//! The outcomes of a claim's rows, written: all or none, and only where the rows are still ours.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use pg::Pool;
use tokio_postgres::types::ToSql;

use crate::error::Error;
use crate::id::RowId;
use crate::queue::{Outcome, Queue};
use crate::statements::{HoldStatements, LaneStatements, RowStatements};
use crate::store::{HeldLanes, Hold, count, milliseconds};
use crate::table::Kind;

/// A row's outcome as it is written.
#[derive(Debug)]
pub(crate) struct Settle {
    /// Which lane of the claim it is from.
    pub(crate) ask: usize,
    pub(crate) id: RowId,
    pub(crate) outcome: Outcome,
    pub(crate) delay: Duration,
}

impl<T> Queue<T> {
    /// Writes the outcomes, all or none. `kept` are rows of the same claim that stay held: their lane
    /// and their id. Returns how many rows were still ours.
    pub(crate) async fn settle(
        &self,
        pool: &Pool,
        hold: &Hold,
        settles: &[Settle],
        kept: &[(usize, RowId)],
    ) -> Result<u64, Error> {
        match &self.statements.hold {
            HoldStatements::Row(texts) => settle_rows(texts, pool, hold, settles).await,
            HoldStatements::Lane(texts) => {
                settle_lanes(texts, self.table.id_kind, pool, hold, settles, kept).await
            }
        }
    }
}

async fn settle_rows(
    texts: &RowStatements,
    pool: &Pool,
    hold: &Hold,
    settles: &[Settle],
) -> Result<u64, Error> {
    let token = hold.token;
    let mut done: Vec<&RowId> = Vec::new();
    let mut untouched: Vec<&RowId> = Vec::new();
    let (mut retry_ids, mut delays) = (Vec::<&RowId>::new(), Vec::<i64>::new());
    let (mut bury_ids, mut reasons) = (Vec::<&RowId>::new(), Vec::<&str>::new());
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

async fn settle_lanes(
    texts: &LaneStatements,
    kind: Kind,
    pool: &Pool,
    hold: &Hold,
    settles: &[Settle],
    kept: &[(usize, RowId)],
) -> Result<u64, Error> {
    let asks: BTreeSet<usize> = settles.iter().map(|settle| settle.ask).collect();
    let HeldLanes { tenants, ranks, keys, turns } = HeldLanes::new(hold, &asks);
    let numbers: HashMap<usize, i32> = asks.iter().copied().zip(1..).collect();
    let number = |ask: usize| numbers.get(&ask).copied();
    // A row without an ordering key is a lane of its own, which ends with it.
    let ended: HashSet<&RowId> = settles
        .iter()
        .filter(|settle| matches!(settle.outcome, Outcome::Done | Outcome::Bury { .. }))
        .map(|settle| &settle.id)
        .collect();
    let is_over = |key: &str| RowId::parse(kind, key).is_some_and(|id| ended.contains(&id));
    let over: Vec<bool> = keys.iter().map(|key| is_over(key)).collect();
    let kept: Vec<(&RowId, i32)> =
        kept.iter().filter_map(|(ask, id)| Some((id, number(*ask)?))).collect();
    let (kept_ids, kept_lanes): (Vec<&RowId>, Vec<i32>) = kept.into_iter().unzip();
    let (mut done, mut done_lanes, mut untried) = (Vec::<&RowId>::new(), Vec::new(), Vec::new());
    let (mut failed, mut failed_lanes) = (Vec::<&RowId>::new(), Vec::new());
    let (mut delays, mut reasons) = (Vec::<Option<i64>>::new(), Vec::<Option<&str>>::new());
    let (mut codes, mut messages) = (Vec::<&str>::new(), Vec::<&str>::new());
    for settle in settles {
        let Some(lane) = number(settle.ask) else { continue };
        let (delay, reason, code, message) = match &settle.outcome {
            Outcome::Done => {
                done.push(&settle.id);
                done_lanes.push(lane);
                continue;
            }
            Outcome::NotTried => {
                untried.push(lane);
                continue;
            }
            Outcome::Retry { code, message } => {
                (Some(milliseconds(settle.delay)), None, code, message)
            }
            Outcome::Bury { reason, code, message } => (None, Some(&**reason), code, message),
        };
        failed.push(&settle.id);
        failed_lanes.push(lane);
        delays.push(delay);
        reasons.push(reason);
        codes.push(code);
        messages.push(message);
    }
    let client = pool.get().await?;
    if done.len() == settles.len() && kept_ids.is_empty() {
        let statement = client.prepare_cached(&texts.complete).await?;
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&hold.token, &tenants, &ranks, &keys, &turns, &over, &done, &done_lanes];
        return Ok(client.execute(&statement, &parameters).await?);
    }
    let parameters: [&(dyn ToSql + Sync); 17] = [
        &hold.token,
        &tenants,
        &ranks,
        &keys,
        &turns,
        &over,
        &kept_ids,
        &kept_lanes,
        &done,
        &done_lanes,
        &failed,
        &failed_lanes,
        &delays,
        &reasons,
        &codes,
        &messages,
        &untried,
    ];
    let statement = client.prepare_cached(&texts.settle).await?;
    let row = client.query_one(&statement, &parameters).await?;
    Ok(count(row.try_get(0)?))
}
