//! What takes longer than a request: it runs by itself, and whoever started it asks how it goes.
//!
//! Promises: no more than [`MAX_RUNNING`] run, each for no longer than [`LONGEST`]; the last [`MAX_KEPT`] are remembered; only whoever started a job
//! sees it. They end with the process: what they asked upstreams to do goes on there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::Refused;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, response::Response};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::User;
use crate::conservation::VerifyResult;
use crate::http::{Answer, Http};
use crate::queues::RedriveResult;

const MAX_RUNNING: usize = 4;
const MAX_KEPT: usize = 64;
const LONGEST: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKind {
    Verify,
    Redrive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobState {
    Running,
    Done,
    Failed,
}

/// A job.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Job {
    id: Uuid,
    kind: JobKind,
    /// What it is about: a site, or a queue.
    target: String,
    state: JobState,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    done: u64,
    total: Option<u64>,
    message: String,
    verify: Option<VerifyResult>,
    redrive: Option<RedriveResult>,
    /// The token of whoever started it.
    #[serde(skip)]
    owner: Uuid,
}

/// Jobs of whoever asks, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobList {
    items: Vec<Job>,
}

/// A job that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Started {
    job_id: Uuid,
}

/// How a job ends well.
pub(crate) enum Outcome {
    Verified(VerifyResult),
    Redriven(RedriveResult),
}

/// Every job that is remembered. Ids are made in the order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs(Arc<Mutex<BTreeMap<Uuid, Job>>>);

/// Where a job says how it goes.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    jobs: Jobs,
    id: Uuid,
}

impl Progress {
    /// So much is done of so much.
    pub(crate) fn say(&self, done: u64, total: Option<u64>, message: &str) {
        self.jobs.change(self.id, |job| {
            (job.done, job.total) = (done, total);
            job.message = message.to_owned();
        });
    }
}

impl Jobs {
    fn change(&self, id: Uuid, change: impl FnOnce(&mut Job)) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get_mut(&id) {
            change(job);
        }
    }

    /// Starts a job; 503 when too many run.
    pub(crate) fn start<F>(
        &self,
        user: &User,
        kind: JobKind,
        target: &str,
        work: impl FnOnce(Progress) -> F,
    ) -> Answer
    where
        F: Future<Output = Result<Outcome, Refused>> + Send + 'static,
    {
        let id = Uuid::now_v7();
        let job = Job {
            id,
            kind,
            target: target.to_owned(),
            state: JobState::Running,
            started_at: Timestamp::now(),
            ended_at: None,
            done: 0,
            total: None,
            message: String::new(),
            verify: None,
            redrive: None,
            owner: user.token.id,
        };
        {
            let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let running = jobs.values().filter(|job| job.state == JobState::Running).count();
            if running >= MAX_RUNNING {
                let message = "as many jobs as allowed run already: come back later";
                return Err(Refused::unavailable("busy", message));
            }
            while jobs.len() >= MAX_KEPT {
                let oldest = jobs.values().find(|job| job.state != JobState::Running);
                let Some(oldest) = oldest.map(|job| job.id) else { break };
                jobs.remove(&oldest);
            }
            jobs.insert(id, job);
        }
        tracing::info!(token = %user.token.id, job = %id, ?kind, target, "a job was started");
        let (jobs, work) = (self.clone(), work(Progress { jobs: self.clone(), id }));
        tokio::spawn(async move {
            let ended = tokio::time::timeout(LONGEST, work).await;
            jobs.change(id, |job| {
                job.ended_at = Some(Timestamp::now());
                job.state = JobState::Done;
                match ended {
                    Ok(Ok(Outcome::Verified(result))) => job.verify = Some(result),
                    Ok(Ok(Outcome::Redriven(result))) => job.redrive = Some(result),
                    Ok(Err(refused)) => {
                        (job.state, job.message) = (JobState::Failed, refused.to_string());
                    }
                    Err(_) => {
                        job.state = JobState::Failed;
                        job.message = "it took too long, and was given up".to_owned();
                    }
                }
            });
        });
        Ok((StatusCode::ACCEPTED, Json(Started { job_id: id })).into_response())
    }
}

/// One job of whoever asks.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Job), (status = 404)))]
pub(crate) async fn show(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Answer {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "you have no such job");
    let id = Uuid::try_parse(&id).map_err(|_| missing())?;
    let jobs = http.jobs.0.lock().unwrap_or_else(PoisonError::into_inner);
    let job = jobs.get(&id).filter(|job| job.owner == user.token.id).cloned();
    Ok(Json(job.ok_or_else(missing)?).into_response())
}

/// The jobs of whoever asks.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "jobs", tag = "jobs", responses((status = 200, body = JobList)))]
pub(crate) async fn list(State(http): State<Http>, Extension(user): Extension<User>) -> Response {
    let jobs = http.jobs.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mine = jobs.values().rev().filter(|job| job.owner == user.token.id).cloned();
    Json(JobList { items: mine.collect() }).into_response()
}
