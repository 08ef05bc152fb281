//! The schemas: a node's and the historian's, each brought up to date at start by whoever comes first.

mod producer {
    refinery::embed_migrations!("migrations/producer");
}

mod historian {
    refinery::embed_migrations!("migrations/historian");
}

/// A node's tables.
pub const PRODUCER: pg::Schema =
    pg::Schema { history: "scada_producer_migrations", runner: producer::migrations::runner };

/// A historian's tables.
pub const HISTORIAN: pg::Schema =
    pg::Schema { history: "scada_historian_migrations", runner: historian::migrations::runner };

/// Brings a node's tables up to date.
pub async fn migrate_producer(options: &pg::Options) -> Result<(), pg::Error> {
    PRODUCER.migrate(options).await?;
    Ok(())
}

/// Brings a historian's tables up to date.
pub async fn migrate_historian(options: &pg::Options) -> Result<(), pg::Error> {
    HISTORIAN.migrate(options).await?;
    Ok(())
}
