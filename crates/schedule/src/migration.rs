//! The schema `schedule_ingest`, brought up to date at start by whoever comes first.

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The tables of schedules.
pub const SCHEMA: pg::Schema =
    pg::Schema { history: "schedule_migrations", runner: embedded::migrations::runner };

/// Brings the tables up to date.
pub async fn migrate(options: &pg::Options) -> Result<(), pg::Error> {
    SCHEMA.migrate(options).await?;
    Ok(())
}
