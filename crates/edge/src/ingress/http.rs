//! Backfill over HTTP.
//!
//! Promises: nothing is read before the sender is known and there is a place for it; no more is
//! read than the limit; the ack follows the commit. A secret is compared in constant time, and
//! never logged. The code behind it is the same as for MQTT.

use std::sync::Arc;
use std::time::Duration;

use api::Refused;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use event::id::NodeId;
use event::names::Topic;
use event::wire::{Batch, Limits, WireError, decode};
use tokio::sync::Semaphore;

use super::acknowledge::Uplink;
use super::check::Content;
use super::write::{Error, Writer};
use super::{Incoming, Reason, Source};
use crate::metrics::Metrics;
use crate::registry::SecretHash;

/// How long a body may take to arrive; a slow sender must not keep a place.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// How long a sender waits when every place is taken.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// What the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) writer: Writer,
    pub(crate) uplink: Arc<Uplink>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) places: Arc<Semaphore>,
}

impl Http {
    /// The one route, which knows its senders by their own secrets.
    pub(crate) fn router(self) -> Router {
        Router::new().route("/api/v1/nodes/{node_id}/backfill", post(backfill)).with_state(self)
    }
}

fn unauthorized() -> Refused {
    Refused::unauthorized("expected Authorization: Bearer with the node's secret")
}

fn too_large(limit: usize) -> Refused {
    Refused::too_large(format!("the body is more than the limit of {limit} bytes"))
}

/// The database is away, or we are wrong: both are an outage for the node, which keeps what it has.
fn unavailable(error: &Error) -> Refused {
    tracing::warn!(%error, "backfill could not be stored");
    let message = "the edge cannot store anything at the moment; nothing was taken";
    Refused::unavailable("unavailable", message)
}

async fn backfill(
    State(http): State<Http>,
    Path(node): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match http.backfill(&node, &headers, body).await {
        Ok(ack) => ([(CONTENT_TYPE, "application/json")], ack).into_response(),
        Err(refused) => {
            http.metrics.upload_refused(refused.status.as_str());
            refused.into_response()
        }
    }
}

impl Http {
    async fn backfill(
        &self,
        node: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<String, Refused> {
        let node: NodeId = node.parse().map_err(|_| unauthorized())?;
        self.authorize(&node, headers).await?;
        let limits = Source::Http.limits();
        let stated =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if stated.is_some_and(|stated: usize| stated > limits.wire_bytes) {
            return Err(too_large(limits.wire_bytes));
        }
        let _place = self.places.try_acquire().map_err(|_| {
            let message = "as many uploads as allowed are under way: come back later";
            Refused::new(StatusCode::TOO_MANY_REQUESTS, "busy", message).after(BUSY_WAIT)
        })?;
        let body = tokio::time::timeout(BODY_WITHIN, to_bytes(body, limits.wire_bytes))
            .await
            .map_err(|_| {
                Refused::new(StatusCode::BAD_REQUEST, "slow", "the body did not arrive in time")
            })?
            .map_err(|_| too_large(limits.wire_bytes))?;
        self.metrics.message("http");
        let topic = Topic::Backfill(node.clone()).to_string();
        let incoming = Incoming::new(Source::Http, topic, body);
        self.store(&incoming, &limits).await
    }

    async fn store(&self, incoming: &Incoming, limits: &Limits) -> Result<String, Refused> {
        let writer = &self.writer;
        let checked = writer.check(incoming).await.map_err(|error| unavailable(&error))?;
        let refusal = checked.refusal().cloned();
        let epoch = match &checked.content {
            Content::Batch { epoch, .. } => Some(*epoch),
            _ => None,
        };
        // A refused message is put in quarantine too, before the sender is told.
        let committed = writer.commit(&[checked]).await.map_err(|error| unavailable(&error))?;
        self.uplink.publish(&committed.acks);
        match refusal {
            None => {}
            Some(refusal)
                if matches!(refusal.reason, Reason::UnknownNode | Reason::DisabledNode) =>
            {
                return Err(Refused::new(StatusCode::FORBIDDEN, "not_allowed", refusal.detail));
            }
            Some(refusal) => return Err(unreadable(incoming, limits, refusal.detail)),
        }
        let ack = committed.acks.iter().find(|(_, ack)| Some(ack.epoch) == epoch);
        ack.map(|(_, ack)| ack.to_json()).ok_or_else(|| {
            let message = "the sequences leave more holes than the ledger keeps";
            Refused::new(StatusCode::BAD_REQUEST, "too_many_islands", message)
        })
    }

    /// 401 for a secret that nobody has, 403 for one that belongs to another node or to one that
    /// was shut out.
    async fn authorize(&self, node: &NodeId, headers: &HeaderMap) -> Result<(), Refused> {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret = header.and_then(|text| text.strip_prefix("Bearer "));
        let presented = SecretHash::of(secret.ok_or_else(unauthorized)?);
        let registry = self.writer.registry();
        let unavailable = |error| unavailable(&Error::Registry(error));
        let known = registry.find(node).await.map_err(unavailable)?;
        if known.is_some_and(|entry| entry.secret.matches(&presented) && !entry.disabled) {
            return Ok(());
        }
        // What is remembered may be older than a rotation.
        let known = registry.read(node).await.map_err(unavailable)?;
        match known {
            Some(entry) if entry.secret.matches(&presented) && !entry.disabled => Ok(()),
            Some(entry) if entry.secret.matches(&presented) => {
                Err(Refused::new(StatusCode::FORBIDDEN, "disabled", "this node has been shut out"))
            }
            _ => match registry.find_by_secret(&presented).await.map_err(unavailable)? {
                Some(_) => {
                    let message = "this secret belongs to another node";
                    Err(Refused::new(StatusCode::FORBIDDEN, "other_node", message))
                }
                None => Err(unauthorized()),
            },
        }
    }
}

/// What is wrong with a batch that cannot be read, with its field. It is read once more for that:
/// it is seldom, and bounded.
fn unreadable(incoming: &Incoming, limits: &Limits, detail: String) -> Refused {
    let error = match decode(&incoming.body, limits) {
        Ok(json) => Batch::parse(&json, limits).err(),
        Err(error) => Some(error),
    };
    let status = match error {
        Some(WireError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    };
    let code = error.as_ref().map_or("unreadable", WireError::code);
    let field = error.as_ref().and_then(|error| error.field().map(str::to_owned));
    Refused::new(status, code, detail).about(field)
}
