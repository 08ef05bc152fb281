//! Whether the cloud's parts can do their work, as each part says of itself.
//!
//! The database is asked when somebody wants to know; the parts that run on their own (the relay,
//! the bus) report here when their state changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What the parts have reported. Cloning it shares it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Readiness {
    /// A part says that it works, or in a few words why it does not. The words are shown to anyone
    /// who asks `/readyz`: they name no secret and no tenant.
    pub fn report(&self, part: &'static str, state: Result<(), String>) {
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            Ok(()) => drop(problems.remove(part)),
            Err(problem) => drop(problems.insert(part, problem)),
        }
    }

    /// What does not work, a line a part.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        problems.iter().map(|(part, problem)| format!("{part}: {problem}")).collect()
    }
}
