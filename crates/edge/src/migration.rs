//! The schema: brought up to date at start, by whichever replica comes first.

use jiff::Timestamp;

use crate::maintenance::ensure_partitions;

/// Where applied migrations are recorded.
const HISTORY: &str = "edge_migrations";

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Brings the tables up to date and makes the partitions around now.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    pg::migrate(options, HISTORY, embedded::migrations::runner()).await?;
    let mut client = pg::connect(options).await?;
    ensure_partitions(&mut client, Timestamp::now()).await?;
    Ok(())
}
