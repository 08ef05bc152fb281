//! Checking a backup, and putting it into a database.

use std::path::{Path, PathBuf};

use tokio_postgres::IsolationLevel;

use super::Role;
use super::folder::Store;
use super::manifest::Manifest;
use super::tools;
use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Which backup; the newest if not said.
    id: Option<String>,
    /// The folder with the backups.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    from: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Which backup; the newest of the role if not said.
    id: Option<String>,
    /// The folder with the backups.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    from: PathBuf,
    /// The database to restore into: it must be there, and empty.
    #[arg(long, env = "HOLDFAST_RESTORE_URL", hide_env_values = true)]
    into: String,
    /// Whose backup, where none is named.
    #[arg(long, value_enum, default_value = "edge")]
    role: Role,
    /// Remove what the database holds first.
    #[arg(long)]
    replace: bool,
    /// Do not hash the backup's files first.
    #[arg(long)]
    no_verify: bool,
    /// Tables restored at once.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}

/// Runs `verify`.
pub(super) async fn run_verify(args: VerifyArgs) -> anyhow::Result<()> {
    let folder = Store::existing(&args.from)?.find(args.id.as_deref(), None)?;
    let manifest = Manifest::read(&folder)?;
    let entries = verify(&manifest, &folder).await?;
    say(&format!(
        "{}: {} files with the right hashes, {entries} entries in the dump.\n",
        manifest.id,
        manifest.files.len()
    ))
}

/// Fails with every problem of a backup; returns the entries of its dump.
pub(super) async fn verify(manifest: &Manifest, folder: &Path) -> anyhow::Result<usize> {
    let (checked, place) = (manifest.clone(), folder.to_owned());
    let problems = tokio::task::spawn_blocking(move || checked.check_files(&place)).await??;
    anyhow::ensure!(
        problems.is_empty(),
        "{} is damaged: {}; restore another one, and make a new backup",
        manifest.id,
        problems.join("; ")
    );
    tools::contents(&folder.join("database")).await
}

/// Runs `restore`.
pub(super) async fn run_restore(args: RestoreArgs) -> anyhow::Result<()> {
    let folder = Store::existing(&args.from)?.find(args.id.as_deref(), Some(args.role))?;
    let manifest = Manifest::read(&folder)?;
    if !args.no_verify {
        verify(&manifest, &folder).await?;
    }
    let options = pg::Options::new(&args.into);
    let client = pg::connect(&options).await?;
    if !pg::whole::is_empty(&client).await? {
        let name = pg::whole::about(&client).await?.name;
        anyhow::ensure!(
            args.replace,
            "the database {name} is not empty: name another one, or remove what it holds with --replace"
        );
        pg::whole::clear(&client).await?;
    }
    drop(client);
    tools::restore(&options, args.jobs, &folder.join("database")).await?;
    let differences = compare(&manifest, &options).await?;
    anyhow::ensure!(
        differences.is_empty(),
        "the restored database differs from the manifest: {}",
        differences.join("; ")
    );
    let rows: i64 = manifest.tables.values().sum();
    let next = match manifest.role {
        Role::Edge => "Start the edge on it, then run: holdfast verify --repair\n",
        Role::Cloud => "Start the cloud on it, then run at each site: holdfast verify --repair\n",
    };
    say(&format!(
        "{} is restored: {} tables, {rows} rows, the ledger as it was. {next}",
        manifest.id,
        manifest.tables.len()
    ))
}

/// How a restored database differs from what the manifest says.
pub(super) async fn compare(
    manifest: &Manifest,
    options: &pg::Options,
) -> anyhow::Result<Vec<String>> {
    let mut client = pg::connect(options).await?;
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let tables = pg::whole::table_rows(&transaction).await?;
    let mut differences = Vec::new();
    for (table, rows) in &manifest.tables {
        match tables.get(table) {
            Some(found) if found == rows => {}
            Some(found) => differences.push(format!("{table} has {found} rows: expected {rows}")),
            None => differences.push(format!("{table} is missing")),
        }
    }
    let extra = tables.keys().filter(|table| !manifest.tables.contains_key(*table));
    differences.extend(extra.map(|table| format!("{table} is not in the manifest")));
    let ledger = manifest.role.ledger(&transaction).await?;
    if ledger != manifest.ledger {
        differences.push("the ledger differs".to_owned());
    }
    Ok(differences)
}
