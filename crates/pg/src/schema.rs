//! What a program expects of a database, what is there, and who the server is.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio_postgres::Client;

use crate::{Error, Options};

/// The tables of a crate: where its applied migrations are recorded, and which it has.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The table that records them; a constant of the crate.
    pub history: &'static str,
    /// Makes what runs them.
    pub runner: fn() -> refinery::Runner,
}

/// How far a database is, against what a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Migrations that the program has.
    pub wanted: usize,
    /// Of these, those that are not applied yet.
    pub missing: usize,
    /// Applied ones that the program does not know.
    pub foreign: usize,
}

impl Schema {
    /// Brings the tables up to date, and returns how many migrations were applied; see [`migrate`](crate::migrate()).
    pub async fn migrate(&self, options: &Options) -> Result<usize, Error> {
        crate::migrate(options, self.history, (self.runner)()).await
    }

    /// How far a database is; nothing when it has none of the tables yet.
    pub async fn standing(&self, client: &Client) -> Result<Option<Standing>, Error> {
        let there =
            client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.history]).await?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        // The name of the table is a constant of ours.
        let query = format!("SELECT version::int8 FROM {}", self.history);
        let rows = client.query(&query, &[]).await?;
        let applied: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let wanted: BTreeSet<i64> =
            (self.runner)().get_migrations().iter().map(|one| i64::from(one.version())).collect();
        Ok(Some(Standing {
            wanted: wanted.len(),
            missing: wanted.difference(&applied).count(),
            foreign: applied.difference(&wanted).count(),
        }))
    }
}

/// A server, by its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// The first number of its version.
    pub major: i32,
    /// Its version.
    pub version: String,
    /// What its clock says.
    pub now: Timestamp,
}

/// Asks a server who it is.
pub async fn server_facts(client: &Client) -> Result<ServerFacts, Error> {
    let query = "SELECT current_setting('server_version_num')::int4 / 10000,
        current_setting('server_version'), clock_timestamp()";
    let row = client.query_one(query, &[]).await?;
    Ok(ServerFacts { major: row.get(0), version: row.get(1), now: row.get(2) })
}
