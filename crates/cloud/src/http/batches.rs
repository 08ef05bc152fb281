//! `POST /api/v1/sync/batches`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use event::wire::{self, WireError, ZSTD_MAGIC};
use tracing::Instrument as _;

use super::Http;
use super::quota::{Over, Turn};
use super::refused::Refused;
use crate::ingest::reply::Reply;
use crate::ingest::request::{self, BadBatch, Batch};
use crate::ingest::{Committed, Sender};
use crate::tokens::{Caller, Role, Tenants, Token};
use crate::trace::{self, Traceparent};

pub(super) async fn receive(
    State(http): State<Http>,
    Extension(token): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parent = Traceparent::of(&headers);
    let trace = parent.map_or_else(Traceparent::mint, Traceparent::child);
    let span = trace::ingest_batch(trace, parent);
    span.record("token", tracing::field::display(token.id));
    let worked = async {
        let done = http.receive(&token.token, trace, &headers, body).await;
        match &done {
            Ok(_) => {}
            Err(refused) => tracing::info!(
                status = refused.status.as_u16(),
                code = refused.code,
                field = refused.field,
                "batch refused"
            ),
        }
        done
    };
    let mut response = match worked.instrument(span).await {
        Ok(reply) => ([(CONTENT_TYPE, "application/json")], reply).into_response(),
        Err(refused) => refused.into_response(),
    };
    trace.tell(response.headers_mut());
    response
}

impl Http {
    async fn receive(
        &self,
        token: &Arc<Token>,
        trace: Traceparent,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<u8>, Refused> {
        if !matches!(token.role, Role::Edge | Role::Admin) {
            let message = format!("a token of role {} may not write batches", token.role);
            return Err(Refused::new(StatusCode::FORBIDDEN, "forbidden", message));
        }
        let compressed = is_compressed(headers)?;
        self.check_stated_length(headers)?;
        let turn = self.quotas.enter(token.id, Instant::now()).map_err(|over| match over {
            Over::AtOnce => {
                let message = "as many batches of this token as allowed are under way";
                Refused::rate_limited(message, std::time::Duration::from_secs(1))
            }
            Over::Rate(wait) => {
                Refused::rate_limited("this token sends more requests a second than allowed", wait)
            }
        })?;
        let _place = self.places.try_acquire().map_err(|_| {
            Refused::unavailable("busy", "as many batches as allowed are under way: come back")
        })?;
        let _counted = InFlight::new(&self.service.metrics.in_flight);
        let body = self.read(body).await?;
        let batch = self.parse(body, compressed, token).await?;
        tracing::Span::current().record("batch_id", &batch.batch_id);
        self.store(&turn, token, trace, batch).await
    }

    fn too_large(&self) -> Refused {
        let limit = self.service.limits.body.wire_bytes;
        Refused::too_large(format!("the body is more than the limit of {limit} bytes"))
    }

    fn check_stated_length(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let stated: Option<u64> =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        match stated {
            Some(stated) if stated > self.service.limits.body.wire_bytes as u64 => {
                Err(self.too_large())
            }
            _ => Ok(()),
        }
    }

    async fn read(&self, body: Body) -> Result<Bytes, Refused> {
        let limits = &self.service.limits;
        let body = to_bytes(body, limits.body.wire_bytes);
        tokio::time::timeout(limits.body_within, body)
            .await
            // About the link, not about the batch: the sender keeps it and comes again.
            .map_err(|_| Refused::unavailable("slow", "the body did not arrive in time"))?
            .map_err(|_| self.too_large())
    }

    /// Reading a large body takes long enough to hold up other requests: it has a thread for it.
    async fn parse(
        &self,
        body: Bytes,
        compressed: bool,
        token: &Arc<Token>,
    ) -> Result<Batch, Refused> {
        let (limits, token) = (self.service.limits.body, Arc::clone(token));
        let parse = move || parse(&body, compressed, &limits, &token.tenants);
        tokio::task::spawn_blocking(parse).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a body could not be read");
            Err(Refused::unavailable("unavailable", "the body could not be read"))
        })
    }

    async fn store(
        &self,
        turn: &Turn,
        token: &Token,
        trace: Traceparent,
        batch: Batch,
    ) -> Result<Vec<u8>, Refused> {
        let cost = batch.items.len() + batch.tombstones.len();
        turn.take(cost, Instant::now()).map_err(|wait| {
            Refused::rate_limited("this token sends more events a second than allowed", wait)
        })?;
        let sender = Sender { token_id: token.id, trace };
        let committed = self.service.writer.commit(sender, &batch).await.map_err(|error| {
            tracing::warn!(%error, "a batch could not be stored");
            let message = "the cloud cannot store anything at the moment; nothing was taken";
            Refused::unavailable("unavailable", message)
        })?;
        report(&batch, &committed);
        serde_json::to_vec(&Reply::new(&batch, &committed)).map_err(|error| {
            // What is stored stays stored: the sender comes again and finds duplicates.
            tracing::error!(%error, "a reply could not be written");
            Refused::unavailable("unavailable", "the reply could not be written")
        })
    }
}

fn report(batch: &Batch, committed: &Committed) {
    let tally = &committed.tally;
    tracing::info!(
        edge_cluster_id = batch.edge_cluster_id,
        accepted = tally.accepted,
        duplicate = tally.duplicate,
        rejected = tally.rejected.values().sum::<u64>(),
        tombstones = tally.tombstones,
        "batch stored"
    );
    if tally.cloned > 0 {
        tracing::warn!(cloned = tally.cloned, "sequences came with other events than before");
    }
}

fn is_compressed(headers: &HeaderMap) -> Result<bool, Refused> {
    match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(b"zstd") => Ok(true),
        Some(_) => {
            let message = "Content-Encoding is not known: expected zstd, or none";
            Err(Refused::malformed(Some("Content-Encoding"), message))
        }
    }
}

fn parse(
    body: &[u8],
    compressed: bool,
    limits: &wire::Limits,
    tenants: &Tenants,
) -> Result<Batch, Refused> {
    if compressed != body.starts_with(&ZSTD_MAGIC) {
        let message = match compressed {
            true => "the body is not zstd, though Content-Encoding says so",
            false => "the body is zstd, and Content-Encoding does not say so",
        };
        return Err(Refused::malformed(Some("Content-Encoding"), message));
    }
    let json = wire::decode(body, limits).map_err(|error| match error {
        WireError::TooLarge { .. } => Refused::too_large(error.to_string()),
        other => Refused::malformed(None, other.to_string()),
    })?;
    request::parse(&json, limits, tenants).map_err(|bad| {
        let field = bad.field().map(str::to_owned);
        match bad {
            BadBatch::TooMany { .. } => Refused::too_large(bad.to_string()).about(field),
            BadBatch::Malformed { .. } => Refused::malformed(field.as_deref(), bad.to_string()),
        }
    })
}

/// Counts a batch as under way until dropped, however the request ends.
struct InFlight<'a>(&'a metrics::Gauge);

impl<'a> InFlight<'a> {
    fn new(gauge: &'a metrics::Gauge) -> InFlight<'a> {
        gauge.increment(1.0);
        InFlight(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
