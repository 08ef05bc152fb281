//! How long the backlog will last, and whether it shrinks at all. Pure: time is passed in.

use std::collections::VecDeque;
use std::time::Duration;

use super::store::Backlog;

/// In place of an estimate: infinity has no one spelling in metrics.
pub(super) const NOT_SHRINKING: f64 = -1.0;

/// What is told of the backlog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    /// Seconds until it is gone; 0 when there is none, [`NOT_SHRINKING`] when it does not shrink.
    pub(super) drain_seconds: f64,
    /// The link is up, and the backlog has not shrunk for long.
    pub(super) not_shrinking: bool,
    /// The same, and nothing at all was acked for as long.
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

    /// Takes a count of what waits, and since when the link has been up.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        backlog: &Backlog,
        up_since: Option<Duration>,
    ) -> Reading {
        let rows = backlog.live + backlog.bulk;
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
        let not_shrinking = rows > 0
            && rows >= before
            && long(began)
            && backlog.oldest >= self.stall_after
            && up_since.is_some_and(long);
        let acked = backlog.acked_ago.is_some_and(|ago| ago < self.stall_after);
        Reading { drain_seconds, not_shrinking, not_draining: not_shrinking && !acked }
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

    fn backlog(bulk: u64, oldest: u64, acked_ago: Option<u64>) -> Backlog {
        Backlog { live: 0, bulk, oldest: seconds(oldest), acked_ago: acked_ago.map(seconds) }
    }

    #[test]
    fn the_estimate_follows_the_pace() {
        let mut drain = Drain::new(seconds(60));
        let up = Some(Duration::ZERO);
        for (at, rows, estimate) in [(0, 1_000, NOT_SHRINKING), (10, 900, 90.0), (20, 500, 20.0)] {
            let reading = drain.observe(seconds(at), &backlog(rows, 9, Some(1)), up);
            assert_eq!(reading.drain_seconds, estimate);
        }
        assert_eq!(drain.observe(seconds(30), &backlog(0, 0, None), up).drain_seconds, 0.0);
    }

    #[test]
    fn the_alarms_want_a_link_a_backlog_and_time() {
        let watch = |rows: [u64; 8], oldest: u64, acked: Option<u64>, up: Option<Duration>| {
            let mut drain = Drain::new(seconds(60));
            let each = rows.iter().zip(0u64..).map(|(rows, n)| {
                let reading = drain.observe(seconds(n * 10), &backlog(*rows, oldest, acked), up);
                (reading.not_shrinking, reading.not_draining)
            });
            each.last().unwrap()
        };
        let up = Some(Duration::ZERO);
        let growing = [100, 110, 120, 130, 140, 150, 160, 170];
        assert_eq!(watch([100; 8], 300, None, up), (true, true));
        assert_eq!(watch(growing, 300, Some(60), up), (true, true));
        assert_eq!(watch(growing, 300, Some(1), up), (true, false), "more comes than goes");
        let quiet = (false, false);
        assert_eq!(watch([100; 8], 300, None, None), quiet, "the link is down: another's matter");
        assert_eq!(watch([100; 8], 300, None, Some(seconds(30))), quiet, "it has just come back");
        assert_eq!(watch([100, 99, 98, 97, 96, 95, 94, 93], 300, None, up), quiet, "it shrinks");
        assert_eq!(watch([3; 8], 5, Some(1), up), quiet, "rows come and go");
        assert_eq!(watch([0; 8], 0, None, up), quiet);
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut drain = Drain::new(seconds(60));
        for n in 0..10_000 {
            drain.observe(seconds(n), &backlog(n, 0, None), None);
        }
        assert!(drain.samples.len() <= 62, "{}", drain.samples.len());
    }
}
