//! Checking a backup, and putting it into a database.

use std::path::PathBuf;

use ::objects::Bucket;
use anyhow::Context as _;
use tokio_postgres::IsolationLevel;

use super::Role;
use super::manifest::Manifest;
use super::place::{Fetched, Place};
use super::{objects, tools};
use crate::output::{say, say_json};

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Which backup; the newest if not said.
    id: Option<String>,
    /// The folder with the backups, or s3.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    from: PathBuf,
    /// The configuration; for s3 its backup section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// JSON instead of a sentence.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Which backup; the newest of the role if not said.
    id: Option<String>,
    /// The folder with the backups, or s3.
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
    /// Leave the site's object store alone.
    #[arg(long)]
    no_objects: bool,
    /// The configuration; [edge] says where the object store is, backup what s3 is. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// JSON instead of sentences.
    #[arg(long)]
    json: bool,
}

/// Runs `verify`.
pub(super) async fn run_verify(args: VerifyArgs) -> anyhow::Result<()> {
    let place = Place::existing(&args.from, args.config.as_deref())?;
    let backup = place.find(args.id.as_deref(), None).await?;
    let entries = verify(&backup).await?;
    if args.json {
        return say_json(&serde_json::json!({
            "backup": backup.manifest.id,
            "files": backup.manifest.files.len(),
            "objects_copied": backup.manifest.objects.copied,
            "entries": entries,
        }));
    }
    say(&format!(
        "{}: {} files and {} copied objects with the right hashes, {entries} entries in the dump.\n",
        backup.manifest.id,
        backup.manifest.files.len(),
        backup.manifest.objects.copied,
    ))
}

/// Fails with every problem of a backup; returns the entries of its dump.
pub(super) async fn verify(backup: &Fetched) -> anyhow::Result<usize> {
    let (checked, folder) = (backup.manifest.clone(), backup.folder.clone());
    let mut problems = tokio::task::spawn_blocking(move || checked.check_files(&folder)).await??;
    if problems.is_empty() {
        problems = objects::check(backup).await?;
    }
    anyhow::ensure!(
        problems.is_empty(),
        "{} is damaged: {}; restore another one, and make a new backup",
        backup.manifest.id,
        problems.join("; ")
    );
    tools::contents(&backup.folder.join("database")).await
}

/// The site's store, where a backup has something to put there.
fn site_store(args: &RestoreArgs, manifest: &Manifest) -> anyhow::Result<Option<Bucket>> {
    if args.no_objects || manifest.objects.copied == 0 {
        return Ok(None);
    }
    let store = manifest.role.objects(args.config.as_deref());
    let said = "the backup holds objects: give --config with the [edge] section that says where they go, or --no-objects";
    store.context(said)?.context(said).map(Some)
}

/// Runs `restore`.
pub(super) async fn run_restore(args: RestoreArgs) -> anyhow::Result<()> {
    let place = Place::existing(&args.from, args.config.as_deref())?;
    let backup = place.find(args.id.as_deref(), Some(args.role)).await?;
    let manifest = &backup.manifest;
    let store = site_store(&args, manifest)?;
    if !args.no_verify {
        verify(&backup).await?;
    }
    let options = pg::Options::new(&args.into);
    let client = pg::connect(&options).await?;
    let name = pg::whole::about(&client).await?.name;
    anyhow::ensure!(
        !pg::whole::is_being_restored(&client).await?,
        "the database {name} is being restored: a pg_restore works on it, perhaps of a restore that was killed; \
         wait until it has ended, or end it"
    );
    if !pg::whole::is_empty(&client).await? {
        anyhow::ensure!(
            args.replace,
            "the database {name} is not empty: name another one, or remove what it holds with --replace"
        );
        pg::whole::clear(&client).await?;
    }
    drop(client);
    tools::restore(&options, args.jobs, &backup.folder.join("database")).await?;
    let differences = compare(manifest, &options).await?;
    anyhow::ensure!(
        differences.is_empty(),
        "the restored database differs from the manifest: {}",
        differences.join("; ")
    );
    let rows: i64 = manifest.tables.values().sum();
    let next = match manifest.role {
        Role::Edge => "Start the edge on it, then run: holdfast verify --repair",
        Role::Cloud => "Start the cloud on it, then run at each site: holdfast verify --repair",
    };
    if !args.json {
        say(&format!(
            "{} is restored: {} tables, {rows} rows, the ledger as it was. {next}\n",
            manifest.id,
            manifest.tables.len()
        ))?;
    }
    let done = match store {
        Some(bucket) => Some(objects::put_back(&backup, &bucket).await?),
        None => None,
    };
    if args.json {
        say_json(&serde_json::json!({
            "backup": manifest.id,
            "role": manifest.role,
            "tables": manifest.tables.len(),
            "rows": rows,
            "objects": done,
            "next": next,
        }))?;
    }
    let Some(done) = done else { return Ok(()) };
    if !args.json {
        say(&format!("{} objects are put back, {} were there.\n", done.put, done.there))?;
    }
    anyhow::ensure!(
        done.others.is_empty(),
        "the store has another object under {} keys, which were left alone: {}",
        done.others.len(),
        done.others.iter().take(10).cloned().collect::<Vec<_>>().join(", ")
    );
    Ok(())
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
    if manifest.objects.mode != "none" {
        let stored = edge::media::stored_count(&transaction, &manifest.objects.bucket).await?;
        if stored != manifest.objects.count {
            let expected = manifest.objects.count;
            differences.push(format!("{stored} images are stored: expected {expected}"));
        }
    }
    if ledger != manifest.ledger {
        differences.push("the ledger differs".to_owned());
    }
    Ok(differences)
}
