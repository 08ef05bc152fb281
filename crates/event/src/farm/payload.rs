//! The documented payload fields of the core event types, and of one that is not core.
//!
//! | type | fields |
//! |---|---|
//! | `telemetry.ingested` | `metric_type`, `metric_value`, `unit`; optional `quality`, `clock` (`"unset"`) |
//! | `telemetry.aggregated` | `metric_type`, `aggregation_window` (`1m`, `1h`, `1d`), `avg_value`, `min_value`, `max_value`, `unit` |
//! | `weighvision.session.created` | `status` (`"created"`), `initial_weight_kg`; `batch_id` or null |
//! | `weighvision.session.finalized` | `status` (`"finalized"`), `final_weight_kg`, `image_count`; `inference_result_id` or null |
//! | `weighvision.session.cancelled` (not core) | `status` (`"cancelled"`); `reason` (1 to 200 characters) or null |
//! | `media.stored` | `media_id`, `path`, `mime_type`, `size_bytes` |
//! | `inference.completed` | `inference_result_id`, `predicted_weight_kg`, `confidence` (0 to 1), `model_version` |
//! | `sync.batch.sent` | `batch_id`, `event_count`, `edge_cluster_id` |
//! | `sync.batch.acked` | `batch_id`, `event_count`, `status` (`"acked"`) |
//!
//! Fields that are not named here pass as they are. `batch_id` is a UUID where it names a batch of
//! animals, and free text where it names a batch of events.

use serde_json::value::RawValue;

use super::EventType;
use super::rules::{self, accept, is_label, is_visible};
use crate::id::{BatchId, InferenceResultId, MediaId};
use crate::{Invalid, QualityCode, json};

/// The largest count or size: what a `bigint` holds.
const MAX_COUNT: u64 = i64::MAX.cast_unsigned();

/// The payload of `telemetry.ingested`.
#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// What was measured, such as `temperature`.
    pub metric_type: String,
    /// The measured value; finite.
    pub metric_value: f64,
    /// The unit of the value.
    pub unit: String,
    /// How far the value can be trusted, where the sampler said so.
    pub quality: Option<QualityCode>,
    /// The node's clock was not known to be set when it stamped the sample.
    pub clock_unset: bool,
}

impl Telemetry {
    pub(super) fn parse(payload: &RawValue) -> Result<Telemetry, Invalid> {
        let [metric_type, metric_value, unit, quality, clock] = json::pick(
            "payload",
            payload,
            &["metric_type", "metric_value", "unit", "quality", "clock"],
        )?;
        let metric_type =
            checked("payload.metric_type", metric_type, rules::METRIC_TYPE, rules::metric_type)?;
        let metric_value = json::finite("payload.metric_value", metric_value)?;
        let unit = checked("payload.unit", unit, rules::UNIT, rules::unit)?;
        let quality = quality
            .map(|raw| {
                let text = json::text("payload.quality", Some(raw), QualityCode::EXPECTED)?;
                text.parse().map_err(|err| Invalid { field: "payload.quality".into(), ..err })
            })
            .transpose()?;
        if clock.is_some() {
            literal("payload.clock", clock, "unset")?;
        }
        Ok(Telemetry { metric_type, metric_value, unit, quality, clock_unset: clock.is_some() })
    }
}

/// Checks the documented fields of a type; one that is not in the table has none.
pub(super) fn check(event_type: &EventType, payload: &RawValue) -> Result<(), Invalid> {
    match event_type.as_str() {
        "telemetry.ingested" => Telemetry::parse(payload).map(drop),
        "telemetry.aggregated" => aggregated(payload),
        "weighvision.session.created" => session_created(payload),
        "weighvision.session.finalized" => session_finalized(payload),
        "weighvision.session.cancelled" => session_cancelled(payload),
        "media.stored" => media_stored(payload),
        "inference.completed" => inference_completed(payload),
        "sync.batch.sent" => batch_sent(payload),
        "sync.batch.acked" => batch_acked(payload),
        _ => json::pick("payload", payload, &[]).map(|[]| ()),
    }
}

fn aggregated(payload: &RawValue) -> Result<(), Invalid> {
    let [metric_type, window, avg, min, max, unit] = json::pick(
        "payload",
        payload,
        &["metric_type", "aggregation_window", "avg_value", "min_value", "max_value", "unit"],
    )?;
    checked("payload.metric_type", metric_type, rules::METRIC_TYPE, rules::metric_type)?;
    const WINDOW: &str = "a window such as 1m, 1h or 1d";
    checked("payload.aggregation_window", window, WINDOW, |field, text| {
        let digits = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or_default();
        let sound = (1..=4).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !digits.starts_with('0');
        accept(sound, field, text, WINDOW)
    })?;
    json::finite("payload.avg_value", avg)?;
    json::finite("payload.min_value", min)?;
    json::finite("payload.max_value", max)?;
    checked("payload.unit", unit, rules::UNIT, rules::unit).map(drop)
}

fn session_created(payload: &RawValue) -> Result<(), Invalid> {
    let [status, batch_id, weight] =
        json::pick("payload", payload, &["status", "batch_id", "initial_weight_kg"])?;
    literal("payload.status", status, "created")?;
    json::optional_id::<BatchId>("payload.batch_id", batch_id)?;
    json::finite("payload.initial_weight_kg", weight).map(drop)
}

fn session_finalized(payload: &RawValue) -> Result<(), Invalid> {
    let [status, weight, images, result] = json::pick(
        "payload",
        payload,
        &["status", "final_weight_kg", "image_count", "inference_result_id"],
    )?;
    literal("payload.status", status, "finalized")?;
    json::finite("payload.final_weight_kg", weight)?;
    json::integer("payload.image_count", images, 0, MAX_COUNT)?;
    json::optional_id::<InferenceResultId>("payload.inference_result_id", result).map(drop)
}

fn session_cancelled(payload: &RawValue) -> Result<(), Invalid> {
    let [status, reason] = json::pick("payload", payload, &["status", "reason"])?;
    literal("payload.status", status, "cancelled")?;
    if reason.is_some() { label("payload.reason", reason, 200) } else { Ok(()) }
}

fn media_stored(payload: &RawValue) -> Result<(), Invalid> {
    let [media_id, path, mime_type, size] =
        json::pick("payload", payload, &["media_id", "path", "mime_type", "size_bytes"])?;
    json::id::<MediaId>("payload.media_id", media_id)?;
    label("payload.path", path, 1024)?;
    const MIME: &str = "a media type such as image/jpeg";
    checked("payload.mime_type", mime_type, MIME, |field, text| {
        let part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-_".contains(&b))
        };
        let sound = text.len() <= 127
            && text.split_once('/').is_some_and(|(kind, sub)| part(kind) && part(sub));
        accept(sound, field, text, MIME)
    })?;
    json::integer("payload.size_bytes", size, 0, MAX_COUNT).map(drop)
}

fn inference_completed(payload: &RawValue) -> Result<(), Invalid> {
    let [result, weight, confidence, model] = json::pick(
        "payload",
        payload,
        &["inference_result_id", "predicted_weight_kg", "confidence", "model_version"],
    )?;
    json::id::<InferenceResultId>("payload.inference_result_id", result)?;
    json::finite("payload.predicted_weight_kg", weight)?;
    let value = json::finite("payload.confidence", confidence)?;
    let sound = (0.0..=1.0).contains(&value);
    accept(sound, "payload.confidence", &value.to_string(), "a number from 0 to 1")?;
    label("payload.model_version", model, 128)
}

fn batch_sent(payload: &RawValue) -> Result<(), Invalid> {
    let [batch_id, count, cluster] =
        json::pick("payload", payload, &["batch_id", "event_count", "edge_cluster_id"])?;
    visible("payload.batch_id", batch_id)?;
    json::integer("payload.event_count", count, 0, MAX_COUNT)?;
    visible("payload.edge_cluster_id", cluster)
}

fn batch_acked(payload: &RawValue) -> Result<(), Invalid> {
    let [batch_id, count, status] =
        json::pick("payload", payload, &["batch_id", "event_count", "status"])?;
    visible("payload.batch_id", batch_id)?;
    json::integer("payload.event_count", count, 0, MAX_COUNT)?;
    literal("payload.status", status, "acked")
}

fn checked(
    field: &str,
    raw: Option<&RawValue>,
    expected: &str,
    rule: impl Fn(&str, &str) -> Result<(), Invalid>,
) -> Result<String, Invalid> {
    let text = json::text(field, raw, expected)?;
    rule(field, &text)?;
    Ok(text.into_owned())
}

fn literal(field: &str, raw: Option<&RawValue>, wanted: &str) -> Result<(), Invalid> {
    let expected = format!("\"{wanted}\"");
    let text = json::text(field, raw, &expected)?;
    accept(text == wanted, field, &text, &expected)
}

fn label(field: &str, raw: Option<&RawValue>, max: usize) -> Result<(), Invalid> {
    let expected = format!("1 to {max} characters, no control characters");
    let text = json::text(field, raw, &expected)?;
    accept(is_label(&text, max), field, &text, &expected)
}

fn visible(field: &str, raw: Option<&RawValue>) -> Result<(), Invalid> {
    const EXPECTED: &str = "1 to 128 visible ASCII characters";
    let text = json::text(field, raw, EXPECTED)?;
    accept(is_visible(&text, 128), field, &text, EXPECTED)
}
