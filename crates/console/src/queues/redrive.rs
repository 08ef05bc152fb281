//! Dead letters back to work: asked of the tier that holds them, tenant by tenant, as a job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Refused;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Scope, User};
use crate::http::{Answer, Body, Http, wrong};
use crate::jobs::{JobKind, Outcome, Progress, Started};
use crate::upstream::{PATIENT, Remote, Upstreams};

const MAX_LIMIT: u32 = 10_000;
const MAX_IDS: usize = 1_000;
const MAX_ID_CHARS: usize = 200;
const MAX_CAUSE_CHARS: usize = 200;
/// How often a replay on the bus is looked at, and how often at most.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const MAX_LOOKS: u32 = 1_200;
/// Letters a second that the bus is given back.
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
    let upstreams = Arc::clone(&http.upstreams);
    http.jobs.start(&user, JobKind::Redrive, &id, |progress| async move {
        let mut sum = RedriveResult { dry_run: what.dry_run, ..RedriveResult::default() };
        let mut by_cause = BTreeMap::new();
        let mut replays = Vec::new();
        let mut left = what.limit.unwrap_or(MAX_LIMIT);
        for tenant in tenants {
            if left == 0 {
                break;
            }
            let part = one(&upstreams, &target, &what, tenant, left).await?;
            sum.matched += part.matched;
            sum.changed += part.changed;
            replays.extend(part.replay_id);
            left = left.saturating_sub(u32::try_from(part.changed).unwrap_or(u32::MAX));
            for (cause, count) in part.by_cause {
                *by_cause.entry(cause).or_insert(0) += count;
            }
            progress.say(0, Some(sum.changed), "put back");
        }
        let each = by_cause.into_iter().map(|(cause, count)| CauseCount { cause, count });
        sum.by_cause = each.collect();
        if let (Target::Bus, Some(cloud), false) = (&target, &upstreams.cloud, what.dry_run) {
            follow(cloud, &replays, sum.changed, &progress).await?;
        } else {
            progress.say(sum.changed, Some(sum.changed), "put back");
        }
        Ok(Outcome::Redriven(sum))
    })
}

/// What a tier did.
#[derive(Default)]
struct Part {
    matched: u64,
    changed: u64,
    by_cause: BTreeMap<String, u64>,
    /// The bus works it off by itself; here is where to ask.
    replay_id: Option<i64>,
}

async fn one(
    upstreams: &Upstreams,
    target: &Target,
    what: &Redrive,
    tenant: Option<Uuid>,
    limit: u32,
) -> Result<Part, Refused> {
    let narrowed = what.cause.is_some() || tenant.is_some() || !what.ids.is_empty();
    let mut body = json!({
        "ids": what.ids, "reason": what.cause, "tenant_id": tenant, "all": !narrowed,
        "limit": limit, "dry_run": what.dry_run,
    });
    let gone = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such queue");
    match target {
        Target::Outbox(name) => {
            #[derive(Deserialize)]
            struct Done {
                rows: u64,
                left: u64,
                by_reason: BTreeMap<String, u64>,
            }
            let site = upstreams.site(name).ok_or_else(gone)?;
            let done: Done = send(site, "/api/v1/sync/redrive", &body).await?;
            let changed = if what.dry_run { 0 } else { done.rows };
            let (matched, by_cause) = (done.rows + done.left, done.by_reason);
            Ok(Part { matched, changed, by_cause, replay_id: None })
        }
        Target::Relay | Target::Bus => {
            #[derive(Deserialize)]
            struct Done {
                matched: u64,
                changed: u64,
                #[serde(default)]
                by_cause: BTreeMap<String, u64>,
                #[serde(default)]
                replay_id: Option<i64>,
            }
            let cloud = upstreams.cloud.as_ref().ok_or_else(gone)?;
            let path = match target {
                Target::Bus => {
                    body["per_second"] = json!(PER_SECOND);
                    "/api/v1/dead-letters/replay"
                }
                _ => "/api/v1/relay/redrive",
            };
            let Done { matched, changed, by_cause, replay_id } = send(cloud, path, &body).await?;
            Ok(Part { matched, changed, by_cause, replay_id })
        }
    }
}

async fn send<T: serde::de::DeserializeOwned>(
    remote: &Remote,
    path: &str,
    body: &Value,
) -> Result<T, Refused> {
    remote.post(path, body, PATIENT).await.map_err(|fault| fault.refuse(&remote.name))
}

/// Follows replays until consumers have settled them all.
async fn follow(
    cloud: &Remote,
    replays: &[i64],
    asked: u64,
    progress: &Progress,
) -> Result<(), Refused> {
    #[derive(Deserialize)]
    struct Left {
        left: u64,
    }
    for _ in 0..MAX_LOOKS {
        let mut left = 0;
        for id in replays {
            let path = format!("/api/v1/dead-letters/replays/{id}");
            let found: Left =
                cloud.get(&path, &[], PATIENT).await.map_err(|fault| fault.refuse(&cloud.name))?;
            left += found.left;
        }
        progress.say(asked.saturating_sub(left), Some(asked), "settled by their consumers");
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    progress.say(0, Some(asked), "asked for; the cloud works them off");
    Ok(())
}
