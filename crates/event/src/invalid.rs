//! Why an event was refused.

use std::fmt;

/// The most characters of an offending value that an error shows.
const SHOWN_CHARS: usize = 40;

/// A rule that an event breaks.
///
/// `Display` reads as a sentence: the field, what it is, and what would be right, as in
/// `payload.metric_value is "hot": expected a finite number`. A value is shown only if it is a scalar,
/// and then clipped; objects and arrays are named by their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The path of the field, such as `payload.metric_value`; `event` for the whole document.
    pub field: String,
    /// What is wrong and what would be right; the rest of the sentence that starts with the field.
    pub problem: String,
    /// What sort of refusal this is.
    pub kind: InvalidKind,
}

/// What sort of refusal an [`Invalid`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// The text is not JSON at all.
    Syntax,
    /// The text is larger than [`crate::MAX_EVENT_BYTES`].
    TooLarge,
    /// A field breaks its rule.
    Rule,
    /// The event names another tenant than its sender belongs to: a cross-tenant attempt.
    TenantMismatch,
}

impl InvalidKind {
    /// A word for metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            InvalidKind::Syntax => "syntax",
            InvalidKind::TooLarge => "too_large",
            InvalidKind::Rule => "rule",
            InvalidKind::TenantMismatch => "tenant_mismatch",
        }
    }
}

impl Invalid {
    /// A field that breaks a rule. `problem` continues the sentence that the field starts.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), problem: problem.into(), kind: InvalidKind::Rule }
    }

    /// A text value that is not what was expected. The value is quoted and clipped.
    pub fn value(field: impl Into<String>, value: &str, expected: &str) -> Invalid {
        Invalid::new(field, format!("is {}: expected {expected}", quoted(value)))
    }

    /// A required field that is absent or null.
    pub(crate) fn missing(field: impl Into<String>, expected: &str) -> Invalid {
        Invalid::new(field, format!("is missing or null: expected {expected}"))
    }

    /// A value, given as its JSON text, of the wrong type. Scalars are shown, clipped; an object or
    /// an array is only named.
    pub(crate) fn json(field: impl Into<String>, json: &str, expected: &str) -> Invalid {
        let shown = match json.as_bytes().first() {
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "an array".to_owned(),
            _ => clipped(json),
        };
        Invalid::new(field, format!("is {shown}: expected {expected}"))
    }

    pub(crate) fn with_kind(mut self, kind: InvalidKind) -> Invalid {
        self.kind = kind;
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

impl std::error::Error for Invalid {}

/// The value in quotes, clipped, with control characters made visible.
pub(crate) fn quoted(value: &str) -> String {
    format!("\"{}\"", clipped(value))
}

fn clipped(value: &str) -> String {
    // Control and invisible characters from outside must not reach a log or a terminal as they are.
    let mut shown: String = value
        .chars()
        .take(SHOWN_CHARS)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if value.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_sentence() {
        let invalid = Invalid::value("metric_value", "hot", "a finite number");
        assert_eq!(invalid.to_string(), "metric_value is \"hot\": expected a finite number");
    }

    #[test]
    fn shows_at_most_forty_characters_and_no_control_characters() {
        let long = "é\u{1b}".repeat(500);
        let text = Invalid::value("f", &long, "x").to_string();
        assert!(text.chars().count() < 80, "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains('…'));
    }

    #[test]
    fn never_shows_an_object_or_an_array() {
        let text = Invalid::json("payload", "[\"secret\"]", "an object").to_string();
        assert_eq!(text, "payload is an array: expected an object");
        let text = Invalid::json("unit", "{\"secret\":1}", "text").to_string();
        assert_eq!(text, "unit is an object: expected text");
    }
}
