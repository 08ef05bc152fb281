//! What a payload may hold so that every tier can store it.
//!
//! Postgres refuses some valid JSON in a `jsonb` column: U+0000, a lone surrogate, a number outside
//! `numeric`, nesting deeper than its stack. One such payload would fail the transaction of all its
//! neighbours, so it is refused here, where it can be named.

use crate::Invalid;

/// The deepest nesting of a payload.
///
/// Readers of whole documents stop at 128 levels; a batch, its record and the envelope put four
/// around a payload, and the rest is margin for what later tiers wrap around it.
pub const MAX_NESTING: usize = 100;

/// The most characters in one number. A double written out without an exponent needs fewer.
pub const MAX_NUMBER_CHARS: usize = 400;

/// The largest exponent of a number, either way. A double stays below it.
pub const MAX_EXPONENT: u32 = 400;

/// Checks a text that is known to be JSON. One pass, no allocation.
pub(crate) fn check_storable(field: &str, json: &str) -> Result<(), Invalid> {
    let bytes = json.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string(field, bytes, at + 1)?,
            b'-' | b'0'..=b'9' => at = number(field, bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_NESTING {
                    let problem =
                        format!("is nested too deep: expected at most {MAX_NESTING} levels");
                    return Err(Invalid::new(field, problem));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// Walks a string from after its opening quote to after its closing one.
fn string(field: &str, bytes: &[u8], mut at: usize) -> Result<usize, Invalid> {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at + 1),
            b'\\' if bytes.get(at + 1) == Some(&b'u') => {
                let unit = code_unit(bytes, at);
                at += 6;
                match unit {
                    Some(0) => {
                        let problem = "holds the character U+0000: expected text without it";
                        return Err(Invalid::new(field, problem));
                    }
                    Some(0xD800..=0xDBFF)
                        if matches!(code_unit(bytes, at), Some(0xDC00..=0xDFFF)) =>
                    {
                        at += 6;
                    }
                    Some(0xD800..=0xDFFF) => {
                        let problem = "holds half of a surrogate pair: expected valid Unicode";
                        return Err(Invalid::new(field, problem));
                    }
                    _ => {}
                }
            }
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    Ok(at)
}

/// The value of the escape `\uXXXX` that starts at `at`, if one does.
fn code_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Walks a number from its first character to after its last one.
fn number(field: &str, bytes: &[u8], start: usize) -> Result<usize, Invalid> {
    let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let len = bytes[start..].iter().take_while(|byte| part(byte)).count();
    if len > MAX_NUMBER_CHARS {
        let problem =
            format!("holds a number of {len} characters: expected at most {MAX_NUMBER_CHARS}");
        return Err(Invalid::new(field, problem));
    }
    let number = &bytes[start..start + len];
    if let Some(e) = number.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        let digits = number[e + 1..].iter().filter(|byte| byte.is_ascii_digit());
        let exponent = digits.fold(0u32, |exponent, digit| {
            exponent.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
        if exponent > MAX_EXPONENT {
            let problem =
                format!("holds a number with exponent {exponent}: expected at most {MAX_EXPONENT}");
            return Err(Invalid::new(field, problem));
        }
    }
    Ok(start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> String {
        check_storable("payload", json).unwrap_err().to_string()
    }

    #[test]
    fn plain_payloads_pass() {
        for json in [
            r#"{"a":[1,-2.5,1e10,1E-300],"b":"x\"y\\","c":{"d":null,"e":true}}"#,
            r#"{"emoji":"\ud83d\ude00","tab":"\t","not an escape":"\\u0000","é":"日本語"}"#,
            r#"{"brackets in text":"[[[[{{{{","quote":"\"[\""}"#,
        ] {
            assert_eq!(check_storable("payload", json), Ok(()), "{json}");
        }
    }

    #[test]
    fn u0000_is_refused_in_values_and_names() {
        for json in [r#"{"a":"x\u0000y"}"#, r#"{"a\u0000":1}"#, r#"{"a":[{"b":["\\\u0000"]}]}"#] {
            assert!(problem(json).contains("U+0000"), "{json}");
        }
    }

    #[test]
    fn lone_surrogates_are_refused() {
        for json in [
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\udc00"}"#,
            r#"{"a":"\ud800\ud800"}"#,
            r#"{"a":"\ud83dx\ude00"}"#,
            r#"{"a":"\ud83d\n"}"#,
            r#"{"a":"\uDFFF"}"#,
        ] {
            assert!(problem(json).contains("surrogate"), "{json}");
        }
    }

    #[test]
    fn numbers_have_a_bound() {
        assert!(problem(r#"{"a":1e401}"#).contains("exponent 401"));
        assert!(problem(r#"{"a":1E-99999999999999999999}"#).contains("exponent"));
        let digits = "9".repeat(MAX_NUMBER_CHARS);
        assert_eq!(check_storable("payload", &digits), Ok(()));
        assert!(problem(&format!("[{digits}1]")).contains("401 characters"));
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check_storable("payload", &nested(MAX_NESTING)), Ok(()));
        assert!(problem(&nested(MAX_NESTING + 1)).contains("nested too deep"));
        // What is beside does not add to the depth.
        let beside = format!("[{}1]", "[[]],".repeat(500));
        assert_eq!(check_storable("payload", &beside), Ok(()));
    }
}
