//! What commands share that look at things a role of the cloud gave up, and put them back: whose, when, and how the answer is shown.

use std::path::PathBuf;

use cloud::dead_letters::audit::Counted;
use event::id::TenantId;
use jiff::Timestamp;
use tokio_postgres::Client;

use crate::output::say;

// Whose, and since when; where they are; and how they are shown. Not a doc comment: that would become the help of the command that has these.
#[derive(Debug, clap::Args)]
pub(crate) struct Scope {
    /// One tenant.
    #[arg(long)]
    pub(crate) tenant: Option<TenantId>,
    /// Given up at this time or later; a time, or 2h for two hours ago.
    #[arg(long, value_parser = crate::outbox::moment)]
    pub(crate) since: Option<Timestamp>,
    /// Given up before this time.
    #[arg(long, value_parser = crate::outbox::moment)]
    pub(crate) until: Option<Timestamp>,
    /// JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// The configuration; its [cloud] section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

impl Scope {
    /// Whether it is everything.
    pub(crate) fn is_all(&self) -> bool {
        self.tenant.is_none() && self.since.is_none() && self.until.is_none()
    }

    /// The cloud's database.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let config = cloud::Config::load(self.config.as_deref(), crate::config::environment)?;
        Ok(pg::connect(&config.database).await?)
    }

    /// Says how many were put back, or would be: `what` they are, and what then happens to them.
    pub(crate) fn tell(
        &self,
        done: &Counted,
        dry_run: bool,
        what: &str,
        deed: &str,
    ) -> anyhow::Result<()> {
        if self.json {
            return say(&format!("{}\n", serde_json::to_string_pretty(done)?));
        }
        let Counted { matched, changed } = done;
        say(&match dry_run {
            true => format!("{matched} {what} would be {deed}\n"),
            false => format!("{changed} of {matched} {what} are {deed}\n"),
        })
    }
}
