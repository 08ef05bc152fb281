//! `holdfast backup …`: dumps of a role's database with a manifest, and proof that they can be restored.
//!
//! docs/spec/backup.md has the layout and the order of steps. Promises: a backup without its manifest is not one; a kill at
//! any step leaves a whole backup or a leftover that `list` names and `create` removes; dump, counts and ledger are of one
//! moment; an object of a site is never overwritten. It must not know the tables: the roles' crates read their ledgers.

pub(crate) mod config;
mod create;
mod disk;
mod drill;
mod folder;
mod manifest;
mod objects;
mod place;
mod progress;
mod remote;
mod restore;
mod show;
mod tools;

use std::path::PathBuf;

use ::objects::Bucket;
use clap::{Subcommand, ValueEnum};
use event::ledger::LedgerSummary;
use serde::{Deserialize, Serialize};

/// `holdfast backup …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Back up a database.
    #[command(after_help = "Examples:
  holdfast backup create --to /srv/backups
  holdfast backup create --to /srv/backups --role cloud --jobs 4 --keep-days 90
  holdfast backup create --to s3 --objects copy --config edge.toml")]
    Create(create::Args),
    /// What there is, and what a crash left.
    #[command(after_help = "Examples:
  holdfast backup list --from /srv/backups
  holdfast backup list --from /srv/backups --json | jq '.backups[0].id'")]
    List(ListArgs),
    /// Hash every file again and read the dump's table of contents.
    #[command(after_help = "Examples:
  holdfast backup verify --from /srv/backups
  holdfast backup verify --from /srv/backups edge-20260201T100000Z-1f3a
  holdfast backup verify --from /srv/backups --json | jq .backup")]
    Verify(restore::VerifyArgs),
    /// Put a backup into an empty database.
    #[command(after_help = "Examples:
  holdfast backup restore --from /srv/backups --into postgres:///site
  holdfast backup restore edge-20260201T100000Z-1f3a --from /srv/backups --into postgres:///site --replace
  holdfast verify --repair                       afterwards, with the edge running")]
    Restore(restore::RestoreArgs),
    /// Restore into a scratch database, check it, and report how long it took.
    #[command(after_help = "Examples:
  holdfast backup drill --from /srv/backups
  holdfast backup drill --from /srv/backups --server postgres://admin@spare/postgres")]
    Drill(drill::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The folder with the backups, or s3.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    from: PathBuf,
    /// The configuration; for s3 its backup section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Whose database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// A site's.
    Edge,
    /// The cloud's.
    Cloud,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Role::Edge => "edge",
            Role::Cloud => "cloud",
        }
    }

    /// Where its database is.
    fn database(self, file: Option<&std::path::Path>) -> anyhow::Result<pg::Options> {
        let options = match self {
            Role::Edge => edge::Config::load(file, crate::config::environment)?.database,
            Role::Cloud => cloud::Config::load(file, crate::config::environment)?.database,
        };
        // Counting the rows of a large table is no slow statement to be cut off.
        Ok(pg::Options { statement_timeout: None, ..options })
    }

    /// The object store of a site, if it has one.
    fn objects(self, file: Option<&std::path::Path>) -> anyhow::Result<Option<Bucket>> {
        match self {
            Role::Edge => {
                let config = edge::Config::load(file, crate::config::environment)?;
                Ok(config.object_store()?)
            }
            Role::Cloud => Ok(None),
        }
    }

    /// Its ledger, in a transaction's snapshot.
    async fn ledger(
        self,
        transaction: &tokio_postgres::Transaction<'_>,
    ) -> Result<LedgerSummary, pg::Error> {
        match self {
            Role::Edge => edge::ledger::summary(transaction).await,
            Role::Cloud => cloud::ledger::summary(transaction).await,
        }
    }
}

/// Runs a `backup` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create::run(args).await,
        Command::List(args) => {
            let place = place::Place::existing(&args.from, args.config.as_deref())?;
            let found = place.list().await?;
            match args.json {
                true => crate::output::say(&format!("{}\n", serde_json::to_string_pretty(&found)?)),
                false => crate::output::say(&show::list(&found)),
            }
        }
        Command::Verify(args) => restore::run_verify(args).await,
        Command::Restore(args) => restore::run_restore(args).await,
        Command::Drill(args) => drill::run(args).await,
    }
}
