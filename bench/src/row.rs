//! One measured thing beside its baseline.

use serde::{Deserialize, Serialize};

/// A line of the table and an entry of `target/bench.json`.
///
/// The ratio is always such that more is better, and 1 is the baseline: value / baseline where more is better ([`Row::more`]),
/// baseline / value where less is ([`Row::less`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `benchmark/what`.
    pub(crate) name: String,
    /// What we reached.
    pub(crate) value: f64,
    /// The unit of value and baseline.
    pub(crate) unit: String,
    /// What the thing beside it reached.
    pub(crate) baseline: f64,
    /// How we compare.
    pub(crate) ratio: f64,
    /// The ratio we want, if there is one.
    pub(crate) bar: Option<f64>,
}

impl Row {
    /// A row whose value is better the larger it is.
    pub(crate) fn more(name: impl Into<String>, unit: &str, value: f64, baseline: f64) -> Row {
        Row {
            name: name.into(),
            value,
            unit: unit.to_owned(),
            baseline,
            ratio: value / baseline,
            bar: None,
        }
    }

    /// A row whose value is better the smaller it is.
    pub(crate) fn less(name: impl Into<String>, unit: &str, value: f64, baseline: f64) -> Row {
        Row { ratio: baseline / value, ..Row::more(name, unit, value, baseline) }
    }

    /// With the ratio that is wanted.
    pub(crate) fn bar(self, bar: f64) -> Row {
        Row { bar: Some(bar), ..self }
    }

    /// Whether the ratio is below the one wanted.
    pub(crate) fn is_below(&self) -> bool {
        self.bar.is_some_and(|bar| self.ratio.is_nan() || self.ratio < bar)
    }
}
