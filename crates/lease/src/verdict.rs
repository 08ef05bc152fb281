//! From what a handler said to what is written. Pure.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::queue::Outcome;
use crate::settle::Settle;
use crate::table::MAX_ATTEMPTS;

/// The most characters of a code, a reason or a message that are written.
const MAX_TEXT: usize = 1000;

/// A row as the rules below see it.
pub(crate) struct Judged {
    pub(crate) attempts: u32,
    /// Rows of the same lane are next to each other.
    pub(crate) settle: Settle,
}

/// Applies the rules of the state table: the last attempt buries, and in a lane no row behind an
/// unfinished one is pushed back on its own account, or the head of the lane could be due while its
/// second row is not. Returns how many rows were finished ahead of an unfinished one of their lane,
/// which their handler should not have done.
pub(crate) fn judge(
    rows: &mut [Judged],
    max_attempts: u32,
    backoff: &Backoff,
    mut random: impl FnMut() -> f64,
) -> u64 {
    let mut disordered = 0;
    let mut unfinished_lane = None;
    for row in rows {
        let attempts = row.attempts.saturating_add(1);
        let outcome = std::mem::replace(&mut row.settle.outcome, Outcome::NotTried);
        let behind = unfinished_lane == Some(row.settle.ask);
        row.settle.outcome = match outcome {
            Outcome::Retry { code, message } if attempts >= max_attempts => Outcome::Bury {
                reason: MAX_ATTEMPTS.to_owned(),
                code: clean(code),
                message: clean(message),
            },
            Outcome::Retry { .. } if behind => Outcome::NotTried,
            Outcome::Retry { code, message } => {
                row.settle.delay = backoff.delay(attempts, random());
                Outcome::Retry { code: clean(code), message: clean(message) }
            }
            Outcome::Bury { reason, code, message } => {
                Outcome::Bury { reason: clean(reason), code: clean(code), message: clean(message) }
            }
            other => other,
        };
        match row.settle.outcome {
            Outcome::Done | Outcome::Bury { .. } => disordered += u64::from(behind),
            Outcome::Retry { .. } | Outcome::NotTried => unfinished_lane = Some(row.settle.ask),
        }
    }
    disordered
}

/// What Postgres takes as text, and not more than a person reads.
fn clean(text: String) -> String {
    if text.len() <= MAX_TEXT && !text.contains('\0') {
        return text;
    }
    text.chars().filter(|c| *c != '\0').take(MAX_TEXT).collect()
}

/// How many rows are handed out together when the last failure of one took its worker along: a
/// quarter for each failure, then one alone, so that one bad row does not bury its neighbours.
pub(crate) fn suspects_together(batch: u32, attempts: u32) -> usize {
    let together = batch.checked_shr(attempts.saturating_mul(2)).unwrap_or(0).max(1);
    usize::try_from(together).unwrap_or(usize::MAX)
}

/// The delay before a lane is looked at again, from the first of its rows that is unfinished.
pub(crate) fn lane_delay(rows: &[&Settle]) -> Option<Duration> {
    rows.iter().find_map(|row| match row.outcome {
        Outcome::Done | Outcome::Bury { .. } => None,
        Outcome::Retry { .. } | Outcome::NotTried => Some(row.delay),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome(number: u8) -> Outcome {
        let text = |word: &str| word.to_owned();
        match number {
            0 => Outcome::Done,
            1 => Outcome::Retry { code: text("c"), message: text("m") },
            2 => Outcome::Bury { reason: text("r"), code: text("c"), message: text("m") },
            _ => Outcome::NotTried,
        }
    }

    proptest! {
        #[test]
        fn a_lane_has_one_row_that_waits_and_it_is_the_first_unfinished(
            given in proptest::collection::vec((0usize..4, 0u8..4, 0u32..10), 0..40)
        ) {
            let mut given = given;
            given.sort_by_key(|(lane, _, _)| *lane);
            let mut rows: Vec<Judged> = given.iter().map(|(lane, number, attempts)| Judged {
                attempts: *attempts,
                settle: Settle { ask: *lane, id: crate::RowId::Number(1), outcome: outcome(*number), delay: Duration::ZERO },
            }).collect();
            judge(&mut rows, 10, &Backoff::site(), || 0.0);
            for lane in 0..4 {
                let open: Vec<&Judged> = rows.iter().filter(|row| row.settle.ask == lane)
                    .filter(|row| !matches!(row.settle.outcome, Outcome::Done | Outcome::Bury { .. }))
                    .collect();
                for later in open.iter().skip(1) {
                    prop_assert_eq!(&later.settle.outcome, &Outcome::NotTried);
                }
            }
            for (row, (_, number, attempts)) in rows.iter().zip(&given) {
                match number {
                    0 => prop_assert_eq!(&row.settle.outcome, &Outcome::Done),
                    1 if *attempts == 9 => {
                        let spent = matches!(&row.settle.outcome, Outcome::Bury { reason, .. } if reason == MAX_ATTEMPTS);
                        prop_assert!(spent);
                    }
                    2 => prop_assert_eq!(&row.settle.outcome, &outcome(2)),
                    3 => prop_assert_eq!(&row.settle.outcome, &Outcome::NotTried),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn suspects_are_parted_until_one_is_alone() {
        let sizes: Vec<usize> = (0..6).map(|n| suspects_together(500, n)).collect();
        assert_eq!(sizes, [500, 125, 31, 7, 1, 1]);
        assert_eq!(suspects_together(500, u32::MAX), 1);
    }

    #[test]
    fn texts_are_what_postgres_takes() {
        assert_eq!(clean("a\0b".to_owned()), "ab");
        assert_eq!(clean("é".repeat(3000)).chars().count(), MAX_TEXT);
    }
}
