//! How fast the backlog moves, from a minute of observations. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far back the pace looks.
const SPAN: Duration = Duration::from_secs(60);
/// The least time between two observations that are kept, which bounds how many there are.
const STEP: Duration = Duration::from_millis(500);

/// Observations of head and acked over the last minute.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    seen: VecDeque<(Instant, u64, u64)>,
}

impl Pace {
    /// Takes note of where the node is.
    pub(crate) fn observe(&mut self, now: Instant, head: u64, acked: u64) {
        if self.seen.back().is_some_and(|(at, _, _)| now.saturating_duration_since(*at) < STEP) {
            return;
        }
        self.seen.push_back((now, head, acked));
        while self.seen.front().is_some_and(|(at, _, _)| now.saturating_duration_since(*at) > SPAN)
        {
            self.seen.pop_front();
        }
    }

    /// How long a backlog takes to drain, if it shrinks at all.
    pub(crate) fn drain_seconds(&self, backlog: u64) -> Option<u64> {
        if backlog == 0 {
            return Some(0);
        }
        let ((from, head_then, acked_then), (to, head, acked)) =
            (self.seen.front()?, self.seen.back()?);
        let millis = u64::try_from(to.saturating_duration_since(*from).as_millis()).ok()?;
        let written = head.saturating_sub(*head_then);
        let drained = acked.saturating_sub(*acked_then).checked_sub(written).filter(|n| *n > 0)?;
        Some(backlog.saturating_mul(millis) / drained / 1000)
    }
}

/// Bytes a day at the pace of the time since the start; unknown in the first minute.
pub(crate) fn per_day(bytes: u64, elapsed: Duration) -> Option<u64> {
    let seconds = elapsed.as_secs();
    (seconds >= 60).then(|| bytes.saturating_mul(86_400) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrinking_backlog_has_an_estimate_and_a_growing_one_has_none() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.drain_seconds(10), None);
        pace.observe(start, 10_000, 0);
        pace.observe(start + Duration::from_secs(10), 10_100, 1_100);
        assert_eq!(pace.drain_seconds(9_000), Some(90));
        assert_eq!(pace.drain_seconds(0), Some(0));
        let mut pace = Pace::default();
        pace.observe(start, 100, 0);
        pace.observe(start + Duration::from_secs(10), 300, 50);
        assert_eq!(pace.drain_seconds(250), None);
    }

    #[test]
    fn memory_is_bounded_by_the_span() {
        let start = Instant::now();
        let mut pace = Pace::default();
        for ms in 0..300_000 {
            pace.observe(start + Duration::from_millis(ms), ms, ms);
        }
        assert!(pace.seen.len() <= 121, "{}", pace.seen.len());
        assert_eq!(per_day(1_000, Duration::from_secs(59)), None);
        assert_eq!(per_day(1_000, Duration::from_secs(100)), Some(864_000));
    }
}
