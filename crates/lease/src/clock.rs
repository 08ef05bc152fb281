//! The time that breakers and waiting lanes go by. Leases do not: theirs is the database's.

use std::time::{Duration, Instant};

/// A clock that can run faster than the wall's, so that days of outage pass in a test's seconds.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    factor: u32,
}

impl Clock {
    /// The real clock.
    pub fn real() -> Clock {
        Clock::faster(1)
    }

    /// A clock on which `factor` seconds pass in each second.
    pub fn faster(factor: u32) -> Clock {
        Clock { start: Instant::now(), factor: factor.max(1) }
    }

    /// The time on this clock since it was made.
    pub fn now(&self) -> Duration {
        self.start.elapsed().saturating_mul(self.factor)
    }

    /// How long a stretch of this clock's time takes in real time.
    pub(crate) fn real_time(&self, stretch: Duration) -> Duration {
        stretch / self.factor
    }
}
