//! The schemas: a node's and the historian's, each brought up to date at start by whoever comes first.

/// Where a node's applied migrations are recorded.
const PRODUCER_HISTORY: &str = "scada_producer_migrations";

/// Where a historian's applied migrations are recorded.
const HISTORIAN_HISTORY: &str = "scada_historian_migrations";

mod producer {
    refinery::embed_migrations!("migrations/producer");
}

/// Brings a node's tables up to date.
pub async fn migrate_producer(options: &pg::Options) -> Result<(), pg::Error> {
    pg::migrate(options, PRODUCER_HISTORY, producer::migrations::runner()).await?;
    Ok(())
}

mod historian {
    refinery::embed_migrations!("migrations/historian");
}

/// Brings a historian's tables up to date.
pub async fn migrate_historian(options: &pg::Options) -> Result<(), pg::Error> {
    pg::migrate(options, HISTORIAN_HISTORY, historian::migrations::runner()).await?;
    Ok(())
}
