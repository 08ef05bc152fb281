//! A turn that one process at a time has, however many replicas there are, and by which others see that it is still at it.
//!
//! It belongs to a connection, so that it goes with a process that is killed.

use tokio_postgres::Client;

use crate::{Error, Options, connect};

/// The turn itself; every other number of the kind is that of a deed.
const WHOLE: i32 = 0;

/// A turn, for as long as it lives.
#[derive(Debug)]
pub struct Turn {
    client: Client,
    kind: i32,
    deed: i64,
}

impl Turn {
    /// Takes the turn of a kind on a connection of its own; `None` when somebody else has it.
    pub async fn take(options: &Options, kind: i32) -> Result<Option<Turn>, Error> {
        let client = connect(options).await?;
        let query = "SELECT pg_try_advisory_lock($1, $2)";
        let taken: bool = client.query_one(query, &[&kind, &WHOLE]).await?.get(0);
        Ok(taken.then_some(Turn { client, kind, deed: 0 }))
    }

    /// The same turn, taken for this deed, a number of a row. Whoever asks by [`Turn::is_for`] sees it until the turn is over.
    pub async fn now_for(self, deed: i64) -> Result<Turn, Error> {
        let query = "SELECT pg_advisory_lock($1, $2)";
        self.client.execute(query, &[&self.kind, &number(deed)]).await?;
        Ok(Turn { deed, ..self })
    }

    /// What it was taken for.
    pub fn deed(&self) -> i64 {
        self.deed
    }

    /// Whether somebody has the turn for this deed.
    pub async fn is_for(client: &Client, kind: i32, deed: i64) -> Result<bool, Error> {
        // Within one statement, after which it is free again.
        let query = "SELECT NOT pg_try_advisory_xact_lock_shared($1, $2)";
        Ok(client.query_one(query, &[&kind, &number(deed)]).await?.get(0))
    }

    /// The connection, to work by.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Numbers that are two billion apart share one, which no two deeds of a time do; none is [`WHOLE`].
fn number(deed: i64) -> i32 {
    i32::try_from(deed.rem_euclid(i64::from(i32::MAX))).unwrap_or_default().saturating_add(1)
}
