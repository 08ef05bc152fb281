//! Quality codes, shared by both envelopes.

use crate::spelling::spelled;
use serde::{Deserialize, Serialize};

/// How far a value can be trusted; after OPC UA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum QualityCode {
    /// The value is sound.
    Good,
    /// The value is not to be used.
    Bad,
    /// The value may be wrong, for instance because the clock was not set.
    Uncertain,
    /// The value is outside the sensor's physical range.
    Oor,
}

impl QualityCode {
    /// Every code.
    pub const ALL: [QualityCode; 4] =
        [QualityCode::Good, QualityCode::Bad, QualityCode::Uncertain, QualityCode::Oor];

    pub(crate) const EXPECTED: &'static str = "one of GOOD, BAD, UNCERTAIN, OOR";

    /// The code as it is written in an envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            QualityCode::Good => "GOOD",
            QualityCode::Bad => "BAD",
            QualityCode::Uncertain => "UNCERTAIN",
            QualityCode::Oor => "OOR",
        }
    }
}

spelled!(QualityCode, "quality");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_upper_case_only() {
        for code in QualityCode::ALL {
            assert_eq!(code.as_str().parse::<QualityCode>(), Ok(code));
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{code}\""));
        }
        assert!("good".parse::<QualityCode>().is_err());
        assert!("".parse::<QualityCode>().is_err());
    }
}
