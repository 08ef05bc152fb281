//! A rate from a counter that is looked at now and then. Pure; time is passed in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Over how long a rate is taken: short enough to see a cut within seconds, long enough to be steady.
const WINDOW: Duration = Duration::from_secs(10);
/// The most looks that are kept.
const MAX_LOOKS: usize = 128;

/// Remembers the last looks at a counter.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter(VecDeque<(Instant, u64)>);

impl Meter {
    /// Looks, and gives the rate a second. A counter that went down was started anew, and so is its rate.
    pub(super) fn look(&mut self, now: Instant, count: u64) -> Option<f64> {
        if self.0.back().is_some_and(|(_, last)| count < *last) {
            self.0.clear();
        }
        // One look from before the window stays, so that there is always something to compare with.
        while self.0.len() >= MAX_LOOKS
            || self.0.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
        self.0.push_back((now, count));
        let (first_at, first) = *self.0.front()?;
        let passed = now.saturating_duration_since(first_at).as_secs_f64();
        (passed > 0.0).then(|| number(count - first) / passed)
    }
}

/// Remembers the last looks at something that goes up and down.
#[derive(Debug, Clone, Default)]
pub(super) struct Slope(VecDeque<(Instant, u64)>);

impl Slope {
    /// Looks, and gives by how much it grows a second; less than nothing when it shrinks.
    pub(super) fn look(&mut self, now: Instant, value: u64) -> Option<f64> {
        while self.0.len() >= MAX_LOOKS
            || self.0.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
        self.0.push_back((now, value));
        let (first_at, first) = *self.0.front()?;
        let passed = now.saturating_duration_since(first_at).as_secs_f64();
        (passed > 0.0).then(|| (number(value) - number(first)) / passed)
    }

    /// Forgets everything: what comes next cannot be compared with it.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// A count as a number.
#[expect(clippy::cast_precision_loss, reason = "no count of events reaches 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_its_counter_and_a_cut_is_seen_within_the_window() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(meter.look(start, 1_000), None, "one look is no rate");
        for second in 1..=30 {
            let rate = meter.look(at(second), 1_000 + 50 * second).unwrap();
            assert!((rate - 50.0).abs() < 1e-9, "{rate}");
        }
        for second in 31..=41 {
            meter.look(at(second), 2_500);
        }
        assert_eq!(meter.look(at(42), 2_500), Some(0.0));
        assert_eq!(meter.look(at(43), 10), None, "it was started anew");
        assert_eq!(meter.look(at(44), 17), Some(7.0));
        let mut slope = Slope::default();
        assert_eq!(slope.look(start, 100), None);
        assert_eq!(slope.look(at(2), 140), Some(20.0));
        assert_eq!(slope.look(at(4), 60), Some(-10.0), "it shrinks");
        slope.forget();
        assert_eq!(slope.look(at(5), 0), None);
        let mut often = Meter::default();
        for n in 0..10_000 {
            often.look(start + Duration::from_millis(n), n);
        }
        assert!(often.0.len() <= MAX_LOOKS);
    }
}
