//! What is asked of sessions: parameters, headers and bodies, read strictly. Pure.

use api::Refused;
use axum::http::HeaderMap;
use jiff::Timestamp;

use super::create::NewSession;
use super::finish::{Cancel, Finalize};
use super::look::Filter;
use crate::http::ask::{limit, parse, unknown};
use crate::http::fields::{Fields, to_microsecond};

/// Rows of a page unless something else is asked for.
const PAGE: u32 = 50;
/// The most rows of a page.
const MAX_PAGE: u32 = 500;
/// The longest key.
const MAX_KEY_BYTES: usize = 128;
/// The longest reason of a cancellation.
const MAX_REASON_CHARS: usize = 200;
/// The header that makes a creation one.
const KEY: &str = "Idempotency-Key";

/// Reads the parameters of the list.
pub(super) fn filter(query: &str) -> Result<Filter, Refused> {
    let mut filter = Filter { limit: PAGE, ..Filter::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "tenant_id" => filter.tenant_id = Some(parse(&name, &value)?),
            "farm_id" => filter.farm_id = Some(parse(&name, &value)?),
            "barn_id" => filter.barn_id = Some(parse(&name, &value)?),
            "device_id" => filter.device_id = Some(parse(&name, &value)?),
            "batch_id" => filter.batch_id = Some(parse(&name, &value)?),
            "status" => filter.status = Some(parse(&name, &value)?),
            "since" => filter.since = Some(parse(&name, &value)?),
            "until" => filter.until = Some(parse(&name, &value)?),
            "after" => filter.after = Some(parse(&name, &value)?),
            "limit" => filter.limit = limit(parse(&name, &value)?, MAX_PAGE)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(filter)
}

/// Reads a creation.
pub(super) fn new_session(
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<NewSession, Refused> {
    let mut keys = headers.get_all(KEY).iter();
    let key = keys.next().filter(|_| keys.next().is_none()).and_then(|key| key.to_str().ok());
    let sound = |key: &&str| {
        (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
    };
    let key = key.filter(sound).ok_or_else(|| {
        let message = format!(
            "the header {KEY} is needed, once: 1 to {MAX_KEY_BYTES} visible ASCII characters, \
             the same when the request is repeated"
        );
        Refused::malformed(Some(KEY), message)
    })?;
    let fields = Fields::read(
        body,
        &[
            "tenant_id",
            "farm_id",
            "barn_id",
            "device_id",
            "batch_id",
            "initial_weight_kg",
            "start_at",
        ],
    )?;
    Ok(NewSession {
        tenant_id: fields.id("tenant_id")?,
        farm_id: fields.id("farm_id")?,
        barn_id: fields.id("barn_id")?,
        device_id: fields.id("device_id")?,
        batch_id: fields.maybe_id("batch_id")?,
        initial_weight_kg: fields.number("initial_weight_kg")?,
        start_at: fields.maybe_time("start_at")?.unwrap_or_else(|| to_microsecond(now)),
        trace_id: fields.trace_id()?,
        key: key.to_owned(),
        digest: fields.digest(),
    })
}

/// Reads a finalization.
pub(super) fn finalize(body: &[u8]) -> Result<Finalize, Refused> {
    let fields = Fields::read(body, &["final_weight_kg", "end_at", "inference_result_id"])?;
    Ok(Finalize {
        final_weight_kg: fields.number("final_weight_kg")?,
        end_at: fields.maybe_time("end_at")?,
        result: fields.maybe_id("inference_result_id")?,
        trace_id: fields.trace_id()?,
    })
}

/// Reads a cancellation; an empty body gives no reason.
pub(super) fn cancel(body: &[u8]) -> Result<Cancel, Refused> {
    let fields = Fields::read(if body.is_empty() { b"{}" } else { body }, &["reason", "end_at"])?;
    Ok(Cancel {
        reason: fields.maybe_text("reason", MAX_REASON_CHARS)?,
        end_at: fields.maybe_time("end_at")?,
        trace_id: fields.trace_id()?,
    })
}
