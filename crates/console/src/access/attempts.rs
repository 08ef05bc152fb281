//! How often somebody may try to sign in: a bucket for each address, and one for all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::rate::Bucket;

/// Addresses remembered; beyond it all of them start anew, which the bucket for all still bounds.
const MAX_ADDRESSES: usize = 4_096;
/// An address may try so often at once, and one more in three seconds.
const AT_ONCE: f64 = 10.0;
const A_SECOND: f64 = 1.0 / 3.0;
/// All addresses together.
const ALL_AT_ONCE: f64 = 50.0;
const ALL_A_SECOND: f64 = 5.0;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Attempts(Mutex<(Bucket, HashMap<IpAddr, Bucket>)>);

impl Attempts {
    pub(crate) fn new(now: Instant) -> Attempts {
        let all = Bucket::new(ALL_A_SECOND, ALL_AT_ONCE, now);
        Attempts(Mutex::new((all, HashMap::new())))
    }

    /// Counts an attempt, or says how long to wait.
    pub(crate) fn take(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *held;
        if by_address.len() >= MAX_ADDRESSES && !by_address.contains_key(&from) {
            by_address.clear();
        }
        let own = by_address.entry(from).or_insert_with(|| Bucket::new(A_SECOND, AT_ONCE, now));
        own.take(1.0, now)?;
        all.take(1.0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_try_for_ever_and_does_not_shut_out_another() {
        let now = Instant::now();
        let attempts = Attempts::new(now);
        let (one, two) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let let_in = (0..30).filter(|_| attempts.take(one, now).is_ok()).count();
        assert_eq!(let_in, 10);
        assert!(attempts.take(two, now).is_ok());
        assert!(attempts.take(one, now + Duration::from_secs(4)).is_ok(), "after a pause");
        let others = (0..=255).map(|n| IpAddr::from([10, 0, 1, n]));
        let let_in = others.filter(|from| attempts.take(*from, now).is_ok()).count();
        assert!(let_in < 60, "many addresses together are bounded too: {let_in}");
    }
}
