//! Whether data moves: what readiness goes by.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When something last moved, and since when something waits.
#[derive(Debug)]
pub(super) struct Progress(Mutex<Moments>);

#[derive(Debug)]
struct Moments {
    last_message: Instant,
    holding_since: Option<Instant>,
    ended: bool,
    bus: Option<&'static str>,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Progress {
        Progress(Mutex::new(Moments {
            last_message: now,
            holding_since: None,
            ended: false,
            bus: None,
        }))
    }

    fn with(&self, change: impl FnOnce(&mut Moments)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A batch came.
    pub(super) fn came(&self, now: Instant) {
        self.with(|moments| moments.last_message = now);
    }

    /// A batch waits for the database, or waits no more.
    pub(super) fn holds(&self, since: Option<Instant>) {
        self.with(|moments| {
            moments.holding_since = since.map(|since| moments.holding_since.unwrap_or(since));
        });
    }

    /// A consumer has ended, or runs again.
    pub(super) fn ended(&self, ended: bool) {
        self.with(|moments| moments.ended = ended);
    }

    /// What is wrong with the bus, if anything.
    pub(super) fn bus(&self, problem: Option<&'static str>) {
        self.with(|moments| moments.bus = problem);
    }

    /// What does not move.
    pub(super) fn problems(
        &self,
        now: Instant,
        stalled_after: Duration,
        silent_after: Duration,
    ) -> Vec<String> {
        let moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut problems = Vec::new();
        if moments.ended {
            problems.push("consumer: has ended".to_owned());
        }
        if let Some(problem) = moments.bus {
            problems.push(format!("bus: {problem}"));
        }
        let waits = moments.holding_since.map(|since| now.saturating_duration_since(since));
        if let Some(waits) = waits.filter(|waits| *waits >= stalled_after) {
            problems.push(format!("store: a batch waits since {} s", waits.as_secs()));
        }
        let silent = now.saturating_duration_since(moments.last_message);
        if silent >= silent_after {
            problems.push(format!("bus: no message since {} s", silent.as_secs()));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_is_said() {
        let start = Instant::now();
        let progress = Progress::new(start);
        let (minute, five) = (Duration::from_secs(60), Duration::from_secs(300));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(progress.problems(at(299), minute, five).is_empty());
        assert_eq!(progress.problems(at(300), minute, five).len(), 1);
        progress.came(at(300));
        progress.holds(Some(at(310)));
        progress.holds(Some(at(350)));
        assert!(progress.problems(at(370), minute, five)[0].contains("waits since 60 s"));
        progress.holds(None);
        assert!(progress.problems(at(370), minute, five).is_empty());
    }
}
