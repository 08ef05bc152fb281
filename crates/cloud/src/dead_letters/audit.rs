//! `operator_audit`: what operators did, written before the deed and completed after it.
//!
//! A deed without its record is not done: [`begin`] comes first, and its error stops the caller. A record that stays
//! `started` is of a process that ended in the middle.

use api::tokens::Caller;
use bus::Progress;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// The longest name of a user that is kept.
const MAX_ACTOR_CHARS: usize = 255;
/// The longest error that is kept.
const MAX_ERROR_CHARS: usize = 500;

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A request with a token.
    Token {
        /// The token.
        id: Uuid,
        /// The person that it acts for, where it says so.
        acting_for: Option<String>,
    },
    /// A user of the machine that the command runs on.
    User(String),
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Actor {
        Actor::Token { id: caller.id, acting_for: caller.acting_for().map(str::to_owned) }
    }
}

impl Actor {
    /// The token's id, or the user's name.
    pub(crate) fn name(&self) -> String {
        self.columns().1
    }

    fn columns(&self) -> (&'static str, String) {
        match self {
            Actor::Token { id, .. } => ("token", id.to_string()),
            Actor::User(name) if name.is_empty() => ("user", "unknown".to_owned()),
            Actor::User(name) => ("user", name.chars().take(MAX_ACTOR_CHARS).collect()),
        }
    }
}

/// A deed that is to be recorded.
#[derive(Debug, Clone)]
pub struct Deed<'a> {
    /// Who.
    pub actor: &'a Actor,
    /// What: lower-case words joined by dots, `dlq.replay`.
    pub action: &'a str,
    /// With which parameters: an object, without bodies and secrets.
    pub parameters: Value,
    /// Whether nothing is changed.
    pub dry_run: bool,
}

/// What a deed came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// How many were meant, beyond its limit too.
    pub matched: u64,
    /// Of these, changed.
    pub changed: u64,
}

/// How a deed ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done {
        /// How many were meant.
        matched: u64,
        /// How many were changed.
        changed: u64,
    },
    /// It failed, perhaps in the middle.
    Failed {
        /// How many were changed before.
        changed: u64,
        /// Why, without bodies.
        error: String,
    },
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// What to call it by.
    pub id: i64,
    /// When it began.
    pub at: Timestamp,
    /// `token` or `user`.
    pub actor_kind: String,
    /// The token's id, or the user's name.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// With which parameters.
    pub parameters: Value,
    /// Whether nothing was to be changed.
    pub dry_run: bool,
    /// How many were meant; before the end, so far, where that is known.
    pub matched: Option<i64>,
    /// How many were changed; before the end, so far, where that is known.
    pub changed: Option<i64>,
    /// `started`, `done` or `failed`.
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// How many it has looked at so far, where it looks at them one by one.
    pub seen: Option<i64>,
    /// Of how many.
    pub total: Option<i64>,
}

/// Records a deed that is one statement or two: that it begins, and what it came to, whether it was done or failed. It is told the number of its
/// record, which is returned too.
pub async fn recorded<F: Future<Output = Result<Counted, pg::Error>>>(
    client: &Client,
    deed: &Deed<'_>,
    doing: impl FnOnce(i64) -> F,
) -> Result<(i64, Counted), pg::Error> {
    let id = begin(client, deed).await?;
    let done = doing(id).await;
    let outcome = match &done {
        Ok(Counted { matched, changed }) => Outcome::Done { matched: *matched, changed: *changed },
        Err(error) => Outcome::Failed { changed: 0, error: error.to_string() },
    };
    let written = finish(client, id, &outcome).await;
    let done = done?;
    written?;
    Ok((id, done))
}

/// Records that a deed begins. Returns the number of the record.
pub async fn begin(client: &Client, deed: &Deed<'_>) -> Result<i64, pg::Error> {
    let (kind, actor) = deed.actor.columns();
    let mut parameters = deed.parameters.clone();
    if let Actor::Token { acting_for: Some(person), .. } = deed.actor {
        parameters["acting_for"] = person.as_str().into();
    }
    let row = client
        .query_one(
            "INSERT INTO operator_audit (actor_kind, actor, action, parameters, dry_run)
             VALUES ($1, $2, $3, $4, $5) RETURNING id",
            &[&kind, &actor, &deed.action, &parameters, &deed.dry_run],
        )
        .await?;
    Ok(row.get(0))
}

/// Records how far a deed is that takes long.
pub async fn note(client: &Client, id: i64, progress: Progress) -> Result<(), pg::Error> {
    let Progress { seen, total, matched, changed } = progress;
    client
        .execute(
            "UPDATE operator_audit SET seen = $2, total = $3, matched = $4, changed = $5
             WHERE id = $1 AND outcome = 'started'",
            &[&id, &number(seen), &number(total), &number(matched), &number(changed)],
        )
        .await?;
    Ok(())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Records how it ended.
pub async fn finish(client: &Client, id: i64, outcome: &Outcome) -> Result<(), pg::Error> {
    let (word, matched, changed, error) = match outcome {
        Outcome::Done { matched, changed } => {
            ("done", Some(number(*matched)), number(*changed), None)
        }
        Outcome::Failed { changed, error } => {
            let error: String =
                error.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
            ("failed", None, number(*changed), Some(error))
        }
    };
    client
        .execute(
            "UPDATE operator_audit
             SET outcome = $2, matched = $3, changed = $4, error = $5, finished_at = now()
             WHERE id = $1 AND outcome = 'started'",
            &[&id, &word, &matched, &changed, &error],
        )
        .await?;
    Ok(())
}

const COLUMNS: &str =
    "id, at, actor_kind, actor, action, parameters, dry_run, matched, changed, outcome, error,
    seen, total";

/// The latest records, newest first.
pub async fn latest(client: &Client, limit: usize) -> Result<Vec<Record>, pg::Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let query = format!("SELECT {COLUMNS} FROM operator_audit ORDER BY at DESC, id DESC LIMIT $1");
    let rows = client.query(&query, &[&limit]).await?;
    Ok(rows.iter().map(record).collect())
}

/// One record.
pub async fn show(client: &Client, id: i64) -> Result<Option<Record>, pg::Error> {
    let query = format!("SELECT {COLUMNS} FROM operator_audit WHERE id = $1");
    Ok(client.query_opt(&query, &[&id]).await?.as_ref().map(record))
}

fn record(row: &Row) -> Record {
    Record {
        id: row.get(0),
        at: row.get(1),
        actor_kind: row.get(2),
        actor: row.get(3),
        action: row.get(4),
        parameters: row.get(5),
        dry_run: row.get(6),
        matched: row.get(7),
        changed: row.get(8),
        outcome: row.get(9),
        error: row.get(10),
        seen: row.get(11),
        total: row.get(12),
    }
}
