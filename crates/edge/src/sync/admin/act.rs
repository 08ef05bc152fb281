//! Redrive and unclaim: rows back to `pending`; give up: dead letters to `failed`. Each with its audit.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use event::id::{EventId, TenantId};
use jiff::Timestamp;
use pg::Transaction;
use serde::Serialize;
use serde_json::json;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Actor, scope, uuid};

/// Rows of one call unless something else is asked for.
pub const DEFAULT_LIMIT: u32 = 1_000;
/// The most rows of one call.
pub const MAX_LIMIT: u32 = 10_000;
/// The most ids that one call names.
pub const MAX_IDS: usize = 1_000;
/// The longest reason for giving up, in characters.
pub const MAX_BECAUSE_CHARS: usize = 500;

/// Which dead letters to send again. Everything that is given must hold.
///
/// Rows that were given up are taken only when `ids` names them: whoever erred must say about which.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Redrive {
    /// These events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<EventId>,
    /// With this `dlq_reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// Dead at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_after: Option<Timestamp>,
    /// Dead before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<Timestamp>,
    /// The most rows.
    pub limit: u32,
    /// Change nothing, and say what would be taken.
    #[serde(skip)]
    pub dry_run: bool,
}

impl Redrive {
    /// Whether it names anything: without, every dead letter is meant.
    pub fn is_narrowed(&self) -> bool {
        !self.ids.is_empty()
            || self.reason.is_some()
            || self.tenant_id.is_some()
            || self.failed_after.is_some()
            || self.failed_before.is_some()
    }
}

/// Which dead letters to give up, and why.
#[derive(Debug, Clone)]
pub struct GiveUp {
    /// Which, by the rules of a redrive.
    pub which: Redrive,
    /// Why, in the operator's words: 1 to [`MAX_BECAUSE_CHARS`] characters.
    pub because: String,
}

/// Which rows of expired leases to free.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Unclaim {
    /// Of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// Held by this forwarder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// The most rows.
    pub limit: u32,
    /// Change nothing, and say what would be taken.
    #[serde(skip)]
    pub dry_run: bool,
}

/// What was done, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// How many rows.
    pub rows: u64,
    /// How many more there are beyond the limit.
    pub left: u64,
    /// The rows by reason: of the dead letter, or who held them.
    pub by_reason: BTreeMap<String, u64>,
    /// The action's number in the audit.
    pub audit_id: Option<i64>,
}

/// What makes the actions different.
struct Action<'a> {
    name: &'static str,
    /// What says why a row is in this state.
    why: &'static str,
    /// Which rows; its parameters come first.
    matching: String,
    order: &'static str,
    parameters: Vec<&'a (dyn ToSql + Sync)>,
    set: &'static str,
    limit: u32,
    dry_run: bool,
    filter: serde_json::Value,
    /// The operator's words.
    because: Option<&'a str>,
}

// The parameters of a selection of dead letters.
const SELECTED: &str = "failed_at IS NOT NULL AND ($1::uuid[] IS NULL OR tenant_id = ANY($1))
    AND ($2::uuid[] IS NULL OR id = ANY($2)) AND ($3::text IS NULL OR dlq_reason = $3)
    AND ($4::uuid IS NULL OR tenant_id = $4)
    AND ($5::timestamptz IS NULL OR failed_at >= $5)
    AND ($6::timestamptz IS NULL OR failed_at < $6)";

/// The values of [`SELECTED`] that are not in the selection as the database wants them.
struct Selected {
    scope: Option<Vec<Uuid>>,
    ids: Option<Vec<Uuid>>,
    tenant: Option<Uuid>,
}

impl Selected {
    fn new(tenants: &Tenants, what: &Redrive) -> Selected {
        let ids = match what.ids.as_slice() {
            [] => None,
            ids => Some(ids.iter().map(|id| id.uuid()).collect()),
        };
        Selected { scope: scope(tenants), ids, tenant: uuid(what.tenant_id) }
    }

    fn parameters<'a>(&'a self, what: &'a Redrive) -> Vec<&'a (dyn ToSql + Sync)> {
        let Selected { scope, ids, tenant } = self;
        vec![scope, ids, &what.reason, tenant, &what.failed_after, &what.failed_before]
    }
}

/// Sends dead letters again.
pub async fn redrive(
    pool: &pg::Pool,
    tenants: &Tenants,
    actor: &Actor,
    what: &Redrive,
) -> Result<Done, pg::Error> {
    let selected = Selected::new(tenants, what);
    let states = if what.ids.is_empty() { "'dlq'" } else { "'dlq', 'failed'" };
    let action = Action {
        name: "redrive",
        why: "dlq_reason",
        matching: format!("status IN ({states}) AND {SELECTED}"),
        order: "failed_at, id",
        parameters: selected.parameters(what),
        set: "status = 'pending', attempt_count = 0, next_attempt_at = clock_timestamp(),
            updated_at = now(), last_attempt_at = NULL, last_error_code = NULL, last_error_message = NULL,
            failed_at = NULL, dlq_reason = NULL",
        limit: what.limit,
        dry_run: what.dry_run,
        filter: json!(what),
        because: None,
    };
    run(pool, actor, action).await
}

/// Gives up dead letters: nobody sends them again, and retention archives them as it does dead letters.
pub async fn give_up(
    pool: &pg::Pool,
    tenants: &Tenants,
    actor: &Actor,
    what: &GiveUp,
) -> Result<Done, pg::Error> {
    let GiveUp { which, because } = what;
    let selected = Selected::new(tenants, which);
    let action = Action {
        name: "give_up",
        why: "dlq_reason",
        matching: format!("status = 'dlq' AND {SELECTED}"),
        order: "failed_at, id",
        parameters: selected.parameters(which),
        // What it died of stays on the row; the days until its archive count from now.
        set: "status = 'failed', updated_at = now()",
        limit: which.limit,
        dry_run: which.dry_run,
        filter: json!(which),
        because: Some(because),
    };
    run(pool, actor, action).await
}

/// Frees rows whose lease has expired.
pub async fn unclaim_stuck(
    pool: &pg::Pool,
    tenants: &Tenants,
    actor: &Actor,
    what: &Unclaim,
) -> Result<Done, pg::Error> {
    let (scope, tenant) = (scope(tenants), uuid(what.tenant_id));
    let action = Action {
        name: "unclaim_stuck",
        why: "claimed_by",
        matching: "NOT finished AND status IN ('claimed', 'sending')
            AND lease_expires_at < now()
            AND ($1::uuid[] IS NULL OR tenant_id = ANY($1))
            AND ($2::uuid IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR claimed_by = $3)"
            .to_owned(),
        order: "lease_expires_at, id",
        parameters: vec![&scope, &tenant, &what.claimed_by],
        // A lost lease counts, whoever notices it: else a row that kills its forwarder would never
        // reach the dead letters.
        set: "status = 'pending', attempt_count = o.attempt_count + 1,
            next_attempt_at = clock_timestamp(), updated_at = now(), last_attempt_at = now(), last_error_code = 'LEASE_EXPIRED',
            last_error_message = 'the lease expired and an operator freed the row',
            claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL, lease_token = NULL",
        limit: what.limit,
        dry_run: what.dry_run,
        filter: json!(what),
        because: None,
    };
    run(pool, actor, action).await
}

async fn run(pool: &pg::Pool, actor: &Actor, action: Action<'_>) -> Result<Done, pg::Error> {
    let limit = i64::from(action.limit.clamp(1, MAX_LIMIT));
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let matched = counted(&transaction, &action).await?;
    let mut done = Done { dry_run: action.dry_run, ..Done::default() };
    if action.dry_run {
        let rows = limit.min(matched);
        done.rows = u64::try_from(rows).unwrap_or_default();
        done.left = u64::try_from(matched - rows).unwrap_or_default();
        done.by_reason = by_reason(&transaction, &action, limit).await?;
        return Ok(done);
    }
    // The number of rows is known at the end; nobody sees the audit before.
    let audit_id: i64 = transaction
        .query_one(
            "INSERT INTO sync_audit (action, via, actor, filter, rows, because)
             VALUES ($1, $2, $3, $4, 1, $5) RETURNING id",
            &[
                &action.name,
                &actor.via,
                &actor.name,
                &actor.noted(action.filter.clone()),
                &action.because,
            ],
        )
        .await?
        .try_get(0)?;
    done.by_reason = change(&transaction, &action, audit_id, limit).await?;
    done.rows = done.by_reason.values().sum();
    if done.rows == 0 {
        // Nothing was done: the audit's row goes with the transaction.
        transaction.rollback().await?;
        return Ok(done);
    }
    done.audit_id = Some(audit_id);
    let rows = i64::try_from(done.rows).unwrap_or(i64::MAX);
    done.left = u64::try_from(matched - rows).unwrap_or_default();
    let note = "UPDATE sync_audit SET rows = $2 WHERE id = $1";
    transaction.execute(note, &[&audit_id, &rows]).await?;
    transaction.execute("SELECT pg_notify('sync_outbox', '')", &[]).await?;
    transaction.commit().await?;
    tracing::info!(action = action.name, actor = actor.name, rows, audit_id, "outbox changed");
    Ok(done)
}

/// How many rows match, without the limit.
async fn counted(transaction: &Transaction<'_>, action: &Action<'_>) -> Result<i64, pg::Error> {
    let query = format!("SELECT count(*) FROM sync_outbox WHERE {}", action.matching);
    Ok(transaction.query_one(&query, &action.parameters).await?.try_get(0)?)
}

/// The rows that would be taken.
async fn by_reason(
    transaction: &Transaction<'_>,
    action: &Action<'_>,
    limit: i64,
) -> Result<BTreeMap<String, u64>, pg::Error> {
    let n = action.parameters.len() + 1;
    let query = format!(
        "SELECT why, count(*) FROM (SELECT {} AS why FROM sync_outbox WHERE {}
             ORDER BY {} LIMIT ${n}) AS picked GROUP BY why",
        action.why, action.matching, action.order
    );
    reasons(transaction, &query, action, &[&limit]).await
}

async fn change(
    transaction: &Transaction<'_>,
    action: &Action<'_>,
    audit_id: i64,
    limit: i64,
) -> Result<BTreeMap<String, u64>, pg::Error> {
    let n = action.parameters.len();
    let query = format!(
        "WITH picked AS (
             SELECT id, tenant_id, status, attempt_count, last_attempt_at, last_error_code,
                 last_error_message, failed_at, dlq_reason, claimed_by, lease_expires_at
             FROM sync_outbox WHERE {matching} ORDER BY {order} LIMIT ${limit}
             FOR UPDATE SKIP LOCKED),
         noted AS (
             INSERT INTO sync_audit_row (audit_id, outbox_id, tenant_id, status, attempt_count,
                 last_attempt_at, last_error_code, last_error_message, failed_at, dlq_reason,
                 claimed_by, lease_expires_at)
             SELECT ${audit}, picked.* FROM picked),
         changed AS (
             UPDATE sync_outbox o SET {set} FROM picked WHERE o.id = picked.id
             RETURNING picked.{why} AS why)
         SELECT why, count(*) FROM changed GROUP BY why",
        matching = action.matching,
        order = action.order,
        set = action.set,
        why = action.why,
        limit = n + 1,
        audit = n + 2,
    );
    reasons(transaction, &query, action, &[&limit, &audit_id]).await
}

async fn reasons(
    transaction: &Transaction<'_>,
    query: &str,
    action: &Action<'_>,
    more: &[&(dyn ToSql + Sync)],
) -> Result<BTreeMap<String, u64>, pg::Error> {
    let parameters: Vec<&(dyn ToSql + Sync)> =
        action.parameters.iter().chain(more).copied().collect();
    let rows = transaction.query(query, &parameters).await?;
    let each = rows.iter().map(|row| {
        let why: Option<String> = row.try_get(0)?;
        let count = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default();
        Ok((why.unwrap_or_default(), count))
    });
    each.collect()
}
