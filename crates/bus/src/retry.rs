//! When a failed message is tried again, and when it is given up. Pure.

use std::time::Duration;

use crate::Cause;
use crate::batch::Mark;

/// More delays than that would be more queues than an operator wants to see.
const MAX_DELAYS: usize = 8;
/// RabbitMQ's limit to a message's time to live is 49 days; a day is more than a retry needs.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Delays and attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    delays: Vec<Duration>,
    attempts: u32,
}

/// Delays that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("retry: {0}")]
pub struct InvalidRetry(&'static str);

impl Retry {
    /// `delays` follow each other, the last one repeats; a message that failed `attempts` times is given up.
    pub fn new(delays: Vec<Duration>, attempts: u32) -> Result<Retry, InvalidRetry> {
        if delays.is_empty() || delays.len() > MAX_DELAYS {
            return Err(InvalidRetry("1 to 8 delays are needed"));
        }
        if !delays.is_sorted_by(|a, b| a < b) {
            return Err(InvalidRetry("each delay must be longer than the one before"));
        }
        if delays.iter().any(|delay| delay.as_millis() == 0 || *delay > MAX_DELAY) {
            return Err(InvalidRetry("a delay must be between 1 ms and 24 h"));
        }
        if attempts == 0 {
            return Err(InvalidRetry("at least one attempt is needed"));
        }
        Ok(Retry { delays, attempts })
    }

    /// For a broker: 1 s, 10 s, then every 60 s, 5 attempts.
    pub fn broker() -> Retry {
        Retry { delays: [1, 10, 60].map(Duration::from_secs).into(), attempts: 5 }
    }

    /// For the inline bus, where a publish waits for it: 100 ms, 500 ms, 2 s, 4 attempts.
    pub fn inline() -> Retry {
        Retry { delays: [100, 500, 2000].map(Duration::from_millis).into(), attempts: 4 }
    }

    /// The delays, shortest first; never empty.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// How often a message may fail.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The delay after a message has failed this often, or nothing when it is to be given up.
    pub fn delay_after(&self, failed: u32) -> Option<Duration> {
        if failed >= self.attempts {
            return None;
        }
        let place = usize::try_from(failed.saturating_sub(1)).unwrap_or(usize::MAX);
        self.delays.get(place).copied().or_else(|| Some(self.longest()))
    }

    fn longest(&self) -> Duration {
        self.delays.last().copied().unwrap_or(MAX_DELAY)
    }

    /// What becomes of a message that had failed `attempts` times before, by the handler's mark.
    pub(crate) fn decide(&self, mark: Mark, attempts: u32) -> Verdict {
        let failed = attempts.saturating_add(1);
        match mark {
            Mark::Done => Verdict::Done,
            Mark::Defer => Verdict::Again { delay: self.longest(), attempts, cause: None },
            Mark::DeadLetter(cause) => Verdict::GiveUp { attempts: failed, cause },
            Mark::Retry(cause) => match self.delay_after(failed) {
                Some(delay) => Verdict::Again { delay, attempts: failed, cause: Some(cause) },
                None => Verdict::GiveUp { attempts: failed, cause },
            },
        }
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is acknowledged.
    Done,
    /// It comes again; without a cause it was deferred.
    Again {
        /// After this time.
        delay: Duration,
        /// Having failed this often.
        attempts: u32,
        /// The last failure.
        cause: Option<Cause>,
    },
    /// It becomes a dead letter.
    GiveUp {
        /// Having failed this often.
        attempts: u32,
        /// The last failure.
        cause: Cause,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_each_other_and_end() {
        let retry = Retry::broker();
        let seconds: Vec<_> =
            (1..=6).map(|failed| retry.delay_after(failed).map(|d| d.as_secs())).collect();
        assert_eq!(seconds, [Some(1), Some(10), Some(60), Some(60), None, None]);
    }

    #[test]
    fn a_deferral_is_no_attempt() {
        let retry = Retry::inline();
        let verdict = retry.decide(Mark::Defer, 3);
        let longest = Duration::from_secs(2);
        assert_eq!(verdict, Verdict::Again { delay: longest, attempts: 3, cause: None });
        let cause = Cause::new("c", "m");
        assert_eq!(
            retry.decide(Mark::Retry(cause.clone()), 3),
            Verdict::GiveUp { attempts: 4, cause }
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let ms = |all: &[u64]| all.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        for (delays, attempts) in [
            (ms(&[]), 1),
            (ms(&[0]), 1),
            (ms(&[5, 5]), 1),
            (ms(&[9, 5]), 1),
            (ms(&[5]), 0),
            (ms(&[90_000_000]), 1),
        ] {
            assert!(Retry::new(delays.clone(), attempts).is_err(), "{delays:?} {attempts}");
        }
        assert!(Retry::new(ms(&[1, 2]), 1).is_ok());
    }
}
