//! `operator_audit`: what operators did, written before the deed and completed after it.
//!
//! A deed without its record is not done: [`begin`] comes first, and its error stops the caller. A record that stays
//! `started` is of a process that ended in the middle.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

/// The longest name of a user that is kept.
const MAX_ACTOR_CHARS: usize = 255;
/// The longest error that is kept.
const MAX_ERROR_CHARS: usize = 500;

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A request with this token.
    Token(Uuid),
    /// A user of the machine that the command runs on.
    User(String),
}

impl Actor {
    fn columns(&self) -> (&'static str, String) {
        match self {
            Actor::Token(id) => ("token", id.to_string()),
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
    /// How many were meant; not known before the end.
    pub matched: Option<i64>,
    /// How many were changed; not known before the end.
    pub changed: Option<i64>,
    /// `started`, `done` or `failed`.
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
}

/// Records that a deed begins. Returns the number of the record.
pub async fn begin(client: &Client, deed: &Deed<'_>) -> Result<i64, pg::Error> {
    let (kind, actor) = deed.actor.columns();
    let row = client
        .query_one(
            "INSERT INTO operator_audit (actor_kind, actor, action, parameters, dry_run)
             VALUES ($1, $2, $3, $4, $5) RETURNING id",
            &[&kind, &actor, &deed.action, &deed.parameters, &deed.dry_run],
        )
        .await?;
    Ok(row.get(0))
}

/// Records how it ended.
pub async fn finish(client: &Client, id: i64, outcome: &Outcome) -> Result<(), pg::Error> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
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

/// The latest records, newest first.
pub async fn latest(client: &Client, limit: usize) -> Result<Vec<Record>, pg::Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = client
        .query(
            "SELECT id, at, actor_kind, actor, action, parameters, dry_run, matched, changed, outcome, error
             FROM operator_audit ORDER BY at DESC, id DESC LIMIT $1",
            &[&limit],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| Record {
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
        })
        .collect())
}
