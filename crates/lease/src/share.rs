//! Sharing a number of places fairly.

/// Shares `limit` among those who want `demands`: nobody gets more than it wants, nothing is left
/// over while somebody wants more, and nobody gets less than an even part unless it wants less.
/// What cannot be divided goes to the first ones.
pub(crate) fn fair(limit: u32, demands: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    // The smallest demand first: what it leaves is for the others. Of equal ones the last comes
    // first, because a remainder goes to whoever is asked later.
    order.sort_by_key(|&i| (demands[i], std::cmp::Reverse(i)));
    let mut shares = vec![0; demands.len()];
    let mut left = limit;
    for (done, &i) in order.iter().enumerate() {
        let others = u32::try_from(demands.len() - done).unwrap_or(u32::MAX);
        shares[i] = demands[i].min(left / others);
        left -= shares[i];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_million_rows_leave_room_for_one() {
        assert_eq!(fair(500, &[1_000_000, 1, 3]), [496, 1, 3]);
        assert_eq!(fair(2, &[9, 9, 9]), [1, 1, 0]);
        assert_eq!(fair(0, &[9]), [0]);
        assert!(fair(5, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn shares_are_fair(limit in 0u32..2000, demands in proptest::collection::vec(0u32..3000, 0..40)) {
            let shares = fair(limit, &demands);
            let wanted: u64 = demands.iter().map(|d| u64::from(*d)).sum();
            let given: u64 = shares.iter().map(|s| u64::from(*s)).sum();
            prop_assert_eq!(given, wanted.min(u64::from(limit)));
            for (share, demand) in shares.iter().zip(&demands) {
                let even = limit / u32::try_from(demands.len()).unwrap();
                prop_assert!(share <= demand && *share >= even.min(*demand));
            }
        }
    }
}
