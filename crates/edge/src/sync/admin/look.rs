//! Rows of the outbox, for people.

use api::tokens::Tenants;
use event::id::{DeviceId, EventId, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Status, scope, uuid};

/// Rows on a page unless something else is asked for.
pub const PAGE: u32 = 50;
/// The most rows on a page.
pub const MAX_PAGE: u32 = 500;
/// The most entries of a row's history that are shown.
const MAX_HISTORY: i64 = 100;

/// Which rows to list. Everything that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// One of these states; any when empty.
    pub status: Vec<Status>,
    /// The tenant.
    pub tenant_id: Option<TenantId>,
    /// Why it is a dead letter.
    pub reason: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
    /// The device.
    pub device_id: Option<DeviceId>,
    /// The node.
    pub stream: Option<String>,
    /// Written at this time or later.
    pub since: Option<Timestamp>,
    /// Written before this time.
    pub until: Option<Timestamp>,
    /// The row after which the page starts.
    pub after: Option<Uuid>,
    /// The most rows; [`PAGE`] when absent.
    pub limit: Option<u32>,
}

/// A row without its payload.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The event's id.
    pub id: Uuid,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// The farm.
    pub farm_id: Option<Uuid>,
    /// The barn.
    pub barn_id: Option<Uuid>,
    /// The device.
    pub device_id: Option<Uuid>,
    /// The session.
    pub session_id: Option<Uuid>,
    /// The event's type.
    pub event_type: String,
    /// When it happened.
    pub occurred_at: Option<Timestamp>,
    /// Its trace.
    pub trace_id: Option<String>,
    /// The size of its payload.
    pub payload_size_bytes: Option<i32>,
    /// Its state.
    pub status: String,
    /// Higher goes first.
    pub priority: i32,
    /// How often it failed.
    pub attempt_count: i32,
    /// When it last failed.
    pub last_attempt_at: Option<Timestamp>,
    /// When it may go.
    pub next_attempt_at: Timestamp,
    /// Who holds it.
    pub claimed_by: Option<String>,
    /// Since when.
    pub claimed_at: Option<Timestamp>,
    /// Until when.
    pub lease_expires_at: Option<Timestamp>,
    /// What went wrong, for programs.
    pub last_error_code: Option<String>,
    /// What went wrong, for people.
    pub last_error_message: Option<String>,
    /// When it became a dead letter.
    pub failed_at: Option<Timestamp>,
    /// Why.
    pub dlq_reason: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The node.
    pub stream: Option<String>,
    /// The life of the node's spool.
    pub epoch: Option<Uuid>,
    /// The sequence in it.
    pub seq: Option<i64>,
}

const COLUMNS: &str = "id, tenant_id, farm_id, barn_id, device_id, session_id, event_type,
    occurred_at, trace_id, payload_size_bytes, status, priority, attempt_count, last_attempt_at,
    next_attempt_at, claimed_by, claimed_at, lease_expires_at, last_error_code, last_error_message,
    failed_at, dlq_reason, created_at, updated_at, stream, epoch, seq";

impl Row {
    fn read(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
        Ok(Row {
            id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            farm_id: row.try_get(2)?,
            barn_id: row.try_get(3)?,
            device_id: row.try_get(4)?,
            session_id: row.try_get(5)?,
            event_type: row.try_get(6)?,
            occurred_at: row.try_get(7)?,
            trace_id: row.try_get(8)?,
            payload_size_bytes: row.try_get(9)?,
            status: row.try_get(10)?,
            priority: row.try_get(11)?,
            attempt_count: row.try_get(12)?,
            last_attempt_at: row.try_get(13)?,
            next_attempt_at: row.try_get(14)?,
            claimed_by: row.try_get(15)?,
            claimed_at: row.try_get(16)?,
            lease_expires_at: row.try_get(17)?,
            last_error_code: row.try_get(18)?,
            last_error_message: row.try_get(19)?,
            failed_at: row.try_get(20)?,
            dlq_reason: row.try_get(21)?,
            created_at: row.try_get(22)?,
            updated_at: row.try_get(23)?,
            stream: row.try_get(24)?,
            epoch: row.try_get(25)?,
            seq: row.try_get(26)?,
        })
    }
}

/// Some rows, and where the next page starts.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    /// The rows, the newest id first.
    pub rows: Vec<Row>,
    /// What to give as `after` for the next page; `None` when there is none.
    pub next: Option<Uuid>,
}

/// A page of rows.
pub async fn list(pool: &pg::Pool, tenants: &Tenants, filter: &Filter) -> Result<Page, pg::Error> {
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let states: Option<Vec<&str>> = match filter.status.as_slice() {
        [] => None,
        states => Some(states.iter().map(|status| status.as_str()).collect()),
    };
    // What the states mean for the indexes: none of them has the status itself, so that a claim need
    // not write it.
    let only = |states: &[Status]| {
        !filter.status.is_empty() && filter.status.iter().all(|status| states.contains(status))
    };
    let narrow = match () {
        () if only(&[Status::Pending, Status::Claimed, Status::Sending]) => "AND NOT finished",
        () if only(&[Status::Dlq]) => "AND failed_at IS NOT NULL",
        () => "",
    };
    let query = format!(
        "SELECT {COLUMNS} FROM sync_outbox
         WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
           AND ($2::text[] IS NULL OR status = ANY($2))
           AND ($3::uuid IS NULL OR tenant_id = $3)
           AND ($4::text IS NULL OR dlq_reason = $4)
           AND ($5::text IS NULL OR event_type = $5)
           AND ($6::uuid IS NULL OR device_id = $6)
           AND ($7::text IS NULL OR stream = $7)
           AND ($8::timestamptz IS NULL OR created_at >= $8)
           AND ($9::timestamptz IS NULL OR created_at < $9)
           AND ($10::uuid IS NULL OR id < $10) {narrow}
         ORDER BY id DESC LIMIT $11"
    );
    let client = pool.get().await?;
    // One more than asked for tells whether there is a next page.
    let rows = client
        .query(
            &query,
            &[
                &scope(tenants),
                &states,
                &uuid(filter.tenant_id),
                &filter.reason,
                &filter.event_type,
                &filter.device_id.map(DeviceId::uuid),
                &filter.stream,
                &filter.since,
                &filter.until,
                &filter.after,
                &(i64::from(limit) + 1),
            ],
        )
        .await?;
    let mut rows = rows.iter().map(Row::read).collect::<Result<Vec<Row>, _>>()?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.id);
    Ok(Page { rows, next })
}

/// An operator's action on a row, and how the row was before.
#[derive(Debug, Clone, Serialize)]
pub struct Noted {
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub action: String,
    /// By whom.
    pub actor: String,
    /// The person that they acted for, where they said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acting_for: Option<String>,
    /// The action's number in the audit.
    pub audit_id: i64,
    /// The row's state before.
    pub status: String,
    /// Its attempts before.
    pub attempt_count: i32,
    /// Its error before.
    pub last_error_code: Option<String>,
    /// The same, for people.
    pub last_error_message: Option<String>,
    /// When it had become a dead letter.
    pub failed_at: Option<Timestamp>,
    /// Why.
    pub dlq_reason: Option<String>,
    /// Who held it.
    pub claimed_by: Option<String>,
    /// Why it was given up, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// A row with its history.
#[derive(Debug, Serialize)]
pub struct Detail {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// What operators did with it, the latest first.
    pub history: Vec<Noted>,
    /// Its payload, for those who may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_json: Option<Box<RawValue>>,
}

/// One row; `None` if there is none, or not for these tenants.
pub async fn show(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: EventId,
    with_payload: bool,
) -> Result<Option<Detail>, pg::Error> {
    let query = format!(
        "SELECT {COLUMNS}, CASE WHEN $3 THEN payload_json::text END FROM sync_outbox
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))"
    );
    let client = pool.get().await?;
    let found = client.query_opt(&query, &[&id.uuid(), &scope(tenants), &with_payload]).await?;
    let Some(found) = found else { return Ok(None) };
    let payload: Option<String> = found.try_get(27)?;
    let history = client
        .query(
            "SELECT a.at, a.action, a.actor, a.id, r.status, r.attempt_count, r.last_error_code,
                 r.last_error_message, r.failed_at, r.dlq_reason, r.claimed_by, a.because,
                 a.filter ->> 'acting_for'
             FROM sync_audit_row r JOIN sync_audit a ON a.id = r.audit_id
             WHERE r.outbox_id = $1 ORDER BY r.audit_id DESC LIMIT $2",
            &[&id.uuid(), &MAX_HISTORY],
        )
        .await?;
    let history = history.iter().map(|row| {
        Ok(Noted {
            at: row.try_get(0)?,
            action: row.try_get(1)?,
            actor: row.try_get(2)?,
            audit_id: row.try_get(3)?,
            status: row.try_get(4)?,
            attempt_count: row.try_get(5)?,
            last_error_code: row.try_get(6)?,
            last_error_message: row.try_get(7)?,
            failed_at: row.try_get(8)?,
            dlq_reason: row.try_get(9)?,
            claimed_by: row.try_get(10)?,
            because: row.try_get(11)?,
            acting_for: row.try_get(12)?,
        })
    });
    Ok(Some(Detail {
        row: Row::read(&found)?,
        history: history.collect::<Result<_, tokio_postgres::Error>>()?,
        // The database wrote it from jsonb: it is JSON.
        payload_json: payload.and_then(|text| RawValue::from_string(text).ok()),
    }))
}
