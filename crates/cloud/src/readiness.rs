//! Whether the cloud's parts can do their work, as each part says of itself.
//!
//! The database is asked when somebody wants to know; the parts that run on their own (the relay,
//! the bus) report here when their state changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What the parts have reported. Cloning it shares it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Reports>>);

type Words = BTreeMap<&'static str, String>;

#[derive(Debug, Default)]
struct Reports {
    problems: Words,
    notes: Words,
}

impl Readiness {
    /// A part says that it works, or in a few words why it does not. The words are shown to anyone
    /// who asks `/readyz`: they name no secret and no tenant.
    pub fn report(&self, part: &'static str, state: Result<(), String>) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            Ok(()) => drop(reports.problems.remove(part)),
            Err(problem) => drop(reports.problems.insert(part, problem)),
        }
    }

    /// A part says something that an operator should see and that is no reason not to be ready, or
    /// that there is nothing to say any more. The same rule for the words.
    pub fn note(&self, part: &'static str, note: Option<String>) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match note {
            None => drop(reports.notes.remove(part)),
            Some(note) => drop(reports.notes.insert(part, note)),
        }
    }

    /// What does not work, a line a part.
    pub(crate) fn problems(&self) -> Vec<String> {
        lines(&self.0.lock().unwrap_or_else(PoisonError::into_inner).problems)
    }

    /// What an operator should see besides, a line a part.
    pub(crate) fn notes(&self) -> Vec<String> {
        lines(&self.0.lock().unwrap_or_else(PoisonError::into_inner).notes)
    }
}

fn lines(words: &Words) -> Vec<String> {
    words.iter().map(|(part, words)| format!("{part}: {words}")).collect()
}
