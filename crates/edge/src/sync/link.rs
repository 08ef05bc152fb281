//! Whether the cloud may be asked now. Pure: time is passed in.
//!
//! All workers of a process share one link. After a failure it is paused; when the pause is over, one
//! request is let through and the others wait for what it meets.

use std::time::Duration;

use lease::backoff::Backoff;

/// Whoever waits for another's probe looks again after this long.
const PROBE_LOOK: Duration = Duration::from_millis(250);

/// What a request may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// Go.
    Go,
    /// Go, alone: whoever got this must say how it ended.
    Probe,
    /// Not now; perhaps after this long.
    Wait(Duration),
}

#[derive(Debug)]
pub(super) struct Link {
    policy: Backoff,
    failures: u32,
    /// Set while the link is down.
    paused_until: Option<Duration>,
    probing: bool,
    /// Since when the link has been up.
    up_since: Duration,
}

impl Link {
    pub(super) fn new(policy: Backoff) -> Link {
        let (paused_until, up_since) = (None, Duration::ZERO);
        Link { policy, failures: 0, paused_until, probing: false, up_since }
    }

    /// Takes over what forwarders before this one met: so many failures in a row, and a pause that
    /// has this long to go. The first request is a probe.
    pub(super) fn resume(&mut self, now: Duration, failures: u32, left: Duration) {
        if failures > 0 && self.failures == 0 {
            (self.failures, self.paused_until) = (failures, Some(now.saturating_add(left)));
        }
    }

    pub(super) fn ask(&mut self, now: Duration) -> Leave {
        match self.paused_until {
            None => Leave::Go,
            Some(until) if until > now => Leave::Wait(until - now),
            Some(_) if self.probing => Leave::Wait(PROBE_LOOK),
            Some(_) => {
                self.probing = true;
                Leave::Probe
            }
        }
    }

    /// The cloud answered a request that went out with this leave; `reply` says whether with a reply
    /// to its events. Any answer opens the link, only a reply ends the count of failures. True when
    /// it did.
    pub(super) fn answered(&mut self, now: Duration, leave: Leave, reply: bool) -> bool {
        if leave == Leave::Probe {
            (self.paused_until, self.probing, self.up_since) = (None, false, now);
        }
        // A straggler that got through says nothing about the link after the failure.
        let recovered = reply && self.paused_until.is_none() && self.failures > 0;
        if recovered {
            self.failures = 0;
        }
        recovered
    }

    /// The request met the cloud down. Returns how long to leave it alone, and whether this counts
    /// as a failure: requests that were under way when the link went down do not.
    pub(super) fn failed(
        &mut self,
        now: Duration,
        leave: Leave,
        asked: Option<Duration>,
        random: f64,
    ) -> (Duration, bool) {
        let asked = asked.unwrap_or_default();
        if let Some(until) = self.paused_until
            && leave != Leave::Probe
        {
            let until = until.max(now.saturating_add(asked));
            self.paused_until = Some(until);
            return (until.saturating_sub(now), false);
        }
        self.failures = self.failures.saturating_add(1);
        self.probing = false;
        let pause = self.policy.delay(self.failures, random).max(asked);
        self.paused_until = Some(now.saturating_add(pause));
        (pause, true)
    }

    /// Since when the link has been up; `None` while it is down.
    pub(super) fn up_since(&self) -> Option<Duration> {
        self.paused_until.is_none().then_some(self.up_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn link() -> Link {
        Link::new(Backoff::site())
    }

    #[test]
    fn one_probe_goes_out_after_the_pause_and_its_success_opens_the_link() {
        let mut link = link();
        assert_eq!(link.ask(SECOND), Leave::Go);
        assert_eq!(link.failed(SECOND, Leave::Go, None, 0.0), (2 * SECOND, true));
        assert_eq!(link.ask(2 * SECOND), Leave::Wait(SECOND));
        assert_eq!(link.ask(3 * SECOND), Leave::Probe);
        assert_eq!(link.ask(3 * SECOND), Leave::Wait(PROBE_LOOK));
        assert!(!link.answered(3 * SECOND, Leave::Go, true), "a straggler opens nothing");
        assert_eq!(link.up_since(), None);
        assert!(link.answered(4 * SECOND, Leave::Probe, true));
        assert_eq!((link.ask(4 * SECOND), link.up_since()), (Leave::Go, Some(4 * SECOND)));
    }

    #[test]
    fn a_restart_goes_on_where_the_last_process_stopped() {
        let mut link = link();
        link.resume(SECOND, 4, 60 * SECOND);
        assert_eq!((link.ask(2 * SECOND), link.up_since()), (Leave::Wait(59 * SECOND), None));
        assert_eq!(link.ask(61 * SECOND), Leave::Probe);
        assert_eq!(link.failed(61 * SECOND, Leave::Probe, None, 0.0), (32 * SECOND, true));
        let mut link = self::link();
        link.resume(SECOND, 0, Duration::ZERO);
        assert_eq!(link.ask(SECOND), Leave::Go);
    }

    #[test]
    fn failures_in_a_row_double_the_pause_and_stragglers_do_not() {
        let mut link = link();
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let leave = link.ask(now);
            let (pause, counted) = link.failed(now, leave, None, 0.0);
            assert!(counted);
            assert!(!link.failed(now, Leave::Go, None, 0.0).1);
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn what_the_cloud_asks_for_is_the_least() {
        let mut link = link();
        assert_eq!(link.failed(SECOND, Leave::Go, Some(90 * SECOND), 0.5).0, 90 * SECOND);
        let (left, _) = link.failed(2 * SECOND, Leave::Go, Some(200 * SECOND), 0.5);
        assert_eq!(left, 200 * SECOND);
        assert_eq!(link.ask(3 * SECOND), Leave::Wait(199 * SECOND));
    }

    #[test]
    fn an_answer_without_a_reply_opens_the_link_and_keeps_the_count() {
        let mut link = link();
        link.failed(Duration::ZERO, Leave::Go, None, 0.0);
        assert_eq!(link.ask(2 * SECOND), Leave::Probe);
        assert!(!link.answered(2 * SECOND, Leave::Probe, false));
        assert_eq!(link.failed(2 * SECOND, Leave::Go, None, 0.0), (4 * SECOND, true));
        assert_eq!(link.ask(6 * SECOND), Leave::Probe);
        assert!(link.answered(6 * SECOND, Leave::Probe, true));
        assert_eq!(link.failed(6 * SECOND, Leave::Go, None, 0.0), (2 * SECOND, true));
    }
}
