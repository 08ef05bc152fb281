//! The schema: brought up to date at start, by whichever replica comes first.

/// Where applied migrations are recorded.
const HISTORY: &str = "cloud_migrations";

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Brings the tables up to date.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    pg::migrate(options, HISTORY, embedded::migrations::runner()).await?;
    Ok(())
}
