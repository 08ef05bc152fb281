//! What is asked of media: parameters and bodies, read strictly. Pure.

use api::Refused;
use api::tokens::{Tenants, Token};
use event::id::TenantId;
use event::names::s3::Ext;
use jiff::{SignedDuration, Timestamp};

use super::create::NewMedia;
use super::look::Filter;
use crate::http::ask::{limit, parse, unknown};
use crate::http::fields::Fields;

/// Rows of a page unless something else is asked for.
const PAGE: u32 = 50;
/// The most rows of a page.
const MAX_PAGE: u32 = 500;
/// A camera whose clock is further ahead is not believed.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// The states a list can be asked for.
const STATES: [&str; 4] = ["pending", "stored", "missing", "deleted"];

/// Reads a request for a place.
pub(super) fn new_media(
    body: &[u8],
    token: &Token,
    max_size: u64,
    now: Timestamp,
) -> Result<NewMedia, Refused> {
    let fields = Fields::read(
        body,
        &[
            "tenant_id",
            "farm_id",
            "barn_id",
            "device_id",
            "session_id",
            "mime_type",
            "size_bytes",
            "sha256",
            "captured_at",
            "ext",
        ],
    )?;
    let mime_type = fields.text("mime_type", 127)?;
    let kinds = Ext::ALL.map(Ext::mime_type).join(", ");
    let ext = Ext::from_mime_type(&mime_type).ok_or_else(|| {
        Refused::malformed(Some("mime_type"), format!("mime_type is not taken: expected {kinds}"))
    })?;
    if let Some(named) = fields.maybe_text("ext", 8)? {
        let same = named.parse::<Ext>().is_ok_and(|named| named == ext);
        if !same {
            let message = format!("ext is none of {mime_type}: expected {}", ext.as_str());
            return Err(Refused::malformed(Some("ext"), message));
        }
    }
    let captured_at = fields.maybe_time("captured_at")?.ok_or_else(|| {
        Refused::malformed(Some("captured_at"), "captured_at is missing: expected a time")
    })?;
    if captured_at.duration_since(now) > AHEAD {
        let message = "captured_at is more than a day ahead: set the camera's clock";
        return Err(Refused::malformed(Some("captured_at"), message));
    }
    Ok(NewMedia {
        tenant: tenant(fields.maybe_id("tenant_id")?, &token.tenants)?,
        farm: fields.id("farm_id")?,
        barn: fields.id("barn_id")?,
        device: fields.id("device_id")?,
        session: fields.maybe_id("session_id")?,
        ext,
        size: size(&fields, max_size)?,
        sha256: fields.maybe_text("sha256", 64)?.map(|text| sha256(&text)).transpose()?,
        captured_at,
    })
}

/// Who sends need not say whose it is when there is only one.
fn tenant(named: Option<TenantId>, tenants: &Tenants) -> Result<TenantId, Refused> {
    match (named, tenants) {
        (Some(tenant), _) => Ok(tenant),
        (None, Tenants::Only(list)) if list.len() == 1 => Ok(list[0]),
        (None, _) => {
            let message = "tenant_id is missing: this token has several tenants";
            Err(Refused::malformed(Some("tenant_id"), message))
        }
    }
}

fn size(fields: &Fields, max_size: u64) -> Result<u64, Refused> {
    let size = fields.number("size_bytes")?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "the limit is far below what a float counts exactly"
    )]
    let most = max_size as f64;
    if size.fract() != 0.0 || size < 1.0 || size > most {
        let message = format!("size_bytes must be a whole number from 1 to {max_size}");
        return Err(Refused::malformed(Some("size_bytes"), message));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(size as u64)
}

fn sha256(text: &str) -> Result<[u8; 32], Refused> {
    let digits = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let byte = |at: usize| {
        let two = text.get(2 * at..2 * at + 2)?;
        u8::from_str_radix(two, 16).ok()
    };
    let mut hash = [0; 32];
    for (at, place) in hash.iter_mut().enumerate() {
        *place = byte(at).filter(|_| digits).ok_or_else(|| {
            Refused::malformed(Some("sha256"), "sha256 must be 64 lower-case hexadecimal digits")
        })?;
    }
    Ok(hash)
}

/// Reads the parameters of the list.
pub(super) fn filter(query: &str) -> Result<Filter, Refused> {
    let mut filter = Filter { limit: PAGE, ..Filter::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "tenant_id" => filter.tenant = Some(parse(&name, &value)?),
            "device_id" => filter.device = Some(parse(&name, &value)?),
            "session_id" => filter.session = Some(parse(&name, &value)?),
            "status" => filter.status = Some(status(&value)?),
            "since" => filter.since = Some(parse(&name, &value)?),
            "until" => filter.until = Some(parse(&name, &value)?),
            "after" => filter.after = Some(parse(&name, &value)?),
            "limit" => filter.limit = limit(parse(&name, &value)?, MAX_PAGE)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(filter)
}

fn status(text: &str) -> Result<&'static str, Refused> {
    let found = STATES.into_iter().find(|state| *state == text);
    let message = || format!("status is none of {}", STATES.join(", "));
    found.ok_or_else(|| Refused::malformed(Some("status"), message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(sha256(&text).unwrap()[..2], [0, 255]);
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"G".repeat(64), &"A".repeat(64)] {
            assert!(sha256(text).is_err(), "{text}");
        }
        assert!(sha256(&"é".repeat(32)).is_err());
    }

    #[test]
    fn a_filter_is_read_strictly() {
        for query in ["status=lost", "limit=0", "limit=501", "session_id=../x", "sesion_id=x"] {
            assert!(filter(query).is_err(), "{query}");
        }
        assert_eq!(filter("status=stored&limit=500").unwrap().status, Some("stored"));
    }
}
