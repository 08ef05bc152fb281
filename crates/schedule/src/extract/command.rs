//! Extraction by a program of the operator's: one process for one session.
//!
//! docs/spec/schedule-extraction.md has its protocol. It must not see our secrets: of the environment it gets
//! a few names and what begins with `EXTRACT_`.

use std::time::Duration;

use jiff::civil::Date;
use serde_json::{Map, Value, json};

use super::process::Run;
use super::{Error, Request};
use crate::canonical::{MAX_ENTRIES, MAX_FIELD_CHARS};
use crate::observation::{Observation, RawEntry};

/// The longest answer.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// The longest name of a time zone.
const MAX_TIMEZONE_CHARS: usize = 64;
/// How errors call it.
const NAME: &str = "the extraction command";

/// A command that reads images.
#[derive(Debug, Clone)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    timeout: Duration,
    min_confidence: f64,
}

impl Command {
    /// A program and its arguments, how long it may take, and how sure it must be when it says how sure it is.
    pub fn new(
        command: &[String],
        timeout: Duration,
        min_confidence: f64,
    ) -> Result<Command, Error> {
        let (program, arguments) = command.split_first().ok_or_else(|| {
            Error::Setup("the extraction command is empty: name a program".to_owned())
        })?;
        let (program, arguments) = (program.clone(), arguments.to_vec());
        Ok(Command { program, arguments, timeout, min_confidence })
    }

    /// Runs it on the images of a session.
    pub(super) async fn extract(&self, request: &Request) -> Result<Observation, Error> {
        let directory = tempfile::Builder::new()
            .prefix("holdfast-")
            .permissions(super::private())
            .tempdir()
            .map_err(|error| Error::Setup(format!("no directory for {NAME}: {error}")))?;
        let run = Run {
            name: NAME,
            program: &self.program,
            arguments: &self.arguments,
            directory: directory.path(),
            prefix: "EXTRACT_",
            set: &[],
            limit: self.timeout,
            max_output: MAX_OUTPUT_BYTES,
            max_memory: None,
            advice: "Check its path, and that it may be executed.",
        };
        let answer = run.run(format!("{}\n", question(request)).as_bytes()).await?;
        let wrong = |wrong| Error::Answer { program: NAME.to_owned(), wrong };
        let mut observation = read_answer(&answer).map_err(wrong)?;
        if observation.timezone.is_empty() {
            observation.timezone.clone_from(&request.timezone);
        }
        match observation.confidence {
            Some(confidence) if confidence < self.min_confidence => {
                Err(Error::Unsure { confidence, least: self.min_confidence })
            }
            _ => Ok(observation),
        }
    }
}

fn question(request: &Request) -> Value {
    let images: Vec<Value> = request
        .images
        .iter()
        .map(|image| json!({"sequence": image.sequence, "path": image.path}))
        .collect();
    json!({
        "session_id": request.session_id,
        "user_id": request.user_id,
        "timezone": request.timezone,
        "images": images,
    })
}

/// Reads an answer; the error says what is wrong with it, and never what it says.
fn read_answer(answer: &[u8]) -> Result<Observation, String> {
    let object: Map<String, Value> = serde_json::from_slice(answer).map_err(|error| {
        format!("it is no JSON object: see line {}, column {}", error.line(), error.column())
    })?;
    let there = |name: &str| object.get(name).filter(|value| !value.is_null());
    let date = there("schedule_date").ok_or("schedule_date is missing")?;
    let date: Option<Date> = date.as_str().and_then(|text| text.parse().ok());
    let confidence = match there("confidence") {
        None => None,
        Some(value) => {
            let value = value.as_f64().filter(|number| (0.0..=1.0).contains(number));
            Some(value.ok_or("confidence is no number from 0 to 1")?)
        }
    };
    let entries = there("entries").ok_or("entries is missing")?;
    let entries = entries.as_array().ok_or("entries is no list")?;
    if entries.len() > MAX_ENTRIES {
        return Err(format!("entries has more than {MAX_ENTRIES}"));
    }
    let entries = entries.iter().enumerate();
    Ok(Observation {
        schedule_date: date.ok_or("schedule_date is no date such as 2026-11-16")?.to_string(),
        timezone: text(object.get("timezone"), MAX_TIMEZONE_CHARS)
            .map_err(|wrong| format!("timezone {wrong}"))?,
        entries: entries.map(|(at, entry)| read_entry(at, entry)).collect::<Result<_, _>>()?,
        confidence,
    })
}

fn read_entry(at: usize, entry: &Value) -> Result<RawEntry, String> {
    let entry = entry.as_object().ok_or_else(|| format!("entries[{at}] is no object"))?;
    let field = |name: &str| {
        text(entry.get(name), MAX_FIELD_CHARS)
            .map_err(|wrong| format!("entries[{at}].{name} {wrong}"))
    };
    Ok(RawEntry {
        start: field("start")?,
        end: field("end")?,
        title: field("title")?,
        location: field("location")?,
        customer: field("customer")?,
        kind: field("kind")?,
    })
}

/// A text that may be absent.
fn text(value: Option<&Value>, max: usize) -> Result<String, String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) if text.contains('\0') => Err("has a NUL character".to_owned()),
        Some(Value::String(text)) if text.chars().count() <= max => Ok(text.clone()),
        Some(Value::String(_)) => Err(format!("has more than {max} characters")),
        Some(_) => Err("is no text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_right_is_told_what_is_wrong() {
        let answer = |text: &str| read_answer(text.as_bytes());
        let good = r#"{"schedule_date":"2026-11-16","entries":[{"start":"8","x":1}],"y":[]}"#;
        assert_eq!(answer(good).unwrap().entries[0].start, "8");
        let long = format!(
            r#"{{"schedule_date":"2026-11-16","entries":[{{"title":"{}"}}]}}"#,
            "secret".repeat(MAX_FIELD_CHARS)
        );
        for (text, named) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            ("secret", "no JSON object"),
            (r#"{"entries":[]}"#, "schedule_date is missing"),
            (r#"{"schedule_date":"secret","entries":[]}"#, "schedule_date is no date"),
            (r#"{"schedule_date":"2026-11-16"}"#, "entries is missing"),
            (r#"{"schedule_date":"2026-11-16","entries":["secret"]}"#, "entries[0] is no object"),
            (
                r#"{"schedule_date":"2026-11-16","entries":[{"end":5}]}"#,
                "entries[0].end is no text",
            ),
            (r#"{"schedule_date":"2026-11-16","entries":[],"confidence":2}"#, "confidence"),
            (r#"{"schedule_date":"2026-11-16","entries":[],"timezone":2}"#, "timezone is no text"),
            (&long, "entries[0].title has more than"),
        ] {
            let error = answer(text).unwrap_err();
            assert!(error.contains(named) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
