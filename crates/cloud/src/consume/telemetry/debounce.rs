//! When a changed aggregate is published. Pure: the time is passed in.
//!
//! A bucket that still changes would be published with every reading. It is published when it has
//! closed and has been quiet for a while; and if it never gets quiet (a backfill of hours), after the
//! longest wait all the same, so that a late correction is neither a flood nor kept back for ever.

use std::time::Duration;

use jiff::Timestamp;

/// How patient publishing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debounce {
    /// Published when nothing has changed for this long.
    pub quiet: Duration,
    /// Published after this long though it goes on changing.
    pub longest: Duration,
}

impl Debounce {
    /// When an aggregate is to be published that changed at `now`, first since it was last published
    /// at `changed_since`. A bucket that has not ended is not published before it has.
    pub fn publish_at(
        &self,
        bucket_end: Timestamp,
        changed_since: Timestamp,
        now: Timestamp,
    ) -> Timestamp {
        let quiet = after(now, self.quiet);
        let longest = after(changed_since, self.longest);
        quiet.min(longest).max(bucket_end)
    }
}

fn after(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEBOUNCE: Debounce =
        Debounce { quiet: Duration::from_secs(30), longest: Duration::from_secs(600) };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_open_bucket_waits_for_its_end_and_a_closed_one_for_quiet() {
        let end = at(3_600);
        assert_eq!(DEBOUNCE.publish_at(end, at(10), at(3_000)), end, "open");
        assert_eq!(DEBOUNCE.publish_at(end, at(3_000), at(3_590)), end, "the longest wait is over");
        assert_eq!(DEBOUNCE.publish_at(end, at(3_590), at(3_595)), at(3_625), "closing");
        assert_eq!(DEBOUNCE.publish_at(end, at(9_000), at(9_000)), at(9_030), "late");
        assert_eq!(DEBOUNCE.publish_at(end, at(9_000), at(9_590)), at(9_600), "never quiet");
    }

    proptest! {
        /// Whatever the changes, a bucket is published at a bounded rate, after every change, and no
        /// change waits longer than the longest wait once the bucket has closed.
        #[test]
        fn changes_are_published_at_a_bounded_rate(
            end in 0_i64..5_000,
            gaps in proptest::collection::vec(0_i64..120, 1..200),
        ) {
            let (mut now, mut since, mut due): (i64, Option<i64>, Option<i64>) = (0, None, None);
            let mut published: Vec<(i64, i64)> = Vec::new();
            for gap in gaps {
                now += gap;
                if let (Some(at), Some(first)) = (due, since) && at <= now {
                    published.push((first, at));
                    (since, due) = (None, None);
                }
                let first = *since.get_or_insert(now);
                let next = DEBOUNCE.publish_at(at(end), at(first), at(now)).as_second();
                prop_assert!(due.is_none_or(|before| next >= before || next <= first + 600));
                due = Some(next);
            }
            published.extend(since.zip(due));
            for (first, at) in &published {
                prop_assert!(*at >= end && *at <= (first + 600).max(end), "{first} {at}");
                prop_assert!(*at >= first + 30 || *at == end, "{first} {at}");
            }
            for pair in published.windows(2) {
                prop_assert!(pair[1].1 - pair[0].1 >= 30, "{pair:?}");
            }
        }
    }
}
