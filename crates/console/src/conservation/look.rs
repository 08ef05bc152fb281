//! `verify` as a job, and `where`.

use std::sync::Arc;

use api::Refused;
use axum::Json;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use event::id::{Epoch, EventId, NodeId, TenantId};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Scope, User};
use crate::http::{Answer, Body, Http, Query, wrong};
use crate::jobs::{JobKind, Outcome, Started};
use crate::trail::{self, Stage};
use crate::upstream::{Fault, PATIENT, Remote};
use crate::verify::{self, Held, StreamReport};

/// The most findings of a stream that are shown.
const MAX_FINDINGS: usize = 200;

/// What to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {
    site: String,
    #[schema(value_type = Option<String>)]
    node: Option<NodeId>,
    #[schema(value_type = Option<Uuid>)]
    tenant_id: Option<TenantId>,
    /// Read every row of the site again.
    #[serde(default)]
    deep: bool,
}

/// What was found.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct VerifyResult {
    wrong: u64,
    streams: Vec<VerifiedStream>,
    notes: Vec<String>,
}

/// A stream that was compared.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct VerifiedStream {
    #[schema(value_type = Uuid)]
    tenant_id: TenantId,
    #[schema(value_type = String)]
    stream: NodeId,
    #[schema(value_type = Uuid)]
    epoch: Epoch,
    #[schema(value_type = HeldShape)]
    edge: Held,
    #[schema(value_type = Option<HeldShape>)]
    cloud: Option<Held>,
    blocks: u64,
    unchecked: u64,
    wrong: u64,
    findings: Vec<FindingRow>,
}

/// What one tier has of a stream: the shape of [`Held`] in the document.
#[derive(ToSchema)]
#[schema(as = Held)]
#[expect(dead_code, reason = "only the document knows it")]
pub(crate) struct HeldShape {
    acked: u64,
    received: u64,
    lost: u64,
    kept: u64,
}

/// Something about a range.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FindingRow {
    kind: Value,
    from: u64,
    to: u64,
    count: u64,
    held_by: Value,
    /// False: only on its way.
    wrong: bool,
}

/// Compares a site with the cloud, as a job.
#[utoipa::path(post, path = "/api/v1/verify", tag = "conservation", request_body = Verify,
    responses((status = 202, body = Started), (status = 403), (status = 404)))]
pub(crate) async fn verify(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Body(asked): Body<Verify>,
) -> Answer {
    if http.upstreams.site(&asked.site).is_none() {
        return Err(Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such site"));
    }
    // Whoever may not see every tenant compares theirs, one after the other.
    let tenants: Vec<Option<TenantId>> = match (asked.tenant_id, &user.scope) {
        (Some(tenant), _) => {
            user.may_see(tenant.uuid())?;
            vec![Some(tenant)]
        }
        (None, Scope::All) => vec![None],
        (None, Scope::Only(list)) => {
            list.iter().map(|tenant| TenantId::from_uuid(*tenant).ok()).collect()
        }
    };
    let (upstreams, target) = (Arc::clone(&http.upstreams), asked.site.clone());
    http.jobs.start(&user, JobKind::Verify, &target, |progress| async move {
        let missing = || Refused::new(StatusCode::NOT_FOUND, "not_found", "there is no such site");
        let edge = upstreams.site(&asked.site).ok_or_else(missing)?;
        let tiers = verify::Tiers { edge, cloud: upstreams.cloud.as_ref() };
        let mut streams = Vec::new();
        for tenant in tenants {
            let scope = verify::Scope { tenant, stream: asked.node.clone(), deep: asked.deep };
            let said = |done: usize, total: usize| {
                progress.say(done as u64, Some(total as u64), "streams compared");
            };
            let found = verify::check(&tiers, &scope, said).await;
            streams.extend(found.map_err(|fault: Fault| fault.refuse("a tier"))?);
        }
        let notes = match &upstreams.cloud {
            Some(_) => Vec::new(),
            None => vec!["there is no cloud to compare with".to_owned()],
        };
        let streams: Vec<VerifiedStream> = streams.iter().map(verified).collect();
        let wrong = streams.iter().map(|one| one.wrong).sum();
        Ok(Outcome::Verified(VerifyResult { wrong, streams, notes }))
    })
}

fn verified(report: &StreamReport) -> VerifiedStream {
    let findings = report.findings.iter().take(MAX_FINDINGS).map(|one| FindingRow {
        kind: serde_json::to_value(one.kind).unwrap_or_default(),
        from: one.from,
        to: one.to,
        count: one.count(),
        held_by: serde_json::to_value(one.held_by).unwrap_or_default(),
        wrong: !one.kind.is_moving(),
    });
    VerifiedStream {
        tenant_id: report.tenant_id,
        stream: report.stream.clone(),
        epoch: report.epoch,
        edge: report.edge.clone(),
        cloud: report.cloud.clone(),
        blocks: report.blocks,
        unchecked: report.unchecked,
        wrong: report.wrong().map(event::ledger::Finding::count).sum(),
        findings: findings.collect(),
    }
}

/// Where an event has been.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Where {
    #[schema(value_type = Uuid)]
    event_id: EventId,
    site: Option<String>,
    tenant_id: Option<Uuid>,
    stages: Vec<Stage>,
    notes: Vec<String>,
}

/// Where an event has been: asked of every site, and of the cloud.
#[utoipa::path(get, path = "/api/v1/where/{event_id}", tag = "conservation",
    params(("event_id" = Uuid, Path), ("tenant_id" = Option<Uuid>, Query)),
    responses((status = 200, body = Where), (status = 404)))]
pub(crate) async fn where_is(
    State(http): State<Http>,
    Extension(user): Extension<User>,
    Path(event_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["tenant_id"], &[])?;
    let event_id: EventId = event_id.parse().map_err(|_| wrong("event_id", "an event's id"))?;
    let path = format!("/api/v1/ledger/events/{event_id}");
    let mut notes = Vec::new();
    let tenant_of = |found: &Value| found["tenant_id"].as_str().and_then(|text| text.parse().ok());
    let asked = http.upstreams.sites.iter().map(async |site| (site, ask(site, &path, &[]).await));
    let mut edge: Option<(String, Value)> = None;
    for (site, answer) in join_all(asked).await {
        match answer {
            Ok(Some(found))
                if tenant_of(&found).is_some_and(|tenant| user.scope.allows(tenant)) =>
            {
                edge.get_or_insert((site.name.clone(), found));
            }
            Ok(_) => {}
            Err(fault) => notes.push(format!("{} was not asked: {fault}", site.name)),
        }
    }
    let named: Option<Uuid> = query.parse("tenant_id")?;
    let tenants = match (edge.as_ref().and_then(|(_, found)| tenant_of(found)), named) {
        (Some(tenant), _) | (None, Some(tenant)) => {
            user.may_see(tenant)?;
            vec![tenant]
        }
        (None, None) => http.board.tenants(&user.scope),
    };
    let occurred = edge.as_ref().and_then(|(_, found)| found["occurred_at"].as_str());
    let mut cloud: Option<(Uuid, Value)> = None;
    if let Some(remote) = &http.upstreams.cloud {
        for tenant in &tenants {
            let mut query = vec![("tenant_id", tenant.to_string())];
            query.extend(occurred.map(|at| ("occurred_at", at.to_owned())));
            match ask(remote, &path, &query).await {
                Ok(Some(found)) => {
                    cloud = Some((*tenant, found));
                    break;
                }
                Ok(None) => {}
                Err(fault) => {
                    notes.push(format!("the cloud was not asked: {fault}"));
                    break;
                }
            }
        }
    }
    if edge.is_none() && cloud.is_none() {
        let message = "nobody knows this event: it may still be in a node's spool, its rows may have been removed after \
                       their retention, or it is another tenant's";
        return Err(Refused::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    let asked = http.upstreams.cloud.is_some();
    let stages = trail::stages(
        edge.as_ref().map(|(_, found)| found),
        cloud.as_ref().map(|(_, found)| found),
        asked,
    );
    let of_edge = edge.as_ref().and_then(|(_, found)| tenant_of(found));
    let tenant_id = of_edge.or_else(|| cloud.as_ref().map(|(tenant, _)| *tenant));
    let site = edge.map(|(site, _)| site);
    Ok(Json(Where { event_id, site, tenant_id, stages, notes }).into_response())
}

async fn ask(
    remote: &Remote,
    path: &str,
    query: &[(&str, String)],
) -> Result<Option<Value>, Fault> {
    match remote.get(path, query, PATIENT).await {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.is_not_found() => Ok(None),
        Err(fault) => Err(fault),
    }
}
