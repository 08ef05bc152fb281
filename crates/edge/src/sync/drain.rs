//! How long the backlog will last, and whether it shrinks at all. Pure: time is passed in.

use std::collections::VecDeque;
use std::time::Duration;

/// In place of an estimate: infinity has no one spelling in metrics.
pub(super) const NOT_SHRINKING: f64 = -1.0;

/// What is told of the backlog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    /// Seconds until it is gone; 0 when there is none, [`NOT_SHRINKING`] when it does not shrink.
    pub(super) drain_seconds: f64,
    /// The link is up, and the backlog has not shrunk for long.
    pub(super) not_draining: bool,
}

/// The backlog over the last while.
#[derive(Debug)]
pub(super) struct Drain {
    stall_after: Duration,
    /// The first is as old as the window or older, if the watch has gone on for that long.
    samples: VecDeque<(Duration, u64)>,
}

impl Drain {
    pub(super) fn new(stall_after: Duration) -> Drain {
        Drain { stall_after, samples: VecDeque::new() }
    }

    /// Takes a count of the rows that wait, with how long the oldest has been due and since when the
    /// link has been up.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        rows: u64,
        oldest: Duration,
        up_since: Option<Duration>,
    ) -> Reading {
        self.samples.push_back((now, rows));
        let window = now.checked_sub(self.stall_after);
        while let (Some(window), Some((second, _))) = (window, self.samples.get(1))
            && *second <= window
        {
            self.samples.pop_front();
        }
        let (began, before) = self.samples.front().copied().unwrap_or((now, rows));
        let drain_seconds = match before.checked_sub(rows) {
            _ if rows == 0 => 0.0,
            None | Some(0) => NOT_SHRINKING,
            Some(gone) => number(rows) * now.saturating_sub(began).as_secs_f64() / number(gone),
        };
        let long = |since: Duration| now.saturating_sub(since) >= self.stall_after;
        let not_draining = rows > 0
            && rows >= before
            && long(began)
            && oldest >= self.stall_after
            && up_since.is_some_and(long);
        Reading { drain_seconds, not_draining }
    }
}

/// A count as a gauge shows it.
#[expect(clippy::cast_precision_loss, reason = "no count of rows reaches 2^53")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_estimate_follows_the_pace() {
        let mut drain = Drain::new(seconds(60));
        let up = Some(Duration::ZERO);
        assert_eq!(drain.observe(seconds(0), 1_000, seconds(9), up).drain_seconds, NOT_SHRINKING);
        assert_eq!(drain.observe(seconds(10), 900, seconds(9), up).drain_seconds, 90.0);
        assert_eq!(drain.observe(seconds(20), 500, seconds(9), up).drain_seconds, 20.0);
        assert_eq!(drain.observe(seconds(30), 0, seconds(0), up).drain_seconds, 0.0);
    }

    #[test]
    fn the_alarm_wants_a_link_a_backlog_and_time() {
        let watch = |rows: [u64; 8], oldest: u64, up: Option<Duration>| {
            let mut drain = Drain::new(seconds(60));
            let each = rows.iter().zip(0u64..).map(|(rows, n)| {
                drain.observe(seconds(n * 10), *rows, seconds(oldest), up).not_draining
            });
            each.last().unwrap()
        };
        let up = Some(Duration::ZERO);
        assert!(watch([100; 8], 300, up));
        assert!(watch([100, 110, 120, 130, 140, 150, 160, 170], 300, up));
        assert!(!watch([100; 8], 300, None), "the link is down: another alarm's matter");
        assert!(!watch([100; 8], 300, Some(seconds(30))), "it has just come back");
        assert!(!watch([100, 99, 98, 97, 96, 95, 94, 93], 300, up), "it shrinks");
        assert!(!watch([3; 8], 5, up), "rows come and go");
        assert!(!watch([0; 8], 0, up));
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut drain = Drain::new(seconds(60));
        for n in 0..10_000 {
            drain.observe(seconds(n), n, seconds(0), None);
        }
        assert!(drain.samples.len() <= 62, "{}", drain.samples.len());
    }
}
