//! Dead letters back to work: asked of the tier that holds them, tenant by tenant, as a job.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Refused;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Person, Scope, User};
use crate::http::{Answer, Body, Http, wrong};
use crate::jobs::{JobKind, Outcome, Progress, Started};
use crate::upstream::{PATIENT, Remote, Upstreams};

const MAX_LIMIT: u32 = 10_000;
const MAX_IDS: usize = 1_000;
const MAX_ID_CHARS: usize = 200;
const MAX_CAUSE_CHARS: usize = 200;
/// Where the cloud and the historian send dead letters back.
const REPLAY: &str = "/api/v1/dead-letters/replay";
/// How often a replay is looked at, and how often at most.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const MAX_LOOKS: u32 = 1_200;
/// Letters a second that are sent back.
const PER_SECOND: u32 = 100;

/// Which dead letters; all that is given must hold.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redrive {
    cause: Option<String>,
    tenant_id: Option<Uuid>,
    #[serde(default)]
    ids: Vec<String>,
    limit: Option<u32>,
    /// Change nothing, and say what would be taken.
    dry_run: bool,
}

/// Dead letters of a cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct CauseCount {
    cause: String,
    count: u64,
}

/// What was done, or would be.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct RedriveResult {
    dry_run: bool,
    matched: u64,
    changed: u64,
    by_cause: Vec<CauseCount>,
}

/// Which queue is meant.
enum Target {
    Outbox(String),
    Relay,
    Bus,
    Historian,
}

/// Puts dead letters back to work.
#[utoipa::path(post, path = "/api/v1/queues/{id}/redrive", tag = "queues", params(("id" = String, Path)), request_body = Redrive,
    responses((status = 202, body = Started), (status = 403), (status = 404)))]
pub(crate) async fn redrive(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(what): Body<Redrive>,
) -> Answer {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such queue");
    let target = match id.split_once(':') {
        Some(("outbox", site)) if http.upstreams.site(site).is_some() => {
            Target::Outbox(site.to_owned())
        }
        None if id == "relay" && http.upstreams.cloud.is_some() => Target::Relay,
        None if id == "bus" && http.upstreams.cloud.is_some() => Target::Bus,
        // The plant has no tenants: it is for whoever sees everything.
        None if id == "historian" && http.upstreams.historian.is_some() && user.scope.is_all() => {
            if what.tenant_id.is_some() {
                return Err(wrong("tenant_id", "none: the plant has no tenants"));
            }
            Target::Historian
        }
        _ => return Err(missing()),
    };
    if what.limit.is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit)) {
        return Err(wrong("limit", &format!("an integer from 1 to {MAX_LIMIT}")));
    }
    if what.ids.len() > MAX_IDS || what.ids.iter().any(|id| id.len() > MAX_ID_CHARS) {
        return Err(wrong("ids", &format!("at most {MAX_IDS} ids")));
    }
    if what.cause.as_ref().is_some_and(|cause| cause.chars().count() > MAX_CAUSE_CHARS) {
        return Err(wrong("cause", "a cause as it is listed"));
    }
    let tenants: Vec<Option<Uuid>> = match (what.tenant_id, &user.scope) {
        (Some(tenant), _) => {
            user.may_see(tenant)?;
            vec![Some(tenant)]
        }
        (None, Scope::All) => vec![None],
        (None, Scope::Only(list)) => list.iter().copied().map(Some).collect(),
    };
    let (shared, person) = (http.clone(), user.person());
    http.jobs.start(&user, JobKind::Redrive, &id, |progress| async move {
        let mut sum = RedriveResult { dry_run: what.dry_run, ..RedriveResult::default() };
        let mut by_cause = BTreeMap::new();
        let mut left = what.limit.unwrap_or(MAX_LIMIT);
        for tenant in tenants {
            if left == 0 {
                break;
            }
            let upstreams = &shared.upstreams;
            let part = one(upstreams, &person, &target, &what, (tenant, left), &progress).await?;
            sum.matched += part.matched;
            sum.changed += part.changed;
            left = left.saturating_sub(u32::try_from(part.changed).unwrap_or(u32::MAX));
            for (cause, count) in part.by_cause {
                *by_cause.entry(cause).or_insert(0) += count;
            }
        }
        let each = by_cause.into_iter().map(|(cause, count)| CauseCount { cause, count });
        sum.by_cause = each.collect();
        // Whoever looks now sees what is left.
        shared.letters.0.forget().await;
        progress.say(sum.changed, Some(sum.changed), "put back");
        Ok(Outcome::Redriven(sum))
    })
}

/// What a tier did.
#[derive(Default, Deserialize)]
struct Part {
    #[serde(default)]
    matched: u64,
    #[serde(default)]
    changed: u64,
    #[serde(default)]
    by_cause: BTreeMap<String, u64>,
    /// What goes on by itself; here is where to ask.
    replay_id: Option<i64>,
    state: Option<String>,
}

async fn one(
    upstreams: &Upstreams,
    person: &Person,
    target: &Target,
    what: &Redrive,
    (tenant, limit): (Option<Uuid>, u32),
    progress: &Progress,
) -> Result<Part, Refused> {
    let narrowed = what.cause.is_some() || tenant.is_some() || !what.ids.is_empty();
    let mut body = json!({
        "ids": what.ids, "reason": what.cause, "all": !narrowed, "limit": limit,
        "dry_run": what.dry_run,
    });
    if !matches!(target, Target::Historian) {
        body["tenant_id"] = json!(tenant);
    }
    let gone = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such queue");
    let (remote, path) = match target {
        Target::Outbox(name) => {
            #[derive(Deserialize)]
            struct Done {
                rows: u64,
                left: u64,
                by_reason: BTreeMap<String, u64>,
            }
            let site = upstreams.site(name).ok_or_else(gone)?;
            let done: Done = send(site, person, "/api/v1/sync/redrive", &body).await?;
            let changed = if what.dry_run { 0 } else { done.rows };
            let (matched, by_cause) = (done.rows + done.left, done.by_reason);
            return Ok(Part { matched, changed, by_cause, ..Part::default() });
        }
        Target::Relay => (&upstreams.cloud, "/api/v1/relay/redrive"),
        Target::Bus => (&upstreams.cloud, REPLAY),
        Target::Historian => (&upstreams.historian, REPLAY),
    };
    if path == REPLAY {
        body["per_second"] = json!(PER_SECOND);
    }
    let remote = remote.as_ref().ok_or_else(gone)?;
    let mut part: Part = send(remote, person, path, &body).await?;
    if let (Some(id), Some("running")) = (part.replay_id, part.state.as_deref()) {
        let Standing { matched, changed, .. } = follow(remote, id, progress).await?;
        (part.matched, part.changed) = (matched.unwrap_or_default(), changed.unwrap_or_default());
        if let Some(cause) = &what.cause {
            part.by_cause.insert(cause.clone(), part.matched);
        }
    }
    Ok(part)
}

async fn send<T: serde::de::DeserializeOwned>(
    remote: &Remote,
    person: &Person,
    path: &str,
    body: &Value,
) -> Result<T, Refused> {
    remote.post(person, path, body, PATIENT).await.map_err(|fault| fault.refuse(&remote.name))
}

/// How a replay stands.
#[derive(Deserialize)]
struct Standing {
    state: String,
    matched: Option<u64>,
    changed: Option<u64>,
    left: u64,
    total: u64,
    error: Option<String>,
}

/// Follows a replay until it has ended, or for as long as anybody would wait.
async fn follow(remote: &Remote, id: i64, progress: &Progress) -> Result<Standing, Refused> {
    let path = format!("/api/v1/dead-letters/replays/{id}");
    let mut looks = 0;
    loop {
        let now: Standing =
            remote.get(&path, &[], PATIENT).await.map_err(|fault| fault.refuse(&remote.name))?;
        let done = now.total.saturating_sub(now.left);
        progress.say(done, Some(now.total), "looked at or settled");
        looks += 1;
        match now.state.as_str() {
            "running" if looks < MAX_LOOKS => tokio::time::sleep(LOOK_EVERY).await,
            "running" | "done" => return Ok(now),
            state => {
                let why =
                    now.error.unwrap_or_else(|| "the process that did it has ended".to_owned());
                let message = format!("the replay is {}: {why}", state.replace('_', " "));
                return Err(Refused::new(StatusCode::BAD_GATEWAY, "replay_failed", message));
            }
        }
    }
}
