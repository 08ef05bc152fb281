//! What a run leaves: the table for people, `target/bench.json` for programs.

use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::row::Row;

/// Puts the rows of the benchmarks that `ran` in place of what the file has of them. Rows of other benchmarks stay, those of
/// benchmarks that are no longer `known` go; the file has the order of `known`.
pub(crate) fn merge<'a>(
    file: &Path,
    rows: &[Row],
    ran: &[&str],
    known: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let before = match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).context("what it holds is not a list of rows")?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let merged = merged(before, rows, ran, known);
    let mut text = serde_json::to_string_pretty(&merged)?;
    text.push('\n');
    std::fs::write(file, text)?;
    Ok(())
}

fn merged<'a>(
    before: Vec<Row>,
    rows: &[Row],
    ran: &[&str],
    known: impl Iterator<Item = &'a str>,
) -> Vec<Row> {
    let mut merged = Vec::new();
    for benchmark in known {
        let source = if ran.contains(&benchmark) { rows } else { &before };
        merged.extend(source.iter().filter(|row| benchmark_of(row) == benchmark).cloned());
    }
    merged
}

fn benchmark_of(row: &Row) -> &str {
    row.name.split('/').next().unwrap_or_default()
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["name", "value", "unit", "baseline", "ratio", "bar", ""]);
    for column in [1, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        let verdict = match row.bar {
            None => "",
            Some(_) if row.is_below() => "below",
            Some(_) => "ok",
        };
        table.add_row([
            row.name.clone(),
            number(row.value),
            row.unit.clone(),
            number(row.baseline),
            format!("{:.2}", row.ratio),
            row.bar.map_or_else(String::new, |bar| format!("{bar:.2}")),
            verdict.to_owned(),
        ]);
    }
    table
}

/// What to make of the table.
pub(crate) fn summary(rows: &[Row], failed: usize, file: &Path) -> String {
    let below = rows.iter().filter(|row| row.is_below()).count();
    let barred = rows.iter().filter(|row| row.bar.is_some()).count();
    let mut text =
        "A ratio above 1 is better than the baseline, also where a smaller value is.".to_owned();
    text.push_str(&format!("\n{} of {barred} bars reached; {}", barred - below, file.display()));
    if failed > 0 {
        text.push_str(&format!("\n{failed} benchmarks could not run"));
    }
    text
}

/// Four digits that matter, thousands grouped.
fn number(value: f64) -> String {
    if value.abs() < 1000.0 {
        let decimals = if value.abs() < 10.0 { 2 } else { usize::from(value.abs() < 100.0) };
        return format!("{value:.decimals$}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replaces_its_own_rows_and_leaves_the_others() {
        let row = |name: &str, value| Row::more(name, "MB/s", value, 1.0);
        let before = vec![row("a/old", 1.0), row("b/x", 1.0), row("gone/x", 1.0)];
        let after = merged(before, &[row("a/new", 2.0)], &["a"], ["a", "b"].into_iter());
        assert_eq!(after, [row("a/new", 2.0), row("b/x", 1.0)]);
    }

    #[test]
    fn a_ratio_is_better_the_larger_it_is() {
        assert!(Row::more("a/x", "MB/s", 8.0, 10.0).bar(0.85).is_below());
        assert!(!Row::less("a/x", "ms", 8.0, 10.0).bar(0.85).is_below());
        assert!(Row::more("a/x", "MB/s", 0.0, 0.0).bar(0.85).is_below());
        assert!(!Row::more("a/x", "MB/s", 0.0, 1.0).is_below());
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.5, "0.50"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
