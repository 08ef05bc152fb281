//! `operator_audit`: what operators did at a historian or at a node, written in the transaction that does it; a deed outside of the database is written before it
//! ([`begin`]) and completed after it ([`finish`]).

use api::tokens::Caller;
use serde_json::Value;
use uuid::Uuid;

/// The longest name of a user that is kept.
const MAX_ACTOR_CHARS: usize = 255;

/// The parameter that says how a deed outside of the database stands: `started`, then `done` or `failed`.
const OUTCOME: &str = "outcome";

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A request with a token.
    Token {
        /// The token.
        id: Uuid,
        /// Its name.
        name: String,
        /// The person that it acts for, where it says so.
        acting_for: Option<String>,
    },
    /// A user of the machine that the command runs on.
    User(String),
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Actor {
        Actor::Token {
            id: caller.id,
            name: caller.name.clone(),
            acting_for: caller.acting_for().map(str::to_owned),
        }
    }
}

impl Actor {
    /// The person that a token acts for, where it says so.
    pub(crate) fn acting_for(&self) -> Option<&str> {
        match self {
            Actor::Token { acting_for, .. } => acting_for.as_deref(),
            Actor::User(_) => None,
        }
    }

    /// Who it is for people: the person, else the token's name, else what is stored.
    pub(crate) fn person(&self) -> String {
        match self {
            Actor::Token { acting_for: Some(person), .. } => person.clone(),
            Actor::Token { name, .. } if !name.is_empty() => name.clone(),
            Actor::Token { .. } | Actor::User(_) => self.columns().1,
        }
    }

    /// A deed's parameters, with the person beside them.
    fn noted(&self, mut parameters: Value) -> Value {
        if let Some(person) = self.acting_for() {
            parameters["acting_for"] = person.into();
        }
        parameters
    }

    /// The kind and the name, as they are stored.
    pub(crate) fn columns(&self) -> (&'static str, String) {
        match self {
            Actor::Token { id, .. } => ("token", id.to_string()),
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
    let parameters = actor.noted(parameters);
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
    let parameters = actor.noted(parameters);
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
