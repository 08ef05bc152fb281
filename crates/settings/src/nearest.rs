//! The nearest known word to a mistyped one.

/// The candidate with the smallest edit distance, if that is near enough to be what was meant.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = word.chars().count() / 3 + 1;
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_key_and_nonsense_finds_none() {
        let known = ["mqtt.address", "mqtt.keepalive", "spool.dir"];
        assert_eq!(nearest("mqtt.adress", known.into_iter()), Some("mqtt.address"));
        assert_eq!(nearest("mqtt.keep_alive", known.into_iter()), Some("mqtt.keepalive"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }
}
