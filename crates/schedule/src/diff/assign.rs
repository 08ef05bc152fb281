//! The cheapest one-to-one assignment (the Hungarian method with potentials). Pure, cubic, deterministic.

/// For each row the column it is given, such that the sum of costs is the least. There are at least as many columns as rows, and every row
/// of `costs` has the same length.
pub(super) fn cheapest(costs: &[Vec<i64>]) -> Vec<usize> {
    let rows = costs.len();
    let columns = costs.first().map_or(0, Vec::len);
    debug_assert!(rows <= columns || rows == 0);
    // Row and column 0 stand for "none", as the method is told in books.
    let mut row_potential = vec![0i64; rows + 1];
    let mut column_potential = vec![0i64; columns + 1];
    let mut row_of = vec![0usize; columns + 1];
    for row in 1..=rows {
        let mut came_from = vec![0usize; columns + 1];
        let mut slack = vec![i64::MAX; columns + 1];
        let mut used = vec![false; columns + 1];
        let mut column = 0;
        row_of[0] = row;
        // A path of alternating pairs grows by one column a step until it ends at a free one.
        loop {
            used[column] = true;
            let from = row_of[column];
            let (mut least, mut next) = (i64::MAX, 0);
            for to in (1..=columns).filter(|to| !used[*to]) {
                let reduced = costs[from - 1][to - 1] - row_potential[from] - column_potential[to];
                if reduced < slack[to] {
                    (slack[to], came_from[to]) = (reduced, column);
                }
                if slack[to] < least {
                    (least, next) = (slack[to], to);
                }
            }
            for to in 0..=columns {
                if used[to] {
                    row_potential[row_of[to]] += least;
                    column_potential[to] -= least;
                } else if slack[to] < i64::MAX {
                    slack[to] -= least;
                }
            }
            column = next;
            if row_of[column] == 0 {
                break;
            }
        }
        while column != 0 {
            row_of[column] = row_of[came_from[column]];
            column = came_from[column];
        }
    }
    let mut column_of = vec![0; rows];
    for (column, row) in row_of.iter().enumerate().skip(1).filter(|(_, row)| **row > 0) {
        column_of[row - 1] = column - 1;
    }
    column_of
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn brute(costs: &[Vec<i64>], free: &[usize]) -> i64 {
        let Some((first, rest)) = costs.split_first() else { return 0 };
        let choices = free.iter().map(|column| {
            let others: Vec<usize> = free.iter().copied().filter(|c| c != column).collect();
            first[*column] + brute(rest, &others)
        });
        choices.min().unwrap()
    }

    proptest! {
        #[test]
        fn it_is_the_cheapest(
            costs in (0usize..5, 0usize..3).prop_flat_map(|(rows, more)| {
                proptest::collection::vec(proptest::collection::vec(-20i64..50, rows + more), rows)
            })
        ) {
            let given = cheapest(&costs);
            let columns = costs.first().map_or(0, Vec::len);
            let mut different = given.clone();
            different.sort_unstable();
            different.dedup();
            prop_assert_eq!(different.len(), costs.len());
            let total: i64 = costs.iter().zip(&given).map(|(row, column)| row[*column]).sum();
            prop_assert_eq!(total, brute(&costs, &(0..columns).collect::<Vec<_>>()));
        }
    }
}
