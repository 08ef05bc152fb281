//! Readings that come in by token: the body, and each reading judged. Storing them is ingress's own.

use api::Refused;
use api::tokens::Token;
use event::id::TenantId;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ask::tenant;
use crate::http::trace::Trace;
use crate::ingress::Checked;
use crate::ingress::check::check_reading;
use crate::ingress::notice::trace_id;

/// The largest body.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;
/// The most readings of a request.
const MAX_READINGS: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    readings: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named {
    tenant_id: Option<TenantId>,
}

/// Reads a body; one reading that breaks a rule refuses it whole, and the refusal names the reading and the field.
/// One that names no trace gets the request's.
pub(super) fn read(token: &Token, body: &[u8], trace: Trace) -> Result<Vec<Checked>, Refused> {
    let trace = trace.id();
    let body: Body<'_> = serde_json::from_slice(body).map_err(|error| {
        // The library's words name the field; a value in them is the sender's own.
        Refused::malformed(Some("readings"), format!("the body cannot be read: {error}"))
    })?;
    if !(1..=MAX_READINGS).contains(&body.readings.len()) {
        let message = format!("expected 1 to {MAX_READINGS} readings");
        return Err(Refused::malformed(Some("readings"), message));
    }
    let checked = body.readings.iter().enumerate().map(|(index, raw)| {
        let named: Option<TenantId> =
            serde_json::from_str::<Named>(raw.get()).ok().and_then(|named| named.tenant_id);
        let tenant = tenant(token, named).map_err(|refused| {
            let field = format!("readings[{index}].tenant_id");
            refused.about(Some(field))
        })?;
        check_reading(raw.get(), tenant, &trace).map_err(|invalid| {
            let field = format!("readings[{index}].{}", invalid.field);
            // Without a trace of its own the reading is in the request's, and the span names that.
            let trace_id = trace_id(raw.get().as_bytes());
            tracing::info!(field, trace_id, "a reading is refused");
            Refused::malformed(Some(&field), invalid.to_string())
        })
    });
    checked.collect()
}
