//! What waits, and what was given up: outboxes, the relay, the bus, the historian; and putting dead letters back to work.

mod redrive;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::IntoResponse;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Scope, User};
use crate::answers::Answers;
use crate::http::{Answer, Http};
use crate::picture::{
    Breaker, CloudTick, Flow, Link, ProducerTick, Snapshot, Stage, StageState, cloud_part, drain,
    draw, site_part, trouble,
};
use crate::upstream::cloud::{CauseFact, Letters};
use crate::upstream::site::DeadGroupFact;
use crate::upstream::{Fault, Upstreams, cloud, site};

pub(crate) use redrive::{__path_redrive, RedriveResult, redrive};

/// The most groups of a queue that are shown.
const MAX_GROUPS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueueKind {
    Outbox,
    Relay,
    Bus,
    Historian,
    /// The outbox of a SCADA node.
    Producer,
}

/// Dead letters of one cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeadGroup {
    cause: String,
    event_type: Option<String>,
    queue: Option<String>,
    tenant_id: Option<Uuid>,
    count: u64,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    sample_id: Option<String>,
    sample_message: Option<String>,
}

/// A queue.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Queue {
    id: String,
    kind: QueueKind,
    site: Option<String>,
    name: String,
    state: StageState,
    held: Option<u64>,
    oldest_age_s: Option<f64>,
    in_per_s: Option<f64>,
    out_per_s: Option<f64>,
    drain_estimate_s: Option<f64>,
    breaker: Option<Breaker>,
    paused_until: Option<Timestamp>,
    last_failure: Option<String>,
    stuck: Option<u64>,
    dead: Option<u64>,
    groups: Vec<DeadGroup>,
    redrivable: bool,
    note: Option<String>,
}

/// Every queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueList {
    at: Timestamp,
    items: Vec<Queue>,
}

impl From<DeadGroupFact> for DeadGroup {
    fn from(fact: DeadGroupFact) -> DeadGroup {
        DeadGroup {
            cause: fact.reason.unwrap_or_else(|| "unknown".to_owned()),
            event_type: Some(fact.event_type),
            queue: None,
            tenant_id: Some(fact.tenant_id),
            count: fact.count,
            first_at: fact.first_at,
            last_at: fact.last_at,
            sample_id: fact.sample_id.map(|id| id.to_string()),
            sample_message: fact.sample_message,
        }
    }
}

impl From<CauseFact> for DeadGroup {
    fn from(fact: CauseFact) -> DeadGroup {
        DeadGroup {
            cause: fact.cause,
            event_type: fact.event_type,
            queue: fact.queue,
            tenant_id: fact.tenant_id,
            count: fact.count,
            first_at: fact.first_at,
            last_at: fact.last_at,
            sample_id: fact.sample_id,
            sample_message: fact.sample_message,
        }
    }
}

/// Every queue, with its dead letters by cause.
#[utoipa::path(get, path = "/api/v1/queues", operation_id = "queues", tag = "queues", responses((status = 200, body = QueueList)))]
pub(crate) async fn list(State(http): State<Http>, Extension(user): Extension<User>) -> Answer {
    let snapshot = http.board.now();
    let mut items = queues(&snapshot, &user.scope);
    let asked =
        items.iter_mut().map(async |queue| match http.letters.of(&http.upstreams, queue).await {
            Ok(found) => queue.hold(&found, &user.scope),
            Err(fault) => {
                queue.note = Some(format!("its dead letters were not asked for: {fault}"))
            }
        });
    join_all(asked).await;
    Ok(Json(QueueList { at: snapshot.tick.at, items }).into_response())
}

/// Dead letters as an upstream shows them.
#[derive(Debug, Default)]
struct Found {
    groups: Vec<DeadGroup>,
    /// How many were looked at and how many there are, where they are looked at one by one.
    looked: Option<(u64, u64)>,
}

impl From<Letters> for Found {
    fn from(letters: Letters) -> Found {
        let looked = letters.looked_at.zip(letters.total);
        Found { groups: letters.groups.into_iter().map(Into::into).collect(), looked }
    }
}

/// How old the dead letters of a queue may be.
const LIFE: Duration = Duration::from_secs(2);

/// The dead letters of every queue, of all tenants, for everybody who looks.
#[derive(Debug)]
pub(crate) struct DeadLetters(Answers<String, Found>);

impl Default for DeadLetters {
    fn default() -> DeadLetters {
        DeadLetters(Answers::new(LIFE))
    }
}

impl DeadLetters {
    async fn of(&self, upstreams: &Upstreams, queue: &Queue) -> Result<Arc<Found>, Fault> {
        self.0.get(queue.id.clone(), async || dead_letters(upstreams, queue).await).await
    }
}

async fn dead_letters(upstreams: &Upstreams, queue: &Queue) -> Result<Found, Fault> {
    let remote = match (queue.kind, &queue.site) {
        (QueueKind::Outbox, Some(name)) => upstreams.site(name),
        (QueueKind::Outbox, None) | (QueueKind::Producer, _) => None,
        (QueueKind::Relay | QueueKind::Bus, _) => upstreams.cloud.as_ref(),
        (QueueKind::Historian, _) => upstreams.historian.as_ref(),
    };
    let Some(remote) = remote else { return Ok(Found::default()) };
    Ok(match queue.kind {
        QueueKind::Outbox => {
            let facts = site::dead_letters(remote).await?;
            Found { groups: facts.into_iter().map(Into::into).collect(), looked: None }
        }
        QueueKind::Relay => cloud::relay_dead_letters(remote).await?.into(),
        QueueKind::Bus | QueueKind::Historian => cloud::dead_letters(remote).await?.into(),
        QueueKind::Producer => Found::default(),
    })
}

impl Queue {
    /// Takes what somebody may see of its dead letters.
    fn hold(&mut self, found: &Found, scope: &Scope) {
        // What has no tenant that could be read is for whoever sees everything.
        let seen = found.groups.iter().filter(|group| match group.tenant_id {
            Some(tenant) => scope.allows(tenant),
            None => scope.is_all(),
        });
        let mut groups: Vec<DeadGroup> = seen.cloned().collect();
        if let Some((looked_at, total)) = found.looked {
            let seen = groups.iter().map(|group| group.count).sum();
            self.dead = Some(if scope.is_all() { total } else { seen });
            self.note = match (looked_at < total, scope.is_all()) {
                (false, _) => None,
                (true, true) => {
                    Some(format!("by cause: the oldest {looked_at} of {total} dead letters"))
                }
                (true, false) => Some("by cause: not all dead letters were looked at".to_owned()),
            };
        }
        groups.truncate(MAX_GROUPS);
        self.groups = groups;
    }
}

/// The queues of a moment, without their groups.
fn queues(snapshot: &Snapshot, scope: &Scope) -> Vec<Queue> {
    let tick = &snapshot.tick;
    let flow = draw(tick, scope);
    let stage = |id: &str| flow.stages.iter().find(|stage| stage.id == id);
    let mut queues = Vec::new();
    for site in tick.sites.iter().filter(|site| site.forwards) {
        let Some(part) = site_part(site, scope) else { continue };
        let outbox = part.outbox.unwrap_or_default();
        let known = |value: u64| site.here.then_some(value);
        queues.push(Queue {
            kind: QueueKind::Outbox,
            site: Some(site.name.clone()),
            name: format!("outbox of {}", site.name),
            oldest_age_s: outbox.oldest_age_s.filter(|_| site.here),
            in_per_s: site.here.then_some(outbox.in_per_s),
            out_per_s: site.here.then_some(outbox.out_per_s),
            drain_estimate_s: drain(outbox.waiting, outbox.in_per_s, outbox.out_per_s)
                .filter(|_| site.here),
            breaker: outbox.breaker.filter(|_| site.here),
            paused_until: outbox.paused_until,
            last_failure: outbox.last_failure.clone(),
            stuck: known(outbox.stuck),
            dead: known(outbox.dead),
            redrivable: site.here,
            ..queue(
                format!("outbox:{}", site.name),
                known(outbox.waiting),
                stage(&format!("edge:{}", site.name)),
                None,
            )
        });
    }
    if let Some(cloud) = &tick.cloud {
        of_cloud(cloud, scope, &flow, &mut queues);
    }
    // The plant has no tenants: it is for whoever sees everything.
    if let Some(plant) = tick.plant.as_ref().filter(|_| scope.is_all()) {
        queues.push(Queue {
            kind: QueueKind::Historian,
            name: "historian".to_owned(),
            in_per_s: plant.here.then_some(plant.stored_per_s),
            dead: plant.here.then_some(plant.dead_letters),
            redrivable: plant.here,
            ..queue("historian".to_owned(), None, stage("historian"), None)
        });
    }
    let producers = tick.producers.iter().filter(|_| scope.is_all());
    queues.extend(producers.map(|producer| of_producer(producer, &flow)));
    queues
}

/// The outbox of a SCADA node: it shows its metrics and takes no orders.
fn of_producer(producer: &ProducerTick, flow: &Flow) -> Queue {
    let id = format!("producer:{}", producer.name);
    let stage = flow.stages.iter().find(|stage| stage.id == id);
    let note = "It is redriven on its own machine: `holdfast scada producer redrive`";
    Queue {
        kind: QueueKind::Producer,
        name: format!("outbox of SCADA node {}", producer.name),
        in_per_s: producer
            .published_per_s
            .zip(producer.growth_per_s)
            .map(|(out, more)| (out + more).max(0.0))
            .filter(|_| producer.here),
        out_per_s: producer.published_per_s.filter(|_| producer.here),
        drain_estimate_s: producer.drain_s(),
        breaker: producer.outbox.breaker.filter(|_| producer.here),
        dead: producer.here.then_some(producer.outbox.failed),
        note: Some(note.to_owned()),
        ..queue(id, producer.held(), stage, None)
    }
}

/// The relay, and the bus behind it.
fn of_cloud(cloud: &CloudTick, scope: &Scope, flow: &Flow, queues: &mut Vec<Queue>) {
    let stage = |id: &str| flow.stages.iter().find(|stage| stage.id == id);
    let link = |id: &str| flow.links.iter().find(|link| link.id == id);
    let part = cloud_part(cloud, scope);
    let known = |value: u64| cloud.here.then_some(value);
    queues.push(Queue {
        name: "relay to the bus".to_owned(),
        dead: known(part.relay_dead),
        redrivable: cloud.here,
        in_per_s: part.in_per_s.filter(|_| cloud.here),
        breaker: cloud.breaker.filter(|_| cloud.here),
        ..queue("relay".to_owned(), known(part.waiting), stage("cloud"), link("relay"))
    });
    queues.push(Queue {
        kind: QueueKind::Bus,
        name: format!("consumers ({})", cloud.bus),
        dead: known(part.bus_dead).filter(|_| cloud.bus_dead_letters),
        redrivable: cloud.here,
        in_per_s: part.out_per_s.filter(|_| cloud.here),
        last_failure: trouble(&cloud.consumers).filter(|_| cloud.here),
        ..queue(
            "bus".to_owned(),
            stage("bus").and_then(|stage| stage.held),
            stage("bus"),
            link("store"),
        )
    });
}

/// What a stage and a link say of a queue.
fn queue(id: String, held: Option<u64>, stage: Option<&Stage>, link: Option<&Link>) -> Queue {
    Queue {
        id,
        kind: QueueKind::Relay,
        site: None,
        name: String::new(),
        state: stage.map_or(StageState::Unknown, |stage| stage.state),
        held,
        oldest_age_s: stage.and_then(|stage| stage.oldest_age_s),
        in_per_s: None,
        out_per_s: link.and_then(|link| link.rate_per_s),
        drain_estimate_s: link.and_then(|link| link.drain_estimate_s),
        breaker: None,
        paused_until: None,
        last_failure: None,
        stuck: None,
        dead: None,
        groups: Vec::new(),
        redrivable: false,
        note: None,
    }
}
