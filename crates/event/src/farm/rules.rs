//! Rules of single values, for whoever takes a value in before it is part of an envelope.
//!
//! Each takes the name of the field for its error: the sampler socket knows a `metric_value`, an
//! envelope a `payload.metric_value`.

use crate::Invalid;

/// The longest metric type, in characters.
pub const MAX_METRIC_TYPE_LEN: usize = 64;
/// The longest unit, in characters.
pub const MAX_UNIT_CHARS: usize = 32;
/// The longest trace id, in characters.
pub const MAX_TRACE_ID_LEN: usize = 128;

pub(crate) const METRIC_TYPE: &str = "a lower-case letter and up to 63 of a-z, 0-9 and underscore";
pub(crate) const UNIT: &str = "1 to 32 characters, no control characters";
pub(crate) const TRACE_ID: &str = "1 to 128 visible ASCII characters";

/// `[a-z][a-z0-9_]{0,63}`.
pub fn metric_type(field: &str, text: &str) -> Result<(), Invalid> {
    let sound = text.len() <= MAX_METRIC_TYPE_LEN
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    accept(sound, field, text, METRIC_TYPE)
}

/// A finite number.
pub fn metric_value(field: &str, value: f64) -> Result<(), Invalid> {
    accept(value.is_finite(), field, &value.to_string(), "a finite number")
}

/// 1 to 32 characters, no control characters.
pub fn unit(field: &str, text: &str) -> Result<(), Invalid> {
    accept(is_label(text, MAX_UNIT_CHARS), field, text, UNIT)
}

/// 1 to 128 visible ASCII characters.
pub fn trace_id(field: &str, text: &str) -> Result<(), Invalid> {
    accept(is_visible(text, MAX_TRACE_ID_LEN), field, text, TRACE_ID)
}

pub(crate) fn accept(sound: bool, field: &str, text: &str, expected: &str) -> Result<(), Invalid> {
    if sound { Ok(()) } else { Err(Invalid::value(field, text, expected)) }
}

/// 1 to `max` characters, none of them a control character.
pub(crate) fn is_label(text: &str, max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= max && !text.chars().any(char::is_control)
}

/// 1 to `max` visible ASCII characters.
pub(crate) fn is_visible(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_at_its_edges() {
        assert!(metric_type("f", &"a".repeat(64)).is_ok());
        assert!(metric_type("f", "nh3_ppm2").is_ok());
        for text in ["", "A", "1a", "_a", "a-b", "a b", "é", &"a".repeat(65)] {
            assert!(metric_type("f", text).is_err(), "{text}");
        }
        assert!(unit("f", "°C").is_ok() && unit("f", &"³".repeat(32)).is_ok());
        for text in ["", "a\n", "\0", "\u{85}", &"³".repeat(33)] {
            assert!(unit("f", text).is_err(), "{text:?}");
        }
        assert!(trace_id("f", &"~".repeat(128)).is_ok());
        for text in ["", "a b", "é", "\u{7f}", &"a".repeat(129)] {
            assert!(trace_id("f", text).is_err(), "{text:?}");
        }
        assert!(metric_value("f", f64::MAX).is_ok());
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(metric_value("f", value).is_err());
        }
    }
}
