//! The `inference.*` keys: the reference worker and its model command.

use std::time::Duration;

use settings::{Key, Kind, Section};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// The keys.
pub(super) const KEYS: [Key; 6] = [
    Key::new(
        "inference.command",
        Kind::List,
        "The model command: a program and its arguments, run without a shell for every image; \
         there is no worker when absent.",
    ),
    Key::new("inference.workers", Kind::Integer { min: 1, max: 16 }, "Images worked on at once.")
        .default("1"),
    Key::new(
        "inference.timeout",
        Kind::Duration { min_ms: 10, max_ms: 60 * MINUTE },
        "How long the model command may take before it is killed.",
    )
    .default("60s"),
    Key::new(
        "inference.max_attempts",
        Kind::Integer { min: 1, max: 1_000 },
        "How many failures make a job a dead letter.",
    )
    .default("5"),
    Key::new(
        "inference.backoff_base",
        Kind::Duration { min_ms: 10, max_ms: 10 * MINUTE },
        "What is doubled with every failure of a job.",
    )
    .default("1s"),
    Key::new(
        "inference.backoff_cap",
        Kind::Duration { min_ms: 10, max_ms: DAY },
        "The longest a job waits after a failure, up to a second of jitter aside.",
    )
    .default("300s"),
];

/// How the worker works; docs/spec/inference.md says what each value does.
#[derive(Debug, Clone)]
pub struct Inference {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Images worked on at once.
    pub workers: usize,
    /// How long the command may take.
    pub timeout: Duration,
    /// How many failures make a dead letter.
    pub max_attempts: u32,
    /// What is doubled with every failure.
    pub backoff_base: Duration,
    /// The longest wait after a failure, before the jitter.
    pub backoff_cap: Duration,
}

impl Inference {
    /// `None` when there is no command.
    pub(super) fn from_section(section: &Section) -> Result<Option<Inference>, settings::Error> {
        let Some(command) = section.find("inference.command")? else {
            return Ok(None);
        };
        let command = command.list();
        if command.is_empty() {
            let why = "is empty: expected a program and its arguments, or no key at all";
            return Err(section.refuse("inference.command", why));
        }
        Ok(Some(Inference {
            command,
            workers: section.get("inference.workers")?.parse()?,
            timeout: section.get("inference.timeout")?.duration()?,
            max_attempts: section.get("inference.max_attempts")?.parse()?,
            backoff_base: section.get("inference.backoff_base")?.duration()?,
            backoff_cap: section.get("inference.backoff_cap")?.duration()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        Config::load(None, |name| {
            let name = name.strip_prefix("HOLDFAST_EDGE_")?;
            let url = ("DATABASE_URL", "postgres:///farm?host=/run");
            let found = pairs.iter().chain([&url]).find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn there_is_no_worker_unless_there_is_a_command() {
        assert!(load(&[]).unwrap().inference.is_none());
        let config = load(&[("INFERENCE_COMMAND", "python3,/opt/model/run.py")]).unwrap();
        let inference = config.inference.unwrap();
        assert_eq!(inference.command, ["python3", "/opt/model/run.py"]);
        assert_eq!((inference.workers, inference.timeout.as_secs()), (1, 60));
        let error = load(&[("INFERENCE_COMMAND", " , ")]).unwrap_err().to_string();
        assert!(error.contains("inference.command"), "{error}");
    }
}
