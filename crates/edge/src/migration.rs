//! The schema: brought up to date at start, by whichever replica comes first.

use jiff::Timestamp;

use crate::maintenance::ensure_partitions;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The edge's tables.
pub const SCHEMA: pg::Schema =
    pg::Schema { history: "edge_migrations", runner: embedded::migrations::runner };

/// Brings the tables up to date and makes the partitions around now.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    SCHEMA.migrate(options).await?;
    let mut client = pg::connect(options).await?;
    ensure_partitions(&mut client, Timestamp::now()).await?;
    Ok(())
}
