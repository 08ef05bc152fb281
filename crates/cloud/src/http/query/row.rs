//! A row of any query as JSON, by the types of its columns.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// The first `columns` columns, by their names.
pub(super) fn to_json(row: &Row, columns: usize) -> Result<Value, tokio_postgres::Error> {
    let mut object = Map::new();
    for (index, column) in row.columns().iter().enumerate().take(columns) {
        let value = match *column.type_() {
            Type::UUID => json!(row.try_get::<_, Option<Uuid>>(index)?),
            Type::TIMESTAMPTZ => json!(row.try_get::<_, Option<Timestamp>>(index)?),
            Type::DATE => json!(row.try_get::<_, Option<Date>>(index)?),
            Type::FLOAT8 => json!(row.try_get::<_, Option<f64>>(index)?),
            Type::INT8 => json!(row.try_get::<_, Option<i64>>(index)?),
            Type::INT4 => json!(row.try_get::<_, Option<i32>>(index)?),
            Type::BOOL => json!(row.try_get::<_, Option<bool>>(index)?),
            Type::JSONB => row.try_get::<_, Option<Value>>(index)?.unwrap_or_default(),
            Type::INT8_ARRAY => json!(row.try_get::<_, Option<Vec<i64>>>(index)?),
            _ => json!(row.try_get::<_, Option<String>>(index)?),
        };
        object.insert(column.name().to_owned(), value);
    }
    Ok(Value::Object(object))
}

/// A place in an order: the values of its key, in one word that can stand in a URL.
pub(super) fn cursor(keys: &[String]) -> String {
    URL_SAFE_NO_PAD.encode(json!(keys).to_string())
}

/// Reads a cursor of so many values.
pub(super) fn read_cursor(text: &str, keys: usize) -> Option<Vec<String>> {
    let json = URL_SAFE_NO_PAD.decode(text).ok()?;
    let values: Vec<String> = serde_json::from_slice(&json).ok()?;
    // Postgres keeps no NUL in a text.
    let sound = values.len() == keys && !values.iter().any(|value| value.contains('\0'));
    sound.then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let keys = ["2026-02-01 10:00:00+00".to_owned(), "°C \"\\".to_owned()];
        let text = cursor(&keys);
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        assert_eq!(read_cursor(&text, 2).unwrap(), keys);
        assert!(read_cursor(&text, 3).is_none());
        for text in ["", "!", "AAAA", &cursor(&["\0".to_owned(), String::new()])] {
            assert!(read_cursor(text, 2).is_none(), "{text}");
        }
    }
}
