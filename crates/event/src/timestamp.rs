//! The timestamps that envelopes carry.
//!
//! The library that does the arithmetic also reads looser forms (a space for the `T`, a bare hour, a
//! zone in brackets). A contract that other people's services rely on should not, so the form is
//! checked first.

use jiff::Timestamp;

use crate::Invalid;

const EXPECTED: &str = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
const EXPECTED_UTC: &str = "an ISO 8601 time in UTC, such as 2026-02-01T10:00:00Z";

/// The first second of year 1. An earlier instant cannot be written with a four-digit year.
const YEAR_ONE: i64 = -62_135_596_800;

/// Reads an RFC 3339 time with an offset: `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`, with at most nine
/// digits of fraction, from year 1 to year 9999. `field` names it in an error.
pub fn rfc3339(field: &str, text: &str) -> Result<Timestamp, Invalid> {
    let fault = || Invalid::value(field, text, EXPECTED);
    if offset_of(text).is_none() {
        return Err(fault());
    }
    let timestamp: Timestamp = text.parse().map_err(|_| fault())?;
    if timestamp.as_second() < YEAR_ONE {
        return Err(fault());
    }
    Ok(timestamp)
}

/// Reads a time in UTC: as [`rfc3339`], and the offset is `Z` or `+00:00`.
pub fn utc(field: &str, text: &str) -> Result<Timestamp, Invalid> {
    match offset_of(text) {
        Some("Z" | "+00:00") => {
            rfc3339(field, text).map_err(|_| Invalid::value(field, text, EXPECTED_UTC))
        }
        _ => Err(Invalid::value(field, text, EXPECTED_UTC)),
    }
}

/// The offset of a text that has the form of RFC 3339; `None` if it has another form.
fn offset_of(text: &str) -> Option<&str> {
    const FORM: &[u8; 19] = b"0000-00-00T00:00:00";
    let matches = |part: &[u8], form: &[u8]| {
        part.len() == form.len()
            && part.iter().zip(form).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
    };
    let bytes = text.as_bytes();
    if !matches(bytes.get(..FORM.len())?, FORM) {
        return None;
    }
    let mut rest = &text[FORM.len()..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=9).contains(&digits) {
            return None;
        }
        rest = &fraction[digits..];
    }
    let offset = rest.as_bytes();
    let sound = rest == "Z" || matches(offset, b"+00:00") || matches(offset, b"-00:00");
    sound.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_rfc_3339() {
        for (text, same) in [
            ("2025-01-01T10:00:00Z", "2025-01-01T10:00:00Z"),
            ("2025-01-01T10:00:00.5Z", "2025-01-01T10:00:00.5Z"),
            ("2025-01-01T10:00:00.123456789Z", "2025-01-01T10:00:00.123456789Z"),
            ("2025-01-01T17:00:00+07:00", "2025-01-01T10:00:00Z"),
            ("2025-01-01T09:30:00-00:30", "2025-01-01T10:00:00Z"),
            ("1970-01-01T00:00:05+07:00", "1969-12-31T17:00:05Z"),
        ] {
            assert_eq!(rfc3339("t", text).unwrap().to_string(), same);
        }
    }

    #[test]
    fn refuses_every_other_form() {
        for text in [
            "",
            "2025-01-01",
            "2025-01-01T10:00:00",
            "2025-01-01 10:00:00Z",
            "2025-01-01t10:00:00Z",
            "2025-01-01T10:00:00z",
            "2025-01-01T10:00Z",
            "20250101T100000Z",
            "2025-01-01T10:00:00,5Z",
            "2025-01-01T10:00:00.Z",
            "2025-01-01T10:00:00.1234567890Z",
            "2025-01-01T10:00:00+07",
            "2025-01-01T10:00:00+0700",
            "2025-01-01T10:00:00Z[UTC]",
            "2025-13-01T10:00:00Z",
            "2025-02-30T10:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T10:61:00Z",
            "0000-06-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-12:00",
            "+002025-01-01T10:00:00Z",
            "1735725600",
            "２025-01-01T10:00:00Z",
            "2025-01-01T10:00:00é",
        ] {
            let err = rfc3339("occurred_at", text).unwrap_err();
            assert_eq!(err.field, "occurred_at");
            assert!(err.problem.contains("RFC 3339"), "{err}");
        }
    }

    #[test]
    fn utc_takes_z_and_a_zero_offset_only() {
        assert!(utc("timestamp", "2025-01-01T10:00:00Z").is_ok());
        assert!(utc("timestamp", "2025-01-01T10:00:00.250+00:00").is_ok());
        for text in ["2025-01-01T10:00:00-00:00", "2025-01-01T10:00:00+01:00", "2025-01-01T10:00Z"]
        {
            let err = utc("timestamp", text).unwrap_err();
            assert!(err.problem.contains("in UTC"), "{err}");
        }
    }
}
