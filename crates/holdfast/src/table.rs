//! Tables people can read: no frame, aligned columns, numbers to the right.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with these headings; `numbers` are the columns that hold numbers.
pub(crate) fn new(headings: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings);
    for column in numbers {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// 12345678 as 12,345,678.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A span of time in its one or two largest units: `45 s`, `3 min`, `2 h 5 min`, `4 d 3 h`.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
            (-1_000, "-1,000"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn spans_show_their_largest_units() {
        let cases = [
            (-5, "0 s"),
            (45, "45 s"),
            (185, "3 min"),
            (7_500, "2 h 5 min"),
            (7_200, "2 h"),
            (356_400, "4 d 3 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(span(seconds), text);
        }
    }
}
