//! What a node's outbox and the historian know of one event, for `holdfast where`.

use std::path::Path;

use ::scada::verify::{in_historian, in_outbox};
use anyhow::Context as _;
use console::trail::Stage;
use event::id::EventId;
use serde_json::Value;

/// The databases that the configuration names.
pub(crate) struct Plant {
    producer: Option<pg::Options>,
    historian: Option<pg::Options>,
}

/// What they said.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) producer: Option<Value>,
    pub(crate) historian: Option<Value>,
}

impl Plant {
    /// A section that is there must be sound; one that is not there is not asked, unless the environment says enough.
    pub(crate) fn open(file: Option<&Path>) -> anyhow::Result<Plant> {
        let environment = crate::config::environment;
        let producer = ::scada::producer::Config::load(file, environment);
        let historian = ::scada::historian::Config::load(file, environment);
        let keep = |result: Result<pg::Options, settings::Error>, section| match result {
            Ok(database) => Ok(Some(database)),
            Err(error) if has_section(file, section) => Err(error),
            Err(_) => Ok(None),
        };
        Ok(Plant {
            producer: keep(producer.map(|c| c.database), ::scada::producer::config::SECTION)?,
            historian: keep(historian.map(|c| c.database), ::scada::historian::config::SECTION)?,
        })
    }

    /// True when one of them can be asked.
    pub(crate) fn is_there(&self) -> bool {
        self.producer.is_some() || self.historian.is_some()
    }

    /// Asks both.
    pub(crate) async fn ask(&self, id: EventId) -> anyhow::Result<Known> {
        let mut known = Known::default();
        if let Some(database) = &self.producer {
            let client = pg::connect(database).await.context("the node's database")?;
            known.producer = in_outbox(&client, id.uuid()).await.context("the node's outbox")?;
        }
        if let Some(database) = &self.historian {
            let client = pg::connect(database).await.context("the historian's database")?;
            known.historian = in_historian(&client, id.uuid()).await.context("the historian")?;
        }
        Ok(known)
    }

    /// The stages of an event that one of them knows, in their order.
    pub(crate) fn stages(&self, known: &Known) -> Vec<Stage> {
        let mut stages = Vec::new();
        if known.producer.is_none() && known.historian.is_none() {
            return stages;
        }
        let mut put = |stage, state: String, at: &Value| {
            stages.push(Stage { stage, state, at: at.as_str().map(str::to_owned) });
        };
        let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        match &known.producer {
            Some(row) => {
                put("node's outbox", "written".to_owned(), &row["created_at"]);
                let (state, at) = match row["status"].as_str() {
                    Some("SENT") => ("SENT: confirmed by the bus".to_owned(), &row["sent_at"]),
                    Some("FAILED") => {
                        let why = [&row["failed_reason"], &row["last_error_code"]].map(word);
                        (format!("FAILED: {}", why.join(", ")), &row["failed_at"])
                    }
                    Some("IN_PROGRESS") => {
                        let state = format!("IN_PROGRESS: held by {}", word(&row["locked_by"]));
                        (state, &row["locked_at"])
                    }
                    _ => {
                        let tries = row["retry_count"].as_i64().unwrap_or_default();
                        (format!("PENDING: failed {tries} times, next try"), &row["available_at"])
                    }
                };
                put("published", state, at);
            }
            None if self.producer.is_some() => {
                let state = "not in this node's outbox, or pruned after it was sent".to_owned();
                put("node's outbox", state, &Value::Null);
            }
            None => {}
        }
        let Some(historian) = &known.historian else {
            if self.historian.is_some() {
                put("historian", "in none of its tables".to_owned(), &Value::Null);
            }
            return stages;
        };
        let each = |name: &str| historian[name].as_array().cloned().unwrap_or_default();
        for one in each("stored") {
            put("historian", format!("stored: {}", word(&one["table"])), &one["at"]);
        }
        for one in each("dead_letters") {
            put("dead letter", format!("given up: {}", word(&one["cause_code"])), &one["at"]);
        }
        for one in each("federation") {
            let state = format!("for the second historian: {}", word(&one["status"]));
            put("federation", state, &one["created_at"]);
        }
        stages
    }
}

/// Whether the file has a section of this name.
pub(crate) fn has_section(file: Option<&Path>, section: &str) -> bool {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    text.parse::<toml::Table>().is_ok_and(|sections| sections.contains_key(section))
}
