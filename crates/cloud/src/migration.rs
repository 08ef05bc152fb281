//! The schema: brought up to date at start, by whichever replica comes first.

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The cloud's tables.
pub const SCHEMA: pg::Schema =
    pg::Schema { history: "cloud_migrations", runner: embedded::migrations::runner };

/// Brings the tables up to date.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    SCHEMA.migrate(options).await?;
    Ok(())
}
