//! Tokens: who may write or read, and whose data. The table is `api_tokens`, in each role's database.
//!
//! Promises: a token has 256 random bits, is shown once, and is stored as its SHA-256 only; it is
//! compared in constant time. A token that was revoked or has expired is refused within
//! `cache::TTL`. Everything here returns data; nothing prints.

mod bearer;
mod cache;
mod caller;
mod text;

use std::fmt;
use std::str::FromStr;

use event::id::TenantId;
use jiff::Timestamp;
use serde::Serialize;
use settings::Secret;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

pub use bearer::bears;
pub use cache::{Lookup, Tokens};
pub use caller::{ACTING_FOR, Caller};
pub use text::TokenHash;

/// The longest name.
const MAX_NAME_CHARS: usize = 100;
/// The most tenants one token names; beyond it, all of them is meant.
const MAX_TENANTS: usize = 1_000;

/// Why a token could not be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The name cannot be used.
    #[error("the name must be 1 to 100 characters, none of them a control character")]
    Name,
    /// The list of tenants cannot be used.
    #[error("name 1 to 1000 tenants, or all of them")]
    Tenants,
    /// A time in the past.
    #[error("the token would have expired already")]
    Expired,
    /// There is no token of that id.
    #[error("there is no token {0}")]
    Unknown(Uuid),
    /// A row that this code did not write.
    #[error("the row of token {0} is damaged")]
    Damaged(Uuid),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// A site's forwarder: writes batches.
    Edge,
    /// A person who acts: redrives, replays.
    Operator,
    /// A person or a page that looks.
    Viewer,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Admin, Role::Edge, Role::Operator, Role::Viewer];

    /// The role as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Edge => "edge",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| "expected admin, edge, operator or viewer".to_owned())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose data a token may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Every tenant's, those that come later too.
    All,
    /// These tenants'.
    Only(Vec<TenantId>),
}

impl Tenants {
    /// Whether a tenant is among them.
    pub fn allow(&self, tenant: TenantId) -> bool {
        match self {
            Tenants::All => true,
            Tenants::Only(tenants) => tenants.contains(&tenant),
        }
    }
}

impl Serialize for Tenants {
    /// `"all"`, or the list.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tenants::All => serializer.serialize_str("all"),
            Tenants::Only(tenants) => tenants.serialize(serializer),
        }
    }
}

/// A token as it is stored: everything but itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    /// What to call it by.
    pub id: Uuid,
    /// A name for people.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whose data it may touch.
    pub tenants: Tenants,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops.
    pub expires_at: Option<Timestamp>,
    /// When it was stopped.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// A name for people.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whose data it may touch.
    pub tenants: Tenants,
    /// When it stops; `None` for never.
    pub expires_at: Option<Timestamp>,
}

const COLUMNS: &str =
    "id, name, role, tenants, created_at, expires_at, revoked_at, last_used_at, hash";

/// Makes a token. The secret is returned here and nowhere else.
pub async fn create(client: &Client, new: &NewToken) -> Result<(Token, Secret), Error> {
    if !is_name(&new.name) {
        return Err(Error::Name);
    }
    let tenants: Option<Vec<Uuid>> = match &new.tenants {
        Tenants::All => None,
        Tenants::Only(list) if (1..=MAX_TENANTS).contains(&list.len()) => {
            Some(list.iter().map(|tenant| tenant.uuid()).collect())
        }
        Tenants::Only(_) => return Err(Error::Tenants),
    };
    let secret = text::mint();
    let hash = TokenHash::of(secret.expose());
    // The database's clock decides, here as when the token is used.
    let row = client
        .query_opt(
            &format!(
                "INSERT INTO api_tokens (id, name, hash, role, tenants, expires_at)
                 SELECT $1, $2, $3, $4, $5, $6::timestamptz
                 WHERE $6::timestamptz IS NULL OR $6::timestamptz > now()
                 RETURNING {COLUMNS}"
            ),
            &[
                &Uuid::now_v7(),
                &new.name,
                &hash.bytes(),
                &new.role.as_str(),
                &tenants,
                &new.expires_at,
            ],
        )
        .await?
        .ok_or(Error::Expired)?;
    Ok((token(&row)?, secret))
}

/// Whether a text can be the name of a token or of a person.
fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// Every token, the oldest first; revoked and expired ones too.
pub async fn list(client: &Client) -> Result<Vec<Token>, Error> {
    let query = format!("SELECT {COLUMNS} FROM api_tokens ORDER BY created_at, id");
    client.query(&query, &[]).await?.iter().map(token).collect()
}

/// Stops a token. One that was stopped before keeps its time.
pub async fn revoke(client: &Client, id: Uuid) -> Result<Token, Error> {
    let query = format!(
        "UPDATE api_tokens SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1
         RETURNING {COLUMNS}"
    );
    let row = client.query_opt(&query, &[&id]).await?.ok_or(Error::Unknown(id))?;
    token(&row)
}

fn token(row: &Row) -> Result<Token, Error> {
    let id: Uuid = row.get(0);
    let damaged = || Error::Damaged(id);
    let tenants = match row.get::<_, Option<Vec<Uuid>>>(3) {
        None => Tenants::All,
        Some(list) => {
            let list = list.into_iter().map(TenantId::from_uuid).collect::<Result<_, _>>();
            Tenants::Only(list.map_err(|_| damaged())?)
        }
    };
    Ok(Token {
        id,
        name: row.get(1),
        role: row.get::<_, &str>(2).parse().map_err(|_| damaged())?,
        tenants,
        created_at: row.get(4),
        expires_at: row.get(5),
        revoked_at: row.get(6),
        last_used_at: row.get(7),
    })
}
