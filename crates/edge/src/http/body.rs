//! A JSON body, read into what it is: a refusal names the field. Pure.

use api::Refused;
use serde::Deserialize;

/// The longest name of a field in an answer: one that is unknown is the sender's own text.
const MAX_FIELD_CHARS: usize = 80;

/// Reads a body.
pub(crate) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refused> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = field(&error.path().to_string(), &error.inner().to_string());
        // The library's words say what was expected; a value in them is the sender's own.
        let message = format!("the body cannot be read: {}", error.inner());
        Refused::malformed(field.as_deref(), message)
    })?;
    reader.end().map_err(|error| {
        Refused::malformed(None, format!("something follows the body's JSON: {error}"))
    })?;
    Ok(read)
}

/// The place of an error, as an answer names it: `ids[3]`, `resend[0].from`.
fn field(path: &str, problem: &str) -> Option<String> {
    // A field that is unknown, missing or there twice is named by the problem, not by the path.
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|before| problem.split_once(before)?.1.split_once('`'))
        .map(|(name, _)| name);
    let path = path.trim_end_matches('?').trim_end_matches('.');
    let whole = match named {
        Some(name) if path.is_empty() || path == name => name.to_owned(),
        Some(name) if path.ends_with(&format!(".{name}")) => path.to_owned(),
        Some(name) => format!("{path}.{name}"),
        None if path.is_empty() => return None,
        None => path.to_owned(),
    };
    Some(whole.chars().filter(|c| !c.is_control()).take(MAX_FIELD_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use event::ledger::Repair;

    use super::*;

    fn field_of(body: &str) -> Option<String> {
        json::<Repair>(body.as_bytes()).unwrap_err().field
    }

    #[test]
    fn a_refusal_names_the_field() {
        let sound = r#"{"stream":"barn-1","epoch":"0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01"}"#;
        assert!(json::<Repair>(sound.as_bytes()).is_ok());
        for (body, field) in [
            (r#"{"stream":"barn-1"}"#, Some("epoch")),
            (r#"{"strem":"barn-1"}"#, Some("strem")),
            (r#"{"stream":"Barn 1"}"#, Some("stream")),
            (r#"{"stream":"barn-1","stream":"barn-2"}"#, Some("stream")),
            (r#"{"dry_run":"yes"}"#, Some("dry_run")),
            ("7", None),
            ("[1]", Some("[0]")),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(field_of(body).as_deref(), field, "{body}");
        }
        let wrong = field_of(r#"{"resend":[[1,2],"x"]}"#).unwrap();
        assert!(wrong.starts_with("resend"), "{wrong}");
        assert!(json::<Repair>(format!("{sound}{sound}").as_bytes()).is_err());
    }
}
