//! What is asked of inference: parameters and bodies, read strictly. Pure.

use api::Refused;
use jiff::Timestamp;

use super::jobs::JobFilter;
use super::look::Filter;
use super::model::{MAX_MODEL_CHARS, MAX_SIZE_CHARS, Prediction};
use super::results::NewResult;
use crate::http::ask::{limit, parse, unknown, word};
use crate::http::fields::{Fields, to_microsecond};

/// Rows of a page unless something else is asked for.
const PAGE: u32 = 50;
/// The most rows of a page.
const MAX_PAGE: u32 = 500;

/// Reads the parameters of the list of results.
pub(super) fn filter(query: &str) -> Result<Filter, Refused> {
    let mut filter = Filter { limit: PAGE, ..Filter::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "tenant_id" => filter.tenant_id = Some(parse(&name, &value)?),
            "session_id" => filter.session_id = Some(parse(&name, &value)?),
            "media_id" => filter.media_id = Some(parse(&name, &value)?),
            "device_id" => filter.device_id = Some(parse(&name, &value)?),
            "model_version" => filter.model_version = Some(word(&name, &value)?),
            "since" => filter.since = Some(parse(&name, &value)?),
            "until" => filter.until = Some(parse(&name, &value)?),
            "after" => filter.after = Some(parse(&name, &value)?),
            "limit" => filter.limit = limit(parse(&name, &value)?, MAX_PAGE)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(filter)
}

/// Reads the parameters of the list of jobs.
pub(super) fn job_filter(query: &str) -> Result<JobFilter, Refused> {
    let mut filter = JobFilter { limit: PAGE, ..JobFilter::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "tenant_id" => filter.tenant_id = Some(parse(&name, &value)?),
            "status" => match &*value {
                "pending" | "claimed" | "dlq" => filter.status = Some(value.into_owned()),
                _ => {
                    let message = "status cannot be read: expected pending, claimed or dlq";
                    return Err(Refused::malformed(Some("status"), message));
                }
            },
            "after" => filter.after = Some(parse(&name, &value)?),
            "limit" => filter.limit = limit(parse(&name, &value)?, MAX_PAGE)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(filter)
}

/// Reads a result.
pub(super) fn new_result(body: &[u8], now: Timestamp) -> Result<NewResult, Refused> {
    let fields = Fields::read(
        body,
        &[
            "inference_result_id",
            "tenant_id",
            "session_id",
            "media_id",
            "farm_id",
            "barn_id",
            "device_id",
            "predicted_weight_kg",
            "predicted_size",
            "confidence",
            "model_version",
            "occurred_at",
        ],
    )?;
    let confidence = fields.number("confidence")?;
    if !(0.0..=1.0).contains(&confidence) {
        let message = "confidence is not understood: expected a number from 0 to 1";
        return Err(Refused::malformed(Some("confidence"), message));
    }
    Ok(NewResult {
        id: fields.id("inference_result_id")?,
        tenant_id: fields.id("tenant_id")?,
        session_id: fields.maybe_id("session_id")?,
        media_id: fields.maybe_id("media_id")?,
        farm_id: fields.maybe_id("farm_id")?,
        barn_id: fields.maybe_id("barn_id")?,
        device_id: fields.maybe_id("device_id")?,
        prediction: Prediction {
            predicted_weight_kg: fields.number("predicted_weight_kg")?,
            predicted_size: fields.maybe_text("predicted_size", MAX_SIZE_CHARS)?,
            confidence,
            model_version: fields.text("model_version", MAX_MODEL_CHARS)?,
        },
        occurred_at: fields.maybe_time("occurred_at")?.unwrap_or_else(|| to_microsecond(now)),
        trace_id: fields.trace_id()?,
        digest: fields.digest(),
        only_first: false,
    })
}
