//! How severe an alarm is.

use crate::spelling::spelled;
use serde::{Deserialize, Serialize};

use super::Tag;

/// Alarm severity after ISA-18.2. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Advisory: awareness only.
    Low,
    /// Abnormal condition: an operator responds within the shift.
    Medium,
    /// Immediate hazard: an operator responds within minutes.
    High,
    /// Safety boundary: triggers the emergency shutdown sequence.
    Critical,
}

impl Severity {
    /// Every severity, in order.
    pub const ALL: [Severity; 4] =
        [Severity::Low, Severity::Medium, Severity::High, Severity::Critical];

    pub(crate) const EXPECTED: &'static str = "one of LOW, MEDIUM, HIGH, CRITICAL";

    /// The severity as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Low => "LOW",
            Severity::Medium => "MEDIUM",
            Severity::High => "HIGH",
            Severity::Critical => "CRITICAL",
        }
    }

    /// The severity of a documented alarm. The envelope does not carry it: it is a property of the
    /// alarm's tag. `None` for a tag that is not documented.
    pub fn of_alarm(tag: &Tag) -> Option<Severity> {
        match tag.as_str() {
            "INSTRUMENT_FAULT" => Some(Severity::Low),
            "HIGH_FLOW" | "VIBRATION_HIGH" => Some(Severity::Medium),
            "LOW_PRESSURE" | "HIGH_TEMP" => Some(Severity::High),
            "CRITICAL_TEMP" => Some(Severity::Critical),
            _ => None,
        }
    }
}

spelled!(Severity, "severity");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_ordered_and_upper_case() {
        assert!(Severity::ALL.is_sorted());
        for severity in Severity::ALL {
            assert_eq!(severity.as_str().parse::<Severity>(), Ok(severity));
            assert_eq!(serde_json::to_string(&severity).unwrap(), format!("\"{severity}\""));
        }
        assert!("high".parse::<Severity>().is_err());
    }

    #[test]
    fn documented_alarms_have_their_severity() {
        let of = |tag: &str| Severity::of_alarm(&tag.parse().unwrap());
        assert_eq!(of("CRITICAL_TEMP"), Some(Severity::Critical));
        assert_eq!(of("LOW_PRESSURE"), Some(Severity::High));
        assert_eq!(of("VIBRATION_HIGH"), Some(Severity::Medium));
        assert_eq!(of("INSTRUMENT_FAULT"), Some(Severity::Low));
        assert_eq!(of("FLOW_RATE"), None);
    }
}
