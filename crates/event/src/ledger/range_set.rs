//! A set of sequences, kept as ranges.

/// A set of sequences as sorted, disjoint, inclusive ranges that do not touch.
///
/// Equal sets have equal ranges. Finding a place takes a binary search; adding at or next to the end,
/// which is what records in order do, takes constant time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

/// A flat list that is not a set of ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlatError {
    /// The list has an odd number of elements.
    #[error("a list of ranges has {0} elements: expected an even number")]
    Odd(usize),
    /// A range ends before it begins, or does not lie above the one before with a hole between.
    #[error("range {index} of a list is out of order: expected ascending ranges that do not touch")]
    Order {
        /// The place of the range in the list.
        index: usize,
    },
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many sequences are in the set.
    pub fn count(&self) -> u64 {
        self.ranges.iter().fold(0, |sum: u64, &range| sum.saturating_add(size(range)))
    }

    /// The highest sequence in the set.
    pub fn last(&self) -> Option<u64> {
        self.ranges.last().map(|&(_, end)| end)
    }

    /// Whether a sequence is in the set.
    pub fn contains(&self, seq: u64) -> bool {
        self.range_of(seq).is_some()
    }

    /// The range that holds a sequence.
    pub fn range_of(&self, seq: u64) -> Option<(u64, u64)> {
        // The last range holds what was added a moment ago.
        let candidate = match self.ranges.last() {
            Some(&last) if last.0 <= seq => Some(last),
            _ => self.ranges.get(self.first_ending_at_or_above(seq)).copied(),
        };
        candidate.filter(|&(start, end)| start <= seq && seq <= end)
    }

    /// Adds every sequence from `from` to `to`; returns how many were not there before. A range that
    /// ends before it begins adds nothing.
    pub fn insert(&mut self, from: u64, to: u64) -> u64 {
        if from > to {
            return 0;
        }
        match self.ranges.last_mut() {
            Some((start, end)) if *start <= from && from <= end.saturating_add(1) => {
                let added = to.saturating_sub(*end);
                *end = (*end).max(to);
                return added;
            }
            Some((_, end)) if *end >= from => {}
            _ => {
                self.ranges.push((from, to));
                return size((from, to));
            }
        }
        // Ranges that overlap the new one or touch it become one with it.
        let low = self.first_ending_at_or_above(from.saturating_sub(1));
        let high = self.ranges.partition_point(|&(start, _)| start <= to.saturating_add(1));
        let mut merged = (from, to);
        let mut had = 0;
        for &range in &self.ranges[low..high] {
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            had += overlap(range, (from, to));
        }
        self.ranges.splice(low..high, [merged]);
        size((from, to)) - had
    }

    /// Takes every sequence from `from` to `to` out; returns how many were there.
    pub fn remove(&mut self, from: u64, to: u64) -> u64 {
        if from > to {
            return 0;
        }
        let low = self.first_ending_at_or_above(from);
        let high = self.ranges.partition_point(|&(start, _)| start <= to);
        if low >= high {
            return 0;
        }
        let (first, last) = (self.ranges[low], self.ranges[high - 1]);
        let had = self.ranges[low..high].iter().map(|&range| overlap(range, (from, to))).sum();
        let left = (first.0 < from).then(|| (first.0, from - 1));
        let right = (last.1 > to).then(|| (to + 1, last.1));
        self.ranges.splice(low..high, left.into_iter().chain(right));
        had
    }

    /// The ranges between `from` and `to`, both included, that are not in the set.
    pub fn missing(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let low = self.first_ending_at_or_above(from);
        let mut next = Some(from);
        // The `None` at the end closes the last hole.
        self.ranges[low..]
            .iter()
            .copied()
            .take_while(move |&(start, _)| start <= to)
            .map(Some)
            .chain([None])
            .filter_map(move |range| {
                let hole_start = next?;
                match range {
                    Some((start, end)) => {
                        next = end.checked_add(1);
                        (hole_start < start).then(|| (hole_start, start - 1))
                    }
                    None => (hole_start <= to).then_some((hole_start, to)),
                }
            })
    }

    /// What is in either set.
    pub fn union(&self, other: &RangeSet) -> RangeSet {
        let mut all: Vec<(u64, u64)> = Vec::with_capacity(self.len() + other.len());
        all.extend_from_slice(&self.ranges);
        all.extend_from_slice(&other.ranges);
        all.sort_unstable();
        let mut union = RangeSet::new();
        for (from, to) in all {
            union.insert(from, to);
        }
        union
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &RangeSet) -> RangeSet {
        let mut both = RangeSet::new();
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(&&(a_from, a_to)), Some(&&(b_from, b_to))) = (a.peek(), b.peek()) {
            both.insert(a_from.max(b_from), a_to.min(b_to));
            if a_to <= b_to {
                a.next()
            } else {
                b.next()
            };
        }
        both
    }

    /// What is in this set and not in the other.
    pub fn difference(&self, other: &RangeSet) -> RangeSet {
        self.ranges.iter().flat_map(|&(from, to)| other.missing(from, to)).collect()
    }

    /// The ranges as one flat list `[from, to, from, to, …]`, as a `bigint[]` column holds them.
    ///
    /// The bits are kept, so that no sequence is too large to come back; one above
    /// [`super::MAX_SEQ`], which the wire refuses, would show as negative.
    pub fn to_flat(&self) -> Vec<i64> {
        self.ranges
            .iter()
            .flat_map(|&(start, end)| [start.cast_signed(), end.cast_signed()])
            .collect()
    }

    /// Reads what [`RangeSet::to_flat`] wrote.
    pub fn from_flat(flat: &[i64]) -> Result<RangeSet, FlatError> {
        let (pairs, rest) = flat.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(FlatError::Odd(flat.len()));
        }
        let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(pairs.len());
        for (index, &[start, end]) in pairs.iter().enumerate() {
            let (start, end) = (start.cast_unsigned(), end.cast_unsigned());
            let above = ranges
                .last()
                .is_none_or(|&(_, before): &(u64, u64)| start > before.saturating_add(1));
            if start > end || !above {
                return Err(FlatError::Order { index });
            }
            ranges.push((start, end));
        }
        Ok(RangeSet { ranges })
    }

    /// The ranges that end above `seq`.
    pub(super) fn above(&self, seq: u64) -> &[(u64, u64)] {
        &self.ranges[self.ranges.partition_point(|&(_, end)| end <= seq)..]
    }

    fn first_ending_at_or_above(&self, seq: u64) -> usize {
        self.ranges.partition_point(|&(_, end)| end < seq)
    }
}

impl FromIterator<(u64, u64)> for RangeSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        for (from, to) in ranges {
            set.insert(from, to);
        }
        set
    }
}

fn size((start, end): (u64, u64)) -> u64 {
    // Only the range of every u64 there is would not fit; it counts as one less.
    (end - start).saturating_add(1)
}

/// How many sequences two ranges have in common; none if they only touch.
fn overlap(a: (u64, u64), b: (u64, u64)) -> u64 {
    let (start, end) = (a.0.max(b.0), a.1.min(b.1));
    if start <= end { size((start, end)) } else { 0 }
}
