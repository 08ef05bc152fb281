//! As many points as a screen shows, with every spike. Pure.
//!
//! The time is cut into buckets of equal length, and of each the lowest and the highest sample stay, in their order: whatever stands out is
//! still there, which an average would hide. A line is broken where nothing came for long, or where a gap is known.

/// Nothing for so many times the usual distance is a break.
const BREAK_AFTER: f64 = 5.0;

/// A sample: seconds since 1970, and its value.
pub(super) type Sample = (f64, f64);

/// Samples in the order of time, reduced to at most two for each of `width` buckets.
pub(super) fn reduce(samples: &[Sample], from: f64, to: f64, width: usize) -> Vec<Sample> {
    let width = width.max(1);
    if samples.len() <= width * 2 || to <= from {
        return samples.to_vec();
    }
    let bucket = |at: f64| -> usize {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a screen is narrower than 2^52, and a place left of it is its first"
        )]
        let place = ((at - from) / (to - from) * width as f64) as usize;
        place.min(width - 1)
    };
    let mut kept = Vec::with_capacity(width * 2);
    let mut start = 0;
    while start < samples.len() {
        let place = bucket(samples[start].0);
        let (mut lowest, mut highest, mut end) = (start, start, start + 1);
        while end < samples.len() && bucket(samples[end].0) == place {
            if samples[end].1 < samples[lowest].1 {
                lowest = end;
            }
            if samples[end].1 > samples[highest].1 {
                highest = end;
            }
            end += 1;
        }
        kept.push(samples[lowest.min(highest)]);
        if lowest != highest {
            kept.push(samples[lowest.max(highest)]);
        }
        start = end;
    }
    kept
}

/// Where nothing came for longer than usual: from the sample before to the one after.
pub(super) fn breaks(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut distances: Vec<f64> = samples.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    if distances.len() < 2 {
        return Vec::new();
    }
    let middle = distances.len() / 2;
    let (_, median, _) = distances.select_nth_unstable_by(middle, f64::total_cmp);
    let limit = *median * BREAK_AFTER;
    if limit <= 0.0 {
        return Vec::new();
    }
    let pairs = samples.windows(2).map(|pair| (pair[0].0, pair[1].0));
    pairs.filter(|(before, after)| after - before > limit).collect()
}

/// The columns of a plot: where a break or a known gap lies between two points, a null stands between them.
pub(super) fn columns(
    points: &[Sample],
    breaks: &[(f64, f64)],
    gaps: &[(f64, f64)],
) -> (Vec<f64>, Vec<Option<f64>>) {
    let mut holes: Vec<f64> =
        breaks.iter().chain(gaps).map(|(before, after)| f64::midpoint(*before, *after)).collect();
    holes.sort_by(f64::total_cmp);
    let mut holes = holes.into_iter().peekable();
    let (mut times, mut values) =
        (Vec::with_capacity(points.len()), Vec::with_capacity(points.len()));
    let mut last = f64::NEG_INFINITY;
    for (at, value) in points {
        let mut hole = None;
        while let Some(one) = holes.next_if(|one| one < at) {
            hole = Some(one);
        }
        if let Some(hole) = hole.filter(|hole| !times.is_empty() && *hole > last) {
            times.push(hole);
            values.push(None);
        }
        times.push(*at);
        values.push(Some(*value));
        last = *at;
    }
    (times, values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let sample = (0.0_f64..1_000.0, -50.0_f64..50.0);
        proptest::collection::vec(sample, 0..2_000).prop_map(|mut samples| {
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            samples
        })
    }

    proptest! {
        #[test]
        fn every_spike_stays_and_nothing_is_made_up(samples in samples(), width in 1_usize..400) {
            let kept = reduce(&samples, 0.0, 1_000.0, width);
            prop_assert!(kept.len() <= (width * 2).max(samples.len().min(width * 2)));
            prop_assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            prop_assert!(kept.iter().all(|one| samples.contains(one)));
            let value = |list: &[Sample]| -> Vec<(f64, f64)> {
                // The lowest and the highest of each bucket.
                (0..width).map(|bucket| {
                    #[expect(clippy::cast_precision_loss, reason = "small")]
                    let (a, b) = (bucket as f64 * 1_000.0 / width as f64, (bucket + 1) as f64 * 1_000.0 / width as f64);
                    let within = list.iter().filter(|(at, _)| *at >= a && *at < b).map(|(_, value)| *value);
                    let within: Vec<f64> = within.collect();
                    (within.iter().copied().fold(f64::INFINITY, f64::min), within.iter().copied().fold(f64::NEG_INFINITY, f64::max))
                }).collect()
            };
            // A sample on the border of two buckets may count for either, so the border's neighbours decide together.
            let (all, shown) = (value(&samples), value(&kept));
            let worst = |list: &[(f64, f64)]| list.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |sum, one| (sum.0.min(one.0), sum.1.max(one.1)));
            for window in 0..width {
                let near = window.saturating_sub(1)..(window + 2).min(width);
                let (all, shown) = (worst(&all[near.clone()]), worst(&shown[near]));
                prop_assert_eq!(all, shown);
            }
        }
    }

    #[test]
    fn a_single_spike_among_a_million_stays() {
        let flat = (0..1_000_000_u32).map(|n| (f64::from(n), 20.0));
        let mut samples: Vec<Sample> = flat.collect();
        samples[654_321].1 = 95.0;
        samples[123_456].1 = -40.0;
        let kept = reduce(&samples, 0.0, 1_000_000.0, 1_000);
        assert!(kept.len() <= 2_000);
        assert!(kept.contains(&(654_321.0, 95.0)) && kept.contains(&(123_456.0, -40.0)));
    }

    #[test]
    fn the_line_breaks_where_nothing_came_and_where_a_gap_is_known() {
        let early = (0..100).map(|n| (f64::from(n), 1.0));
        let late = (200..300).map(|n| (f64::from(n), 2.0));
        let samples: Vec<Sample> = early.chain(late).collect();
        let found = breaks(&samples);
        assert_eq!(found, [(99.0, 200.0)]);
        let (times, values) = columns(&samples, &found, &[(250.2, 250.6)]);
        assert_eq!(values.iter().filter(|value| value.is_none()).count(), 2);
        assert!(times.is_sorted());
        let at = times.iter().position(|at| *at > 99.0 && *at < 200.0).unwrap();
        assert_eq!(values[at], None);
        let (times, _) = columns(&samples[..50], &[], &[(500.0, 600.0), (-9.0, -5.0)]);
        assert_eq!(times.len(), 50, "a gap outside of the points breaks nothing");
        assert!(breaks(&[(1.0, 1.0)]).is_empty() && breaks(&[]).is_empty());
    }
}
