//! The schema `schedule_ingest`, brought up to date at start by whoever comes first.

/// Where the applied migrations are recorded.
const HISTORY: &str = "schedule_migrations";

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Brings the tables up to date.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    pg::migrate(options, HISTORY, embedded::migrations::runner()).await?;
    Ok(())
}
