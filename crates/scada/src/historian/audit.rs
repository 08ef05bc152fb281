//! `operator_audit`: what operators did, written in the transaction that does it.

use serde_json::Value;
use uuid::Uuid;

/// The longest name of a user that is kept.
const MAX_ACTOR_CHARS: usize = 255;

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
    pub(super) fn columns(&self) -> (&'static str, String) {
        match self {
            Actor::Token(id) => ("token", id.to_string()),
            Actor::User(name) if name.is_empty() => ("user", "unknown".to_owned()),
            Actor::User(name) => ("user", name.chars().take(MAX_ACTOR_CHARS).collect()),
        }
    }
}

/// Records a deed.
pub(super) async fn record(
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
