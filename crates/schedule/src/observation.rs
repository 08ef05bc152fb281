//! An observation: a day's schedule as a person or a machine wrote it, and the fixture file that holds one.
//!
//! All fields are text as found; [`crate::canonical`] reads them. A fixture cannot be read when it is missing, too large, or not the
//! JSON of the specification; the error says which, without the file's content.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::canonical::Day;

/// The most bytes of a fixture file.
pub const MAX_FIXTURE_BYTES: u64 = 1 << 20;

/// What an extractor saw of one day.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// Which day.
    pub schedule_date: String,
    /// Where its clock stands: an IANA name, an offset, or nothing for UTC.
    #[serde(default)]
    pub timezone: String,
    /// The lines.
    pub entries: Vec<RawEntry>,
    /// How sure the extractor is, from 0 to 1; `None` where it cannot say.
    #[serde(default)]
    pub confidence: Option<f64>,
}

/// One line of an observation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RawEntry {
    /// The start, or both ends.
    pub start: String,
    /// The end; empty where `start` has both.
    #[serde(default)]
    pub end: String,
    /// What is done.
    #[serde(default)]
    pub title: String,
    /// Where.
    #[serde(default)]
    pub location: String,
    /// For whom.
    #[serde(default)]
    pub customer: String,
    /// Which sort of shift: regular, on call, overtime.
    #[serde(default)]
    pub kind: String,
}

impl From<&Day> for Observation {
    /// A canonical day as somebody would write it who writes canonically.
    fn from(day: &Day) -> Observation {
        let entries = day.shifts.iter().map(|shift| RawEntry {
            start: shift.start.clone(),
            end: shift.end.clone(),
            title: shift.title.clone(),
            location: shift.location.clone(),
            customer: shift.customer.clone(),
            kind: shift.kind.clone(),
        });
        Observation {
            schedule_date: day.schedule_date.to_string(),
            timezone: day.timezone.clone(),
            entries: entries.collect(),
            confidence: None,
        }
    }
}

/// Why a fixture cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// The file cannot be read.
    #[error("the fixture {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("the fixture {} has more than {MAX_FIXTURE_BYTES} bytes", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// The file is not the JSON of an observation.
    #[error("the fixture is not an observation (line {line}, column {column})")]
    Malformed {
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
}

#[derive(Deserialize)]
struct Wrapped {
    payload: Observation,
}

impl Observation {
    /// Reads an observation, bare or under the key `payload`.
    pub fn from_json(text: &str) -> Result<Observation, FixtureError> {
        // The error of serde_json may repeat a value; its place does not.
        let place =
            |e: serde_json::Error| FixtureError::Malformed { line: e.line(), column: e.column() };
        if let Ok(Wrapped { payload }) = serde_json::from_str(text) {
            return Ok(payload);
        }
        serde_json::from_str(text).map_err(place)
    }

    /// Reads a fixture file.
    pub async fn load(path: &Path) -> Result<Observation, FixtureError> {
        use tokio::io::AsyncReadExt;
        let unreadable = |source| FixtureError::Unreadable { path: path.to_owned(), source };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let mut text = String::new();
        let mut bounded = file.take(MAX_FIXTURE_BYTES + 1);
        bounded.read_to_string(&mut text).await.map_err(unreadable)?;
        if text.len() as u64 > MAX_FIXTURE_BYTES {
            return Err(FixtureError::TooLarge { path: path.to_owned() });
        }
        Observation::from_json(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str =
        r#"{"schedule_date": "2026-11-16", "entries": [{"start": "8-16", "extra": 1}]}"#;

    #[test]
    fn bare_and_wrapped_are_the_same() {
        let bare = Observation::from_json(BARE).unwrap();
        let wrapped = Observation::from_json(&format!(r#"{{"payload": {BARE}}}"#)).unwrap();
        assert_eq!(bare, wrapped);
        assert_eq!(bare.entries[0].start, "8-16");
        assert_eq!(bare.entries[0].title, "");
    }

    #[test]
    fn what_is_malformed_is_not_repeated() {
        let error = Observation::from_json(r#"{"schedule_date": 7777, "entries": []}"#);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("7777"), "{error}");
    }

    #[tokio::test]
    async fn a_file_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.json");
        tokio::fs::write(&path, BARE).await.unwrap();
        assert_eq!(Observation::load(&path).await.unwrap().schedule_date, "2026-11-16");
        let long = " ".repeat(usize::try_from(MAX_FIXTURE_BYTES).unwrap());
        tokio::fs::write(&path, format!("{BARE}{long}")).await.unwrap();
        assert!(matches!(Observation::load(&path).await, Err(FixtureError::TooLarge { .. })));
        let missing = Observation::load(&folder.path().join("none")).await;
        assert!(matches!(missing, Err(FixtureError::Unreadable { .. })));
    }
}
