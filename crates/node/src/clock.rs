//! Whether the clock is known to be set.
//!
//! A small computer without a battery-backed clock starts in the past and jumps when it first hears from a
//! time server. Samples taken before that are marked, not dropped. Sequences never depend on the clock.
//!
//! The evidence is a marker file: systemd-timesyncd makes one at its first synchronisation, and any other
//! time service can be told to. Asking the kernel (`adjtimex`) would need a system call that no safe interface offers.

use crate::config::Clock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long an answer stays good; the marker is not looked up for every sample.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Answers whether the clock is set. Once it was set it stays so until the process ends.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    config: Clock,
    last: Mutex<(bool, Option<Instant>)>,
}

impl ClockWatch {
    /// Watches as configured.
    pub(crate) fn new(config: Clock) -> ClockWatch {
        let set = config.assume_set;
        ClockWatch { config, last: Mutex::new((set, None)) }
    }

    /// Whether the clock is known to be set.
    pub(crate) fn is_set(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (set, looked_at) = *last;
        if set || looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return set;
        }
        let set = self.config.marker.exists();
        *last = (set, Some(Instant::now()));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_sets_the_clock_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("synchronized");
        let watch = ClockWatch::new(Clock { assume_set: false, marker: marker.clone() });
        assert!(!watch.is_set());
        std::fs::write(&marker, "").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !watch.is_set() {
            assert!(Instant::now() < deadline, "the marker was never seen");
            std::thread::yield_now();
        }
        std::fs::remove_file(&marker).unwrap();
        assert!(watch.is_set());
        let assumed = ClockWatch::new(Clock { assume_set: true, marker });
        assert!(assumed.is_set());
    }
}
