//! For operators and their console: how the cloud stands, dead letters by cause, and sending them back.
//!
//! Promises: a token sees its tenants only; what changes something needs the role operator or admin and is recorded in `operator_audit`; bodies of
//! messages are never shown. docs/spec/cloud-api.md lists the routes.

mod copies;
mod letters;
mod tally;

use std::time::Duration;

use api::tokens::{Caller, Role, Tenants, Token};
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use event::id::{EventId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Http;
use super::refused::Refused;
use crate::dead_letters::audit::Actor;
use crate::relay::{self, MAX_REDRIVE, Selection};
use tally::BusDead;

/// The largest body: a thousand ids, with room.
const MAX_BODY_BYTES: usize = 256 << 10;
/// The most ids that one call names.
const MAX_IDS: usize = 1_000;
/// How old the number of a broker's dead letters may get in the summary.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// This part of the OpenAPI document: `paths` and `components.schemas`.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

type Asker = Extension<Caller>;
type Answer = Result<Json<Value>, Refused>;

/// Adds the routes.
pub(super) fn routes(router: Router<Http>) -> Router<Http> {
    copies::routes(router)
        .route("/api/v1/summary", get(summary))
        .route("/api/v1/relay/dead-letters", get(relay_dead_letters))
        .route("/api/v1/relay/redrive", post(redrive))
        .route("/api/v1/dead-letters", get(letters::list))
        .route("/api/v1/dead-letters/replay", post(letters::replay))
        .route("/api/v1/dead-letters/replays/{id}", get(letters::progress))
}

fn may_look(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Edge => {
            Err(Refused::forbidden("a token of role edge may not read: use one of role viewer"))
        }
        Role::Admin | Role::Operator | Role::Viewer => Ok(()),
    }
}

fn may_act(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator => Ok(()),
        Role::Edge | Role::Viewer => {
            Err(Refused::forbidden("this needs the role operator or admin"))
        }
    }
}

fn unavailable(error: pg::Error) -> Refused {
    super::query::unavailable(&error)
}

async fn summary(State(http): State<Http>, Extension(token): Asker) -> Answer {
    may_look(&token)?;
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let desk = http.service.letters.as_ref();
    let looked = desk.and_then(|desk| {
        desk.refresh(LOOK_EVERY);
        desk.last()
    });
    let bus_dead = match (desk, &looked) {
        (None, _) => BusDead::Rows,
        (Some(_), Some(look)) => BusDead::Looked(look),
        (Some(_), None) => BusDead::Unknown,
    };
    let tenants = tally::tenants(&client, &token.tenants, bus_dead).await.map_err(unavailable)?;
    let counted = !matches!(bus_dead, BusDead::Unknown);
    let bus = http.service.bus;
    let behind = http.service.behind.known(matches!(token.tenants, Tenants::All));
    Ok(Json(json!({
        "tenants": tenants, "bus": bus, "bus_dead_letters": counted, "consumers": behind,
    })))
}

async fn relay_dead_letters(State(http): State<Http>, Extension(token): Asker) -> Answer {
    may_look(&token)?;
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let groups = tally::relay_groups(&client, &token.tenants).await.map_err(unavailable)?;
    Ok(Json(json!({"groups": groups})))
}

/// Which dead letters; all that is given must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    #[serde(default)]
    ids: Vec<String>,
    reason: Option<String>,
    tenant_id: Option<TenantId>,
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
    per_second: Option<u32>,
    #[serde(default)]
    dry_run: bool,
}

impl Meant {
    /// Reads a body, and makes sure that it names something of the token's own.
    async fn read(token: &Token, body: Body) -> Result<Meant, Refused> {
        may_act(token)?;
        let bytes = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| {
            Refused::too_large(format!("the body is more than {MAX_BODY_BYTES} bytes"))
        })?;
        let meant: Meant = serde_json::from_slice(&bytes).map_err(|_| {
            let expected =
                "expected {\"reason\", \"tenant_id\", \"ids\" or \"all\", \"limit\", \"dry_run\"}";
            Refused::malformed(None, expected)
        })?;
        let narrowed = !meant.ids.is_empty() || meant.reason.is_some() || meant.tenant_id.is_some();
        if !narrowed && !meant.all {
            let message = "say which: ids, reason or tenant_id; or all for every one";
            return Err(Refused::malformed(Some("all"), message));
        }
        if meant.ids.len() > MAX_IDS {
            return Err(Refused::malformed(Some("ids"), format!("at most {MAX_IDS} ids")));
        }
        if meant.limit.is_some_and(|limit| !(1..=MAX_REDRIVE).contains(&limit)) {
            let message = format!("limit must be from 1 to {MAX_REDRIVE}");
            return Err(Refused::malformed(Some("limit"), message));
        }
        let about = Some("tenant_id".to_owned());
        match (meant.tenant_id, &token.tenants) {
            (Some(tenant), tenants) if !tenants.allow(tenant) => {
                let message = "tenant_id is not among the tenants of this token";
                Err(Refused::forbidden(message).about(about))
            }
            (None, Tenants::Only(_)) => {
                let message = "tenant_id is missing: this token is not good for all of them";
                Err(Refused::malformed(None, message).about(about))
            }
            _ => Ok(meant),
        }
    }

    fn limit(&self) -> u32 {
        self.limit.unwrap_or(MAX_REDRIVE)
    }

    fn tenant(&self) -> Option<Uuid> {
        self.tenant_id.map(TenantId::uuid)
    }

    fn by_cause(&self, matched: u64) -> Value {
        match &self.reason {
            Some(reason) => json!({reason: matched}),
            None => json!({}),
        }
    }
}

async fn redrive(State(http): State<Http>, Extension(token): Asker, body: Body) -> Answer {
    let meant = Meant::read(&token, body).await?;
    let event = |id: &String| id.parse::<EventId>().map(EventId::uuid);
    let ids: Result<Vec<Uuid>, _> = meant.ids.iter().map(event).collect();
    let ids = ids.map_err(|_| Refused::malformed(Some("ids"), "expected ids of events"))?;
    let selection = Selection {
        event_ids: (!ids.is_empty()).then_some(ids),
        reason: meant.reason.clone(),
        tenant: meant.tenant(),
        ..Selection::default()
    };
    let client = http.service.pool.get().await.map_err(unavailable)?;
    let actor = Actor::from(&token);
    let done = relay::redrive(&client, &actor, &selection, meant.limit(), meant.dry_run).await;
    let done = done.map_err(unavailable)?;
    let by_cause = meant.by_cause(done.matched);
    Ok(Json(json!({"matched": done.matched, "changed": done.changed, "by_cause": by_cause})))
}
