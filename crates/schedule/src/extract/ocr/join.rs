//! Joins the rows of several pictures: what two of them show is taken once.

use super::headers::distance;
use crate::extract::Column;
use crate::observation::RawEntry;

/// A row that was read, where it was, and how surely each of its cells was.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shift {
    pub(super) entry: RawEntry,
    pub(super) image: i32,
    /// From 1.
    pub(super) row: usize,
    /// The cells with text.
    pub(super) confidences: Vec<(Column, f64)>,
}

impl Shift {
    fn confidence(&self) -> f64 {
        let sum: f64 = self.confidences.iter().map(|(_, confidence)| confidence).sum();
        sum / self.confidences.len().max(1) as f64
    }

    /// Whether two pictures show the same row. Digits must be the same; of letters a few may be misread.
    fn is_same(&self, other: &Shift) -> bool {
        let (a, b) = (&self.entry, &other.entry);
        a.start == b.start
            && a.end == b.end
            && is_near(&a.title, &b.title)
            && is_near(&a.location, &b.location)
            && is_near(&a.customer, &b.customer)
            && is_near(&a.kind, &b.kind)
    }
}

fn is_near(a: &str, b: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let plain = |text: &str| {
        text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect::<String>()
    };
    let (plain_a, plain_b) = (plain(a), plain(b));
    let length = plain_a.chars().count().max(plain_b.chars().count());
    digits(a) == digits(b) && distance(&plain_a, &plain_b) <= length / 6
}

/// The rows of all pictures, in order.
pub(super) fn join(pictures: Vec<Vec<Shift>>) -> Vec<Shift> {
    let mut joined: Vec<Shift> = Vec::new();
    // Only the picture right before may overlap; rows farther back are other shifts.
    let mut before = 0;
    for mut picture in pictures {
        let overlap = (1..=before.min(picture.len())).rev().find(|n| {
            let tail = &joined[joined.len() - n..];
            tail.iter().zip(&picture).all(|(a, b)| a.is_same(b))
        });
        let overlap = overlap.unwrap_or(0);
        before = picture.len();
        let rest = picture.split_off(overlap);
        let from = joined.len() - overlap;
        for (known, again) in joined[from..].iter_mut().zip(picture) {
            if again.confidence() > known.confidence() {
                *known = again;
            }
        }
        joined.extend(rest);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(image: i32, row: usize, start: &str, title: &str, confidence: f64) -> Shift {
        let entry =
            RawEntry { start: start.to_owned(), title: title.to_owned(), ..RawEntry::default() };
        Shift { entry, image, row, confidences: vec![(Column::Title, confidence)] }
    }

    fn titles(pictures: Vec<Vec<Shift>>) -> Vec<String> {
        join(pictures).into_iter().map(|shift| shift.entry.title).collect()
    }

    #[test]
    fn an_overlap_is_taken_once_and_in_its_better_reading() {
        let first = vec![shift(1, 1, "8", "Cleaning", 0.9), shift(1, 2, "9", "Gardeninq", 0.5)];
        let second = vec![shift(2, 1, "9", "Gardening", 0.9), shift(2, 2, "10", "Guard", 0.9)];
        assert_eq!(titles(vec![first.clone(), second]), ["Cleaning", "Gardening", "Guard"]);
        assert_eq!(titles(vec![first.clone(), first.clone()]), ["Cleaning", "Gardeninq"]);
    }

    #[test]
    fn what_is_not_the_same_stays() {
        let first = vec![shift(1, 1, "8", "Pier 4", 0.9), shift(1, 2, "8", "Pier 4", 0.9)];
        assert_eq!(titles(vec![first]), ["Pier 4", "Pier 4"]);
        let first = vec![shift(1, 1, "8", "Pier 4", 0.9)];
        assert_eq!(titles(vec![first.clone(), vec![shift(2, 1, "8", "Pier 5", 0.9)]]).len(), 2);
        assert_eq!(titles(vec![first.clone(), vec![shift(2, 1, "9", "Pier 4", 0.9)]]).len(), 2);
        // The row of the first picture comes again in the third, after others: it is another shift.
        let between = vec![shift(2, 1, "9", "Guard", 0.9)];
        assert_eq!(titles(vec![first.clone(), between, first]).len(), 3);
    }
}
