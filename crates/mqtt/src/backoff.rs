//! How long to wait before the next attempt.

use rand::{Rng, RngExt};
use std::time::Duration;

/// Exponential backoff. The jitter, up to half of the delay, is added **after** the cap: if it were capped
/// too, every client that has reached the cap would come back at the same moment.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    /// The first delay is `base`, each later one twice the one before, up to `cap`.
    pub fn new(base: Duration, cap: Duration) -> Backoff {
        Backoff { base, cap, next: base.min(cap) }
    }

    /// The delay before the next attempt.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.cap);
        delay.saturating_add(delay.mul_f64(rng.random_range(0.0..=0.5)))
    }

    /// An attempt succeeded: start again from `base`.
    pub fn reset(&mut self) {
        self.next = self.base.min(self.cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    proptest! {
        #[test]
        fn delays_double_to_the_cap_and_spread_there(seed: u64, base in 1u64..5_000, cap in 1u64..600_000) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut backoff = Backoff::new(base, cap);
            let mut expected = base.min(cap);
            let mut at_cap = Vec::new();
            for _ in 0..40 {
                let delay = backoff.next(&mut rng);
                prop_assert!(delay >= expected && delay <= expected.mul_f64(1.5) + Duration::from_nanos(1));
                if expected == cap {
                    at_cap.push(delay);
                }
                expected = (expected * 2).min(cap);
            }
            at_cap.dedup();
            prop_assert!(at_cap.len() > 10, "retries at the cap do not spread");
            backoff.reset();
            prop_assert!(backoff.next(&mut rng) <= base.min(cap).mul_f64(1.5) + Duration::from_nanos(1));
        }
    }
}
