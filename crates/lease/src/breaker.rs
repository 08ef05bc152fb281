//! The breaker of one destination. Pure: time is passed in, as the time since some fixed start.
//!
//! | state | lets through | leaves by |
//! |---|---|---|
//! | Closed | everything | a batch that met the destination down: Open |
//! | Open | nothing until its time has come | the time: HalfOpen, with the next batch as the probe |
//! | HalfOpen | nothing but the one probe | the probe reached it: Closed; it did not: Open, for longer; it had no rows: Open, due at once |
//!
//! Batches that were under way when the breaker opened may still report. That they also failed
//! neither lengthens the wait nor counts; that one of them got through closes nothing, because only
//! the probe was sent after the failure.

use std::time::Duration;

use crate::backoff::Backoff;

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The destination is taken for reachable.
    Closed,
    /// The destination is left alone until this time.
    Open {
        /// When a probe may go out.
        until: Duration,
    },
    /// One probe is under way.
    HalfOpen,
}

/// What a worker may send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// A batch like any other.
    Full,
    /// One probe batch. Whoever got this must report with [`Breaker::reached`], [`Breaker::down`] or
    /// [`Breaker::unused`].
    Probe,
    /// Nothing until this time; `None` means until the probe that is under way has reported.
    Wait(Option<Duration>),
}

/// The breaker of one destination; see the module.
#[derive(Debug, Clone)]
pub struct Breaker {
    policy: Backoff,
    state: State,
    failures: u32,
}

impl Breaker {
    /// A closed breaker that waits between probes as `policy` says.
    pub fn new(policy: Backoff) -> Breaker {
        Breaker { policy, state: State::Closed, failures: 0 }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// How many batches or probes in a row found the destination down.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Says what may be sent now, without taking it.
    pub fn look(&self, now: Duration) -> Admission {
        match self.state {
            State::Closed => Admission::Full,
            State::Open { until } if until <= now => Admission::Probe,
            State::Open { until } => Admission::Wait(Some(until)),
            State::HalfOpen => Admission::Wait(None),
        }
    }

    /// Takes what may be sent now; a probe is given once.
    pub fn admit(&mut self, now: Duration) -> Admission {
        let admission = self.look(now);
        if admission == Admission::Probe {
            self.state = State::HalfOpen;
        }
        admission
    }

    /// A batch admitted as `admission` reached the destination. True when that closed the breaker.
    pub fn reached(&mut self, admission: Admission) -> bool {
        if admission != Admission::Probe || self.state != State::HalfOpen {
            return false;
        }
        self.state = State::Closed;
        self.failures = 0;
        true
    }

    /// A batch admitted as `admission` found the destination down. `retry_after` is what the
    /// destination asked for; it is waited for at least. True when that opened the breaker.
    pub fn down(
        &mut self,
        now: Duration,
        admission: Admission,
        retry_after: Option<Duration>,
        random: f64,
    ) -> bool {
        let asked = retry_after.unwrap_or_default();
        match (self.state, admission) {
            (State::Closed, _) | (State::HalfOpen, Admission::Probe) => {
                self.failures = self.failures.saturating_add(1);
                let wait = self.policy.delay(self.failures, random).max(asked);
                self.state = State::Open { until: now.saturating_add(wait) };
                true
            }
            (State::Open { until }, _) => {
                // A straggler: it counts nothing, and what the destination asked for is kept.
                self.state = State::Open { until: until.max(now.saturating_add(asked)) };
                false
            }
            (State::HalfOpen, _) => false,
        }
    }

    /// A probe had nothing to send: the next batch is the probe.
    pub fn unused(&mut self, now: Duration, admission: Admission) {
        if admission == Admission::Probe && self.state == State::HalfOpen {
            self.state = State::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_days_of_outage_are_some_hundred_probes() {
        let mut breaker = Breaker::new(Backoff::site());
        let (mut now, mut probes) = (Duration::ZERO, 0);
        assert!(breaker.down(now, Admission::Full, None, 0.5));
        while now < Duration::from_secs(48 * 3600) {
            let Admission::Wait(Some(until)) = breaker.admit(now) else { panic!("not open") };
            now = until;
            assert_eq!(breaker.admit(now), Admission::Probe);
            assert_eq!(breaker.admit(now), Admission::Wait(None), "one probe at a time");
            assert!(breaker.down(now, Admission::Probe, None, 0.5));
            probes += 1;
        }
        assert!((550..620).contains(&probes), "{probes}");
        now += Duration::from_secs(400);
        let admission = breaker.admit(now);
        assert!(breaker.reached(admission));
        assert_eq!((breaker.state(), breaker.failures()), (State::Closed, 0));
    }

    #[test]
    fn what_the_destination_asked_for_is_waited() {
        let mut breaker = Breaker::new(Backoff::site());
        let asked = Duration::from_secs(900);
        breaker.down(Duration::ZERO, Admission::Full, Some(asked), 0.0);
        assert_eq!(breaker.look(Duration::ZERO), Admission::Wait(Some(asked)));
        // A straggler that was told to wait longer is heeded too.
        breaker.down(Duration::from_secs(1), Admission::Full, Some(asked * 2), 0.0);
        assert_eq!(
            breaker.look(Duration::ZERO),
            Admission::Wait(Some(asked * 2 + Duration::from_secs(1)))
        );
        assert_eq!(breaker.failures(), 1);
    }

    proptest! {
        /// Whatever happens in whatever order: at most one probe is out, nothing else passes while it
        /// is not closed, and a full admission never closes it.
        #[test]
        fn one_probe_and_nothing_else(steps in proptest::collection::vec((0u8..5, 0u64..400), 1..200)) {
            let mut breaker = Breaker::new(Backoff::site());
            let mut now = Duration::ZERO;
            let mut probe_out = false;
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                let before = breaker.state();
                match step {
                    0 | 1 => match breaker.admit(now) {
                        Admission::Full => prop_assert_eq!(before, State::Closed),
                        Admission::Probe => {
                            prop_assert!(!probe_out);
                            probe_out = true;
                        }
                        Admission::Wait(_) => prop_assert!(before != State::Closed),
                    },
                    2 => { breaker.down(now, Admission::Full, None, 0.3); }
                    3 => prop_assert!(!breaker.reached(Admission::Full)),
                    _ if probe_out => {
                        probe_out = false;
                        match seconds % 3 {
                            0 => prop_assert!(breaker.reached(Admission::Probe)),
                            1 => prop_assert!(breaker.down(now, Admission::Probe, None, 0.3)),
                            _ => breaker.unused(now, Admission::Probe),
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(probe_out, breaker.state() == State::HalfOpen);
            }
        }
    }
}
