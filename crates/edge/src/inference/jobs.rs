//! `inference_jobs`: images that wait for the model, as leased work and for people.

use std::time::Duration;

use api::tokens::Tenants;
use event::id::{InferenceResultId, MediaId, TenantId};
use jiff::Timestamp;
use lease::{Kind, Lease, Queue, RowLease, Table};
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::Fault;
use crate::http::cursor::Page;
use crate::signal::Signal;
use crate::sync::admin::scope;

/// The NOTIFY channel that says that there are new jobs.
const CHANNEL: &str = "inference_jobs";
/// Jobs that nobody works on are removed after this long, where there is no model.
const UNASKED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// How many are removed at once, so that no statement is long.
const AT_ONCE: i64 = 1_000;

const ADD: &str = "INSERT INTO inference_jobs (id, tenant_id, media_id) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, media_id) DO NOTHING";

/// Asks for the evaluation of an image, in the transaction that stores it. An image that has a job
/// keeps the one it has.
pub async fn enqueue(
    transaction: &pg::Transaction<'_>,
    tenant: TenantId,
    media: MediaId,
) -> Result<(), pg::Error> {
    let statement = transaction.prepare_cached(ADD).await?;
    transaction.execute(&statement, &[&Uuid::now_v7(), &tenant.uuid(), &media.uuid()]).await?;
    Ok(())
}

/// A job in a worker's hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Its id becomes the result's.
    pub(super) id: InferenceResultId,
    pub(super) tenant: TenantId,
    pub(super) media: MediaId,
}

pub(super) fn queue() -> Queue<Job> {
    let table = Table {
        name: "inference_jobs",
        id: "id",
        id_kind: Kind::Uuid,
        tenant: "tenant_id",
        tenant_kind: Kind::Uuid,
        // Of no meaning, but of a column, because an index needs one.
        rank: "(0 * attempt_count)",
        key: "id",
        key_kind: Kind::Uuid,
        at: None,
        status: "status",
        pending: "pending",
        done: None,
        buried: "dlq",
        unfinished: None,
        lease: Lease::Row(RowLease {
            claimed: "claimed",
            sending: None,
            token: "lease_token",
            holder: "claimed_by",
            held_since: "claimed_at",
            expires: "lease_expires_at",
        }),
        attempts: "attempt_count",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: Some("failed_at"),
        buried_reason: Some("dlq_reason"),
        touched: Some("updated_at"),
        payload: "id, tenant_id, media_id",
    };
    let read = |row: &tokio_postgres::Row| {
        let id = |name: &'static str| {
            row.try_get::<_, Uuid>(name).map_err(|_| format!("{name} cannot be read"))
        };
        let wrong = |name: &'static str| move |error| format!("{name} {error}");
        Ok(Job {
            id: InferenceResultId::from_uuid(id("id")?).map_err(wrong("id"))?,
            tenant: TenantId::from_uuid(id("tenant_id")?).map_err(wrong("tenant_id"))?,
            media: MediaId::from_uuid(id("media_id")?).map_err(wrong("media_id"))?,
        })
    };
    Queue::new("inference", table, read).channel(CHANNEL)
}

/// Keeps what the model wrote to its standard error, for whoever looks for the cause.
pub(super) async fn note_stderr(
    pool: &pg::Pool,
    job: InferenceResultId,
    token: Uuid,
    text: &str,
) -> Result<(), pg::Error> {
    let note = "UPDATE inference_jobs SET last_stderr = $3 WHERE id = $1 AND lease_token = $2";
    pool.get().await?.execute(note, &[&job.uuid(), &token, &text]).await?;
    Ok(())
}

/// Removes jobs that have waited so long that nobody will work on them, until told to stop. Runs where
/// there is no model.
pub(crate) async fn forget_unasked(pool: pg::Pool, mut stop: Signal) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.heard() => return,
            _ = tick.tick() => match forget(&pool).await {
                Ok(0) => {}
                Ok(jobs) => tracing::info!(jobs, "jobs were removed: there is no model command"),
                Err(error) => tracing::warn!(%error, "old jobs could not be removed"),
            },
        }
    }
}

async fn forget(pool: &pg::Pool) -> Result<u64, pg::Error> {
    let mut removed = 0;
    loop {
        let client = pool.get().await?;
        let query = "DELETE FROM inference_jobs WHERE id IN (
            SELECT id FROM inference_jobs
            WHERE status = 'pending' AND next_attempt_at < now() - $1 * interval '1 s' LIMIT $2)";
        let seconds = UNASKED_FOR.as_secs_f64();
        let rows = client.execute(query, &[&seconds, &AT_ONCE]).await?;
        removed += rows;
        if rows < AT_ONCE.unsigned_abs() {
            return Ok(removed);
        }
    }
}

/// A job, for people.
#[derive(Debug, Serialize)]
pub(super) struct JobRow {
    id: Uuid,
    tenant_id: Uuid,
    media_id: Uuid,
    status: String,
    attempt_count: i32,
    last_attempt_at: Option<Timestamp>,
    next_attempt_at: Timestamp,
    claimed_by: Option<String>,
    lease_expires_at: Option<Timestamp>,
    last_error_code: Option<String>,
    last_error_message: Option<String>,
    failed_at: Option<Timestamp>,
    dlq_reason: Option<String>,
    created_at: Timestamp,
    /// For those who may act: a model may print what it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_stderr: Option<String>,
}

const COLUMNS: &str = "id, tenant_id, media_id, status, attempt_count, last_attempt_at, next_attempt_at,
    claimed_by, lease_expires_at, last_error_code, last_error_message, failed_at, dlq_reason, created_at";

impl JobRow {
    fn read(row: &tokio_postgres::Row) -> Result<JobRow, tokio_postgres::Error> {
        Ok(JobRow {
            id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            media_id: row.try_get(2)?,
            status: row.try_get(3)?,
            attempt_count: row.try_get(4)?,
            last_attempt_at: row.try_get(5)?,
            next_attempt_at: row.try_get(6)?,
            claimed_by: row.try_get(7)?,
            lease_expires_at: row.try_get(8)?,
            last_error_code: row.try_get(9)?,
            last_error_message: row.try_get(10)?,
            failed_at: row.try_get(11)?,
            dlq_reason: row.try_get(12)?,
            created_at: row.try_get(13)?,
            last_stderr: row.try_get(14)?,
        })
    }
}

/// Which jobs to list.
#[derive(Debug, Default)]
pub(super) struct JobFilter {
    pub(super) tenant_id: Option<TenantId>,
    pub(super) status: Option<String>,
    pub(super) after: Option<Uuid>,
    pub(super) limit: u32,
}

/// A page of jobs, the newest first.
pub(super) async fn list(
    pool: &pg::Pool,
    tenants: &Tenants,
    filter: &JobFilter,
    with_stderr: bool,
) -> Result<Page<JobRow, Uuid>, Fault> {
    let query = format!(
        "SELECT {COLUMNS}, CASE WHEN $6 THEN last_stderr END FROM inference_jobs
         WHERE ($1::uuid[] IS NULL OR tenant_id = ANY($1))
           AND ($2::uuid IS NULL OR tenant_id = $2)
           AND ($3::text IS NULL OR status = $3)
           AND ($4::uuid IS NULL OR id < $4)
         ORDER BY id DESC LIMIT $5"
    );
    let client = pool.get().await?;
    let rows = client
        .query(
            &query,
            &[
                &scope(tenants),
                &filter.tenant_id.map(TenantId::uuid),
                &filter.status,
                &filter.after,
                &(i64::from(filter.limit) + 1),
                &with_stderr,
            ],
        )
        .await?;
    let rows = rows.iter().map(JobRow::read).collect::<Result<Vec<JobRow>, _>>()?;
    Ok(Page::new(rows, filter.limit, |row| row.id))
}

/// Puts a dead job back to work.
pub(super) async fn redrive(
    pool: &pg::Pool,
    tenants: &Tenants,
    id: InferenceResultId,
) -> Result<JobRow, Fault> {
    let client = pool.get().await?;
    let query = format!(
        "UPDATE inference_jobs SET status = 'pending', attempt_count = 0, next_attempt_at = now(),
             failed_at = NULL, dlq_reason = NULL, updated_at = now()
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) AND status = 'dlq'
         RETURNING {COLUMNS}, last_stderr"
    );
    if let Some(row) = client.query_opt(&query, &[&id.uuid(), &scope(tenants)]).await? {
        return Ok(JobRow::read(&row)?);
    }
    let query = "SELECT status FROM inference_jobs
        WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2))";
    let row = client.query_opt(query, &[&id.uuid(), &scope(tenants)]).await?;
    Err(Fault::WrongState(row.ok_or(Fault::Missing)?.try_get(0)?))
}
