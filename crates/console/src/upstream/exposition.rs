//! The text that Prometheus reads, as far as the console reads it: the value of a metric that has no labels, and those of one that has, added up.

/// The value of a metric without labels; none when it is not there or not a number.
pub(crate) fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let number: f64 = line.split_whitespace().next()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// The same of something that is counted.
pub(crate) fn count(text: &str, name: &str) -> Option<u64> {
    let number = value(text, name)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cast to the nearest count, and one below zero to none"
    )]
    Some(number as u64)
}

/// The values of a metric added up, whatever its labels; none when it is not there.
pub(crate) fn sum(text: &str, name: &str) -> Option<f64> {
    let mut values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            Some(labels) => labels.split_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        rest.split_whitespace().next()?.parse::<f64>().ok().filter(|value| value.is_finite())
    });
    let first = values.next()?;
    Some(first + values.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text =
            "# HELP a_b Rows.\n# TYPE a_b gauge\na_b_c 9\na_b{x=\"y\"} 8\na_b 7.5\nbad NaN\n";
        assert_eq!((value(text, "a_b"), count(text, "a_b")), (Some(7.5), Some(7)));
        assert_eq!((value(text, "a"), value(text, "bad")), (None, None));
        assert_eq!((sum(text, "a_b"), sum(text, "a"), sum(text, "bad")), (Some(15.5), None, None));
    }
}
