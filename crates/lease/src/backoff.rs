//! How long a row waits before it is tried again. Pure: the random part is passed in.

use std::time::Duration;

/// The doubling stops here; 2^32 of any base is beyond every cap.
const MAX_DOUBLINGS: u32 = 32;

/// How long to wait after the n-th failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backoff {
    /// `min(2^n * base, cap)`, and then up to `jitter` more. The jitter comes after the cap, so that
    /// rows that wait at the cap still spread.
    Exponential {
        /// What is doubled.
        base: Duration,
        /// The longest wait, before the jitter.
        cap: Duration,
        /// The most that is added.
        jitter: Duration,
    },
    /// A fixed list: the n-th failure waits the n-th entry, and the last one repeats. An empty list
    /// waits not at all.
    Schedule(Vec<Duration>),
}

impl Backoff {
    /// The site's policy: one second doubled up to five minutes, with up to a second of jitter.
    pub fn site() -> Backoff {
        Backoff::Exponential {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(300),
            jitter: Duration::from_secs(1),
        }
    }

    /// The SCADA dispatcher's policy: 5 s, 30 s, 2 min, 10 min, 30 min, then an hour each time.
    pub fn scada() -> Backoff {
        Backoff::Schedule([5, 30, 120, 600, 1800, 3600].map(Duration::from_secs).to_vec())
    }

    /// The wait after `failures` failures, the one just met included. `random` is from 0 to 1 and
    /// chooses the jitter; anything outside counts as the nearer end.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        match self {
            Backoff::Exponential { base, cap, jitter } => {
                let factor = 1u64 << failures.min(MAX_DOUBLINGS);
                let nanos = base.as_nanos().saturating_mul(u128::from(factor));
                let waited = if nanos >= cap.as_nanos() {
                    *cap
                } else {
                    // Below the cap, which is a Duration, so the nanoseconds fit.
                    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
                };
                let random = if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) };
                waited.saturating_add(jitter.mul_f64(random))
            }
            Backoff::Schedule(list) => {
                let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
                list.get(index).or(list.last()).copied().unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_site_doubles_to_five_minutes() {
        let seconds: Vec<u64> = (0..12).map(|n| Backoff::site().delay(n, 0.0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn the_schedule_is_followed_and_its_end_repeats() {
        let seconds: Vec<u64> = (1..9).map(|n| Backoff::scada().delay(n, 0.7).as_secs()).collect();
        assert_eq!(seconds, [5, 30, 120, 600, 1800, 3600, 3600, 3600]);
        assert_eq!(Backoff::Schedule(Vec::new()).delay(3, 0.5), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn exponential_is_bounded_and_grows(
            base in 1u64..10_000, cap in 1u64..1_000_000, jitter in 0u64..5_000,
            failures in any::<u32>(), random in any::<f64>(),
        ) {
            let [base, cap, jitter] = [base, cap, jitter].map(Duration::from_millis);
            let policy = Backoff::Exponential { base, cap, jitter };
            let delay = policy.delay(failures, random);
            prop_assert!(delay >= base.min(cap) && delay <= cap + jitter);
            prop_assert!(policy.delay(failures.saturating_add(1), 0.0) >= policy.delay(failures, 0.0));
        }

        #[test]
        fn jitter_spreads_at_the_cap(failures in 20u32..200, a in 0.0f64..1.0, b in 0.0f64..1.0) {
            let site = Backoff::site();
            let (first, second) = (site.delay(failures, a), site.delay(failures, b));
            prop_assert_eq!(a < b - 1e-6, first < second && b - a > 1e-6);
        }
    }
}
