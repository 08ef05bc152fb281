//! Whether data moves: what readiness goes by.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::outbox::{Level, Warning};

/// When something last moved, and what is wrong.
#[derive(Debug)]
pub(super) struct Vitals(Mutex<State>);

#[derive(Debug)]
struct State {
    cycled: Instant,
    database_down: Option<Instant>,
    /// Since when the spool holds something and has not moved.
    spool_stands: Option<Instant>,
    bus: Option<&'static str>,
    warnings: Vec<Warning>,
}

impl Vitals {
    pub(super) fn new(now: Instant) -> Vitals {
        Vitals(Mutex::new(State {
            cycled: now,
            database_down: None,
            spool_stands: None,
            bus: None,
            warnings: Vec::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cycle is over.
    pub(super) fn cycled(&self, now: Instant) {
        self.state().cycled = now;
    }

    /// Postgres took a write, or did not. Returns whether that is new.
    pub(super) fn database(&self, up: bool, now: Instant) -> bool {
        let mut state = self.state();
        let changed = state.database_down.is_none() != up;
        state.database_down = if up { None } else { state.database_down.or(Some(now)) };
        changed
    }

    /// The spool was added to: it stands from now on, unless it did before.
    pub(super) fn spooled(&self, now: Instant) {
        let mut state = self.state();
        state.spool_stands = state.spool_stands.or(Some(now));
    }

    /// The spool has moved; `left` says whether it holds more.
    pub(super) fn drained(&self, left: bool, now: Instant) {
        self.state().spool_stands = left.then_some(now);
    }

    /// What is wrong with the bus, if anything.
    pub(super) fn bus(&self, problem: Option<&'static str>) {
        self.state().bus = problem;
    }

    /// What the outbox is warned of, instead of what it was.
    pub(super) fn warn(&self, warnings: Vec<Warning>) -> Vec<Warning> {
        std::mem::replace(&mut self.state().warnings, warnings)
    }

    /// What makes the node not ready, and what only wants attention.
    pub(super) fn problems(
        &self,
        now: Instant,
        stalled_after: Duration,
        interval: Duration,
    ) -> (Vec<String>, Vec<String>) {
        let state = self.state();
        let long = |since: Instant, limit: Duration| {
            let span = now.saturating_duration_since(since);
            (span >= limit).then_some(span.as_secs())
        };
        let mut problems = Vec::new();
        if let Some(seconds) = long(state.cycled, stalled_after.max(interval * 2)) {
            problems.push(format!("loop: no cycle since {seconds} s"));
        }
        if let Some(seconds) = state.database_down.and_then(|since| long(since, stalled_after)) {
            problems.push(format!("database: away since {seconds} s"));
        }
        if let Some(seconds) = state.spool_stands.and_then(|since| long(since, stalled_after)) {
            problems.push(format!("spool: does not move since {seconds} s"));
        }
        problems.extend(state.bus.map(|problem| format!("bus: {problem}")));
        let mut attention = Vec::new();
        for Warning { level, metric, words } in &state.warnings {
            let line = format!("{}: {metric}: {words}", level.as_str());
            match level {
                Level::Critical => problems.push(line),
                Level::Warning => attention.push(line),
            }
        }
        (problems, attention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_is_said_and_only_critical_alerts_stop_traffic() {
        let start = Instant::now();
        let vitals = Vitals::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let problems = |seconds| vitals.problems(at(seconds), minute, second);
        assert_eq!(problems(59), (vec![], vec![]));
        assert!(problems(60).0[0].starts_with("loop"));
        vitals.cycled(at(100));
        assert!(vitals.database(false, at(50)) && !vitals.database(false, at(90)));
        vitals.spooled(at(60));
        assert!(problems(110).0[0].contains("away since 60 s") && problems(110).0.len() == 1);
        assert_eq!(problems(120).0.len(), 2);
        vitals.drained(true, at(115));
        assert!(vitals.database(true, at(115)));
        assert_eq!(problems(120).0.len(), 0);
        let warning = |level| Warning { level, metric: "failedCount", words: "x" };
        vitals.warn(vec![warning(Level::Warning), warning(Level::Critical)]);
        let (stops, shows) = problems(120);
        assert_eq!((stops.len(), shows.len()), (1, 1));
    }
}
