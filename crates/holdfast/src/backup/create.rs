//! Making a backup: the steps of docs/spec/backup.md, in their order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::IsolationLevel;

use super::Role;
use super::folder::{Store, days_ago};
use super::manifest::{self, FORMAT, Manifest, Objects};
use super::progress::Progress;
use super::{show, tools};
use crate::output::say;

/// How often the growing dump is measured for the progress shown.
const MEASURE_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for backups; made if it is not there.
    #[arg(long, env = "HOLDFAST_BACKUPS")]
    to: PathBuf,
    /// Whose database.
    #[arg(long, value_enum, default_value = "edge")]
    role: Role,
    /// Tables dumped at once.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Remove backups of this role that are older, and never the newest.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    keep_days: u32,
    /// JSON instead of a sentence.
    #[arg(long)]
    json: bool,
    /// The configuration; the role's section is read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

/// Runs it.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let options = args.role.database(args.config.as_deref())?;
    let store = Store::open(&args.to)?;
    for name in store.clean()? {
        tracing::warn!(name, "removed what an interrupted backup left");
    }
    let manifest = create(&store, args.role, &options, args.jobs).await?;
    let pruned = store.prune(args.role, days_ago(args.keep_days))?;
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&manifest)?)),
        false => say(&show::created(&manifest, &pruned)),
    }
}

/// Makes one backup.
pub(super) async fn create(
    store: &Store,
    role: Role,
    options: &pg::Options,
    jobs: u16,
) -> anyhow::Result<Manifest> {
    let started_at = Timestamp::now();
    let pg_dump_version = tools::dump_version().await?;
    let mut client = pg::connect(options).await?;
    let database = pg::whole::about(&client).await?;
    let stamp = started_at.strftime("%Y%m%dT%H%M%SZ");
    let id = format!("{}-{stamp}-{:04x}", role.as_str(), rand::random::<u16>());
    let partial = store.begin(&id)?;
    partial.share_lock()?;

    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let snapshot = pg::whole::export_snapshot(&transaction).await?;
    let dump = partial.path.join("database");
    let child = tools::start_dump(options, &snapshot, jobs, &dump)?;
    let watched = async {
        tokio::select! {
            done = tools::finish("pg_dump", child) => done,
            never = watch(&dump) => never,
        }
    };
    let read = async {
        let tables = pg::whole::table_rows(&transaction).await?;
        Ok((tables, role.ledger(&transaction).await?))
    };
    let ((), (tables, ledger)) = tokio::try_join!(watched, read)?;
    transaction.commit().await?;

    let folder = partial.path.clone();
    let files = tokio::task::spawn_blocking(move || manifest::list_files(&folder)).await??;
    let manifest = Manifest {
        format: FORMAT,
        id,
        role,
        started_at,
        finished_at: Timestamp::now(),
        holdfast_version: env!("CARGO_PKG_VERSION").to_owned(),
        postgres_version: database.server_version,
        pg_dump_version,
        database_bytes: database.bytes,
        tables,
        ledger,
        objects: Objects { mode: "none".to_owned(), ..Objects::default() },
        files,
    };
    partial.finish(&manifest)?;
    Ok(manifest)
}

/// Shows how large the dump has become, for ever.
async fn watch(dump: &Path) -> anyhow::Result<()> {
    let progress = Progress::growing("dumping");
    loop {
        let entries = std::fs::read_dir(dump).into_iter().flatten().flatten();
        let bytes = entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum();
        progress.set(bytes);
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}
