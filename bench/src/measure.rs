//! Measuring two things side by side.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs `ours` and `theirs` in turns, the first of a round changing, so that a slow moment of the machine meets both. Returns
/// the median of each.
pub(crate) fn interleaved(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<(f64, f64)> {
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            of_ours.push(ours()?);
            of_theirs.push(theirs()?);
        } else {
            of_theirs.push(theirs()?);
            of_ours.push(ours()?);
        }
    }
    Ok((median(of_ours), median(of_theirs)))
}

/// The middle one; of an even number, the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The value that this share of them does not exceed.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * share).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into a list that is in memory"
    )]
    sorted.get(at as usize).copied().unwrap_or(f64::NAN)
}

/// How often a second something happened that happened `count` times since `start`.
pub(crate) fn per_second(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// A time in microseconds for each of `count`.
pub(crate) fn micros_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}
