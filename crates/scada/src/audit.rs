//! `operator_audit`: what operators did at a historian or at a node, written in the transaction that does it; a deed outside of the database is written before it
//! ([`begin`]) and completed after it ([`finish`]).

use serde_json::Value;
use uuid::Uuid;

/// The longest name of a user that is kept.
const MAX_ACTOR_CHARS: usize = 255;

/// The parameter that says how a deed outside of the database stands: `started`, then `done` or `failed`.
const OUTCOME: &str = "outcome";

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A request with this token.
    Token(Uuid),
    /// A user of the machine that the command runs on.
    User(String),
}

impl Actor {
    /// The kind and the name, as they are stored.
    pub(crate) fn columns(&self) -> (&'static str, String) {
        match self {
            Actor::Token(id) => ("token", id.to_string()),
            Actor::User(name) if name.is_empty() => ("user", "unknown".to_owned()),
            Actor::User(name) => ("user", name.chars().take(MAX_ACTOR_CHARS).collect()),
        }
    }
}

/// Records a deed.
pub(crate) async fn record(
    client: &impl tokio_postgres::GenericClient,
    actor: &Actor,
    action: &str,
    parameters: Value,
    changed: i64,
) -> Result<(), pg::Error> {
    let (kind, name) = actor.columns();
    client
        .execute(
            "INSERT INTO operator_audit (actor_kind, actor, action, parameters, changed)
             VALUES ($1, $2, $3, $4, $5)",
            &[&kind, &name, &action, &parameters, &changed],
        )
        .await?;
    Ok(())
}

/// Records that a deed outside of the database begins. Returns the number of the record; without one the deed must not be done.
pub async fn begin(
    client: &tokio_postgres::Client,
    actor: &Actor,
    action: &str,
    mut parameters: Value,
) -> Result<i64, pg::Error> {
    parameters[OUTCOME] = "started".into();
    let (kind, name) = actor.columns();
    let row = client
        .query_one(
            "INSERT INTO operator_audit (actor_kind, actor, action, parameters, changed)
             VALUES ($1, $2, $3, $4, 0) RETURNING id",
            &[&kind, &name, &action, &parameters],
        )
        .await?;
    Ok(row.get(0))
}

/// Records how it ended: what is in `more` is joined with the record's parameters.
pub async fn finish(
    client: &tokio_postgres::Client,
    id: i64,
    changed: u64,
    more: Value,
) -> Result<(), pg::Error> {
    let changed = i64::try_from(changed).unwrap_or(i64::MAX);
    client
        .execute(
            "UPDATE operator_audit SET changed = $2, parameters = parameters || $3
             WHERE id = $1 AND parameters ->> 'outcome' = 'started'",
            &[&id, &changed, &more],
        )
        .await?;
    Ok(())
}
