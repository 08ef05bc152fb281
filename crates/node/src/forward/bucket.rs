//! The token bucket that paces backfill.

use std::time::{Duration, Instant};

/// Refills at a steady rate up to a burst. A rate of zero is no limit.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    rate: u64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    /// Starts full.
    pub(crate) fn new(rate: u64, burst: u64, now: Instant) -> Bucket {
        let burst = as_f64(burst.max(1));
        Bucket { rate, burst, tokens: burst, filled_at: now }
    }

    /// How many tokens there are.
    pub(crate) fn available(&mut self, now: Instant) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        self.fill(now);
        whole(self.tokens)
    }

    /// Takes tokens; a gap may take more than there are, which delays what comes after it.
    pub(crate) fn take(&mut self, tokens: u64, now: Instant) {
        if self.rate != 0 {
            self.fill(now);
            // The debt has a floor, so that one batch never delays the next by more than a burst.
            self.tokens = (self.tokens - as_f64(tokens)).max(-self.burst);
        }
    }

    /// When there will be this many.
    pub(crate) fn when(&mut self, tokens: u64, now: Instant) -> Instant {
        if self.rate == 0 {
            return now;
        }
        self.fill(now);
        let missing = as_f64(tokens).min(self.burst) - self.tokens;
        if missing <= 0.0 {
            return now;
        }
        // One millisecond more than the arithmetic says, so that rounding never wakes us too early.
        now + Duration::from_secs_f64(missing / as_f64(self.rate)) + Duration::from_millis(1)
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * as_f64(self.rate)).min(self.burst);
        self.filled_at = self.filled_at.max(now);
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates and bursts are far below 2^52")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a small range that starts at zero"
)]
fn whole(tokens: f64) -> u64 {
    tokens.clamp(0.0, 1e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_refills_at_its_rate_and_never_beyond_its_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100, 50, start);
        assert_eq!(bucket.available(start), 50);
        bucket.take(50, start);
        assert_eq!(bucket.available(start), 0);
        let ready = bucket.when(10, start);
        assert!(bucket.available(ready) >= 10);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 50);
    }

    #[test]
    fn no_rate_is_no_limit() {
        let now = Instant::now();
        let mut bucket = Bucket::new(0, 1, now);
        bucket.take(1_000_000, now);
        assert_eq!(bucket.when(1_000_000, now), now);
        assert_eq!(bucket.available(now), u64::MAX);
    }
}
