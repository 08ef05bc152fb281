//! A token bucket: so much a second, with some in hand. Pure; time is passed in.

use std::time::{Duration, Instant};

/// A bucket that fills by `per_second` up to `burst`.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_second: f64, burst: f64, now: Instant) -> Bucket {
        Bucket { per_second, burst, level: burst, at: now }
    }

    /// Takes `cost` if the bucket has anything in hand; else how long until it has.
    ///
    /// The level may go below zero: a batch is let through whole and paid off afterwards, so that a
    /// large one is never refused for good.
    pub fn take(&mut self, cost: f64, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        if self.level > 0.0 {
            self.level -= cost;
            return Ok(());
        }
        // Until there is one whole unit again, so that whoever waits as told is let in.
        Err(Duration::from_secs_f64((1.0 - self.level) / self.per_second))
    }

    /// Takes `cost` in any case, for what is known only after it was let through.
    pub fn owe(&mut self, cost: f64, now: Instant) {
        self.fill(now);
        self.level -= cost;
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.burst);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time_and_waiting_as_told_is_enough() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 20.0, start);
        let mut now = start;
        let mut taken = 0;
        while now < start + Duration::from_secs(60) {
            match bucket.take(5.0, now) {
                Ok(()) => taken += 5,
                Err(wait) => {
                    now += wait;
                    assert!(bucket.take(5.0, now).is_ok(), "the wait was long enough");
                    taken += 5;
                }
            }
        }
        assert!((600..=630).contains(&taken), "{taken}");
    }

    #[test]
    fn what_is_owed_is_paid_off_before_the_next_is_let_in() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 20.0, start);
        assert!(bucket.take(0.0, start).is_ok());
        bucket.owe(50.0, start);
        let wait = bucket.take(0.0, start).unwrap_err();
        assert!(bucket.take(0.0, start + wait / 2).is_err());
        assert!(bucket.take(0.0, start + wait).is_ok(), "the wait was long enough");
    }

    #[test]
    fn a_cost_beyond_the_burst_is_let_through_once_and_paid_off() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 20.0, start);
        assert!(bucket.take(1_000.0, start).is_ok());
        let wait = bucket.take(1.0, start).unwrap_err();
        assert!(wait > Duration::from_secs(97) && wait < Duration::from_secs(99), "{wait:?}");
    }
}
