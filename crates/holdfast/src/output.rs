//! What a command prints.

use std::io::Write;

use serde::Serialize;

/// Prints to standard output. A reader that has gone, like `head`, is no error.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// What words in an error are answered with: the errors come wrapped by every role in its own way, and their words stay.
const NEXT: [(&str, &str); 2] = [
    (
        "is required and was not given",
        "give a file with --config; those of an `up` are in its folder, like .holdfast/edge/edge.toml",
    ),
    (
        "error connecting to server",
        "see whether the server runs and database.url is right: `holdfast doctor --config FILE` looks at both",
    ),
];

/// An error with its causes and, where something can be said of it, what to do next.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let text = causes(error);
    match NEXT.iter().find(|(words, _)| text.contains(words)) {
        Some((_, next)) => format!("{text}\n  -> {next}"),
        None => text,
    }
}

/// An error with its causes, each said once: many an error repeats its cause in its own words.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{colon}{cause}"));
        }
    }
    text
}

/// Prints a value as JSON, for programs.
pub(crate) fn say_json(value: &impl Serialize) -> anyhow::Result<()> {
    say(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_and_what_can_be_done_at_the_end() {
        let cause = std::io::Error::other("no such file");
        let error = anyhow::Error::new(cause).context("cannot read x: no such file");
        assert_eq!(told(&error), "cannot read x: no such file");
        assert_eq!(told(&error.context("not started")), "not started: cannot read x: no such file");
        let error = anyhow::anyhow!("Postgres: error connecting to server: refused");
        assert!(told(&error).ends_with("`holdfast doctor --config FILE` looks at both"));
    }
}
