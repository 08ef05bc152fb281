//! Migrations that any number of replicas may start at once.

use crate::{Error, Options, connect};

/// The session lock that all migrations of one database take, whichever role they belong to. The
/// number says "hold" in ASCII; it only has to differ from other locks in the same database.
const MIGRATION_LOCK: i64 = 0x686f_6c64;

/// Brings a schema up to date and returns how many migrations were applied.
///
/// `history` names the table that records them. Each crate that owns tables has a history of its
/// own, so that several can share a database. Replicas that start together wait for one another;
/// the later ones then find nothing to do. The lock belongs to the connection, so that a replica
/// killed in the middle does not hold up the others, and each migration is a transaction of its own.
pub async fn migrate(
    options: &Options,
    history: &str,
    mut runner: refinery::Runner,
) -> Result<usize, Error> {
    // A migration may rewrite a table and a replica may wait for another's: neither is a slow
    // statement to be cut off.
    let options = Options { statement_timeout: None, ..options.clone() };
    let mut client = connect(&options).await?;
    client.batch_execute("SET statement_timeout = 0; SET lock_timeout = 0").await?;
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await?;
    runner.set_migration_table_name(history);
    let report = runner
        .run_async(&mut client)
        .await
        .map_err(|source| Error::Migration { history: history.to_owned(), source })?;
    let applied = report.applied_migrations();
    for migration in applied {
        tracing::info!(history, %migration, "migration applied");
    }
    Ok(applied.len())
}
