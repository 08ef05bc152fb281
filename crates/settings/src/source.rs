//! A section of the file as flat text values with their lines.

use crate::Error;
use std::collections::BTreeMap;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// A value as written in the file.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// The values of one section by dotted path. An absent section is an empty one.
pub(crate) fn read_section(path: &Path, section: &str) -> Result<BTreeMap<String, Written>, Error> {
    let input = std::fs::read_to_string(path)
        .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    let document = DeTable::parse(&input).map_err(|error| Error::Syntax {
        path: path.to_owned(),
        line: line_at(&input, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let mut values = BTreeMap::new();
    if let Some(table) = document.get_ref().get(section) {
        match table.get_ref() {
            DeValue::Table(table) => flatten("", table, &input, &mut values),
            _ => {
                return Err(Error::Syntax {
                    path: path.to_owned(),
                    line: line_at(&input, table.span().start),
                    message: format!("{section} is not a table: expected [{section}]"),
                });
            }
        }
    }
    Ok(values)
}

fn flatten(prefix: &str, table: &DeTable<'_>, input: &str, into: &mut BTreeMap<String, Written>) {
    for (name, value) in table {
        let name = name.get_ref();
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&path, inner, input, into),
            scalar => {
                let line = line_at(input, value.span().start);
                into.insert(path, Written { text: text_of(scalar), line });
            }
        }
    }
}

/// The value as the environment would have written it, so that both sources share one grammar.
fn text_of(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.as_str().to_owned(), |n| n.to_string()),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            items.iter().map(|item| text_of(item.get_ref())).collect::<Vec<_>>().join(",")
        }
        DeValue::Table(_) => String::new(),
    }
}

fn line_at(input: &str, offset: usize) -> usize {
    input.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}
