//! The table that `config check` prints.

use crate::Section;

impl Section {
    /// Key, effective value and origin of every setting, one a line, in columns.
    pub fn render(&self) -> String {
        let rows: Vec<_> = self.shown().collect();
        let width = |column: fn(&(String, String, String)) -> &str| {
            rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
        };
        let (keys, values) = (width(|row| &row.0), width(|row| &row.1));
        let mut text = String::new();
        for (key, value, origin) in &rows {
            text.push_str(&format!("{key:keys$}  {value:values$}  {origin}\n"));
        }
        text
    }
}
