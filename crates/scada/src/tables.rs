//! Files of TOML lists: the rules of analytics, the mapping of inputs. The settings of a role are flat keys and do not fit them.
//!
//! Promise: every refusal is a [`settings::Error`] that names the file, the line, the entry and the key, and all refusals of what
//! was read come together.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use settings::{Error, Problem, parse_duration};

/// The largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// A file, and what was found wrong with it so far.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
    problems: Vec<Problem>,
}

impl Source {
    pub(crate) fn read(path: &Path) -> Result<Source, Error> {
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if bytes > MAX_BYTES {
            let why = format!("it is {bytes} bytes: expected at most {MAX_BYTES}");
            return Err(unreadable(std::io::Error::other(why)));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(Source::new(path, text))
    }

    pub(crate) fn new(path: &Path, text: String) -> Source {
        Source { path: path.to_owned(), text, problems: Vec::new() }
    }

    /// The file in its form. Semantics are checked by the caller, who reports them with [`Source::refuse`].
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(&self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let key = self.key_at(at);
            let reason = error.message().to_owned();
            Error::Refused(vec![Problem { key, origin: Some(self.origin(at)), reason }])
        })
    }

    /// Something that is wrong with the entry that starts at `at`.
    pub(crate) fn refuse(&mut self, at: usize, key: String, reason: impl Into<String>) {
        let origin = Some(self.origin(at));
        self.problems.push(Problem { key, origin, reason: reason.into() });
    }

    /// What was read, if nothing was refused.
    pub(crate) fn finish<T>(self, read: T) -> Result<T, Error> {
        if self.problems.is_empty() { Ok(read) } else { Err(Error::Refused(self.problems)) }
    }

    /// A time span in a range; refused and `None` otherwise.
    pub(crate) fn span(
        &mut self,
        at: usize,
        key: impl FnOnce() -> String,
        text: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let right = format!("from {:?} to {:?}", range.start(), range.end());
        let found = match parse_duration(text) {
            Ok(span) if range.contains(&span) => return Some(span),
            Ok(_) => format!("is {text:?}: expected a time span {right}"),
            Err(reason) => format!("is {text:?}: {reason}, {right}"),
        };
        self.refuse(at, key(), found);
        None
    }

    fn origin(&self, at: usize) -> String {
        let line = self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        format!("{}:{line}", self.path.display())
    }

    /// The entry and the key that a place in the text belongs to, as far as the lines tell.
    fn key_at(&self, at: usize) -> String {
        let at = at.min(self.text.len());
        let start = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].lines().next().unwrap_or_default().trim();
        let headers = self.text[..start].lines().rev().map(str::trim);
        let header = headers.into_iter().find(|line| line.starts_with('[')).unwrap_or_default();
        match line.split_once('=') {
            Some((key, _)) if !line.starts_with('[') => {
                format!("{header} {}", key.trim()).trim().to_owned()
            }
            _ if line.starts_with('[') => line.to_owned(),
            _ => header.to_owned(),
        }
    }
}
