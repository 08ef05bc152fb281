//! The model command: one process for one image. docs/spec/inference.md has its protocol.
//!
//! Promises: its time, its output and what is kept of its errors are bounded; whatever way this ends,
//! dropped half-way included, nothing of its process group goes on. It sees none of the edge's secrets.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// The longest answer.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// What is kept of the standard error, from its end.
const MAX_STDERR_CHARS: usize = 1_000;
/// How much of it is held while the command runs; a character has up to four bytes.
const HELD_STDERR_BYTES: usize = 4 * MAX_STDERR_CHARS;
/// The longest `predicted_size`.
pub(super) const MAX_SIZE_CHARS: usize = 64;
/// The longest `model_version`.
pub(super) const MAX_MODEL_CHARS: usize = 128;
/// What the command gets of the environment, beside what begins with `MODEL_`.
const PASSED_ON: [&str; 8] = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES",
];

/// What a model says of an image.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prediction {
    pub(super) predicted_weight_kg: f64,
    pub(super) predicted_size: Option<String>,
    pub(super) confidence: f64,
    pub(super) model_version: String,
}

/// Why there is no prediction. The words hold nothing of what the command read or wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It could not be started: no image is at fault.
    #[error("the model command cannot be started: {0}")]
    Start(io::Error),
    /// It took too long and was killed.
    #[error("the model command took longer than {0:?} and was killed")]
    Timeout(Duration),
    /// It wrote too much and was killed.
    #[error("the model command wrote more than {MAX_OUTPUT_BYTES} bytes and was killed")]
    Flood,
    /// It ended badly.
    #[error("the model command failed: {0}")]
    Status(String),
    /// Its answer breaks the protocol.
    #[error("the answer of the model command is not right: {0}")]
    Answer(String),
}

/// How a run ended, and the last that the command wrote to its standard error.
pub(super) struct Ran {
    pub(super) prediction: Result<Prediction, Failure>,
    pub(super) stderr: String,
}

/// Kills what is left of the group.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error says that nobody of it is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs the command in `directory` with one line on its standard input.
pub(super) async fn run(
    command: &[String],
    directory: &Path,
    line: &Value,
    limit: Duration,
) -> Ran {
    let mut child = match start(command, directory) {
        Ok(child) => child,
        Err(error) => {
            return Ran { prediction: Err(Failure::Start(error)), stderr: String::new() };
        }
    };
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    // Dropped before the child, so that the group's id still stands for it.
    let group = Group(id);
    let mut held = Vec::new();
    let talked = tokio::time::timeout(limit, talk(&mut child, line, &mut held)).await;
    drop(group);
    let prediction = talked.unwrap_or(Err(Failure::Timeout(limit)));
    let text = String::from_utf8_lossy(&held);
    let text: Vec<char> = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    let stderr = text[text.len().saturating_sub(MAX_STDERR_CHARS)..].iter().collect();
    Ran { prediction, stderr }
}

fn start(command: &[String], directory: &Path) -> io::Result<Child> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let passed_on = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with("MODEL_"))
    });
    Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .envs(passed_on)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Says the line, hears the answer, waits for the end.
async fn talk(child: &mut Child, line: &Value, held: &mut Vec<u8>) -> Result<Prediction, Failure> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(Failure::Start(io::Error::other("it has no pipes")));
    };
    let say = async {
        // One that answers without reading has its reasons.
        let _ = stdin.write_all(format!("{line}\n").as_bytes()).await;
        drop(stdin);
        Ok(())
    };
    let hear = async {
        let mut answer = Vec::new();
        let read = stdout.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut answer).await;
        match read {
            Ok(read) if read as u64 > MAX_OUTPUT_BYTES => Err(Failure::Flood),
            Ok(_) => Ok(answer),
            Err(error) => Err(Failure::Status(format!("its output cannot be read: {error}"))),
        }
    };
    let note = async {
        keep_end(stderr, held).await;
        Ok(())
    };
    let ((), answer, ()) = tokio::try_join!(say, hear, note)?;
    let status = child.wait().await;
    let status = status.map_err(|error| Failure::Status(error.to_string()))?;
    if !status.success() {
        return Err(Failure::Status(format!("it ended with {status}")));
    }
    read_answer(&answer).map_err(Failure::Answer)
}

/// Reads to the end and keeps the last of it.
async fn keep_end(mut from: impl AsyncRead + Unpin, held: &mut Vec<u8>) {
    let mut part = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        held.extend_from_slice(&part[..read]);
        let beyond = held.len().saturating_sub(HELD_STDERR_BYTES);
        held.drain(..beyond);
    }
}

/// Reads an answer; the error says what is wrong with it, and never what it says.
fn read_answer(answer: &[u8]) -> Result<Prediction, String> {
    let object: Map<String, Value> = serde_json::from_slice(answer).map_err(|error| {
        format!("it is no JSON object: see line {}, column {}", error.line(), error.column())
    })?;
    let there = |name: &str| object.get(name).filter(|value| !value.is_null());
    let number = |name: &str| {
        let value = there(name).ok_or_else(|| format!("{name} is missing"))?;
        value.as_f64().filter(|n| n.is_finite()).ok_or_else(|| format!("{name} is no number"))
    };
    let text = |name: &str, max: usize| {
        let sound = |text: &&str| {
            (1..=max).contains(&text.chars().count()) && !text.contains(char::is_control)
        };
        let Some(value) = there(name) else { return Ok(None) };
        let text = value.as_str().filter(sound);
        let text = text.ok_or_else(|| format!("{name} is no text of 1 to {max} characters"))?;
        Ok::<_, String>(Some(text.to_owned()))
    };
    let confidence = number("confidence")?;
    if !(0.0..=1.0).contains(&confidence) {
        return Err("confidence is not from 0 to 1".to_owned());
    }
    Ok(Prediction {
        predicted_weight_kg: number("predicted_weight_kg")?,
        predicted_size: text("predicted_size", MAX_SIZE_CHARS)?,
        confidence,
        model_version: text("model_version", MAX_MODEL_CHARS)?
            .ok_or_else(|| "model_version is missing".to_owned())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_right_is_told_what_is_wrong() {
        let answer = |text: &str| read_answer(text.as_bytes());
        let good = r#"{"predicted_weight_kg":121.3,"confidence":1,"model_version":"v1","x":[]}"#;
        assert_eq!(answer(good).unwrap().model_version, "v1");
        for (text, named) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            ("secret", "no JSON object"),
            (r#"{"confidence":0.5,"model_version":"v"}"#, "predicted_weight_kg is missing"),
            (r#"{"confidence":"secret"}"#, "confidence is no number"),
            (r#"{"confidence":1.01}"#, "confidence is not from 0 to 1"),
            (r#"{"confidence":1,"predicted_weight_kg":1}"#, "model_version is missing"),
            (
                r#"{"confidence":1,"predicted_weight_kg":1,"model_version":""}"#,
                "model_version is no text",
            ),
            (
                r#"{"confidence":1,"predicted_weight_kg":1,"model_version":"v","predicted_size":3}"#,
                "predicted_size is no text",
            ),
        ] {
            let error = answer(text).unwrap_err();
            assert!(error.contains(named) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
