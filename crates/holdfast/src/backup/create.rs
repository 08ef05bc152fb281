//! Making a backup: the steps of docs/spec/backup.md, in their order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::objects::Bucket;
use jiff::Timestamp;
use tokio_postgres::IsolationLevel;

use super::Role;
use super::folder::days_ago;
use super::manifest::{self, FORMAT, Manifest, Objects};
use super::objects::Mode;
use super::place::Place;
use super::progress::Progress;
use super::{objects, show, tools};
use crate::output::say;

/// How often the growing dump is measured for the progress shown.
const MEASURE_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for backups, made if it is not there; or s3, the bucket of the backup section.
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
    /// What goes along of the images of a site: list if it has an object store.
    #[arg(long, value_enum)]
    objects: Option<Mode>,
    /// JSON instead of a sentence.
    #[arg(long)]
    json: bool,
    /// The configuration; the role's section and backup are read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

/// Runs it.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let file = args.config.as_deref();
    let options = args.role.database(file)?;
    let site = args.role.objects(file)?;
    anyhow::ensure!(
        site.is_some() || matches!(args.objects, None | Some(Mode::None)),
        "there is no object store to back up: set edge.media.s3_endpoint, or leave --objects out"
    );
    let wanted = args.objects.unwrap_or(Mode::List);
    let objects = site.map(|bucket| (bucket, wanted)).filter(|(_, mode)| *mode != Mode::None);
    let place = Place::open(&args.to, file)?;
    for name in place.clean().await? {
        tracing::warn!(name, "removed what an interrupted backup left");
    }
    let manifest = create(&place, args.role, &options, args.jobs, objects).await?;
    let pruned = place.prune(args.role, days_ago(args.keep_days)).await?;
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&manifest)?))?,
        false => say(&show::created(&manifest, &pruned))?,
    }
    let absent = manifest.objects.missing + manifest.objects.differing;
    anyhow::ensure!(
        absent == 0,
        "the backup is whole, but {absent} objects are not in it: the site's store has lost or changed them, \
         see holdfast verify"
    );
    Ok(())
}

/// Makes one backup.
async fn create(
    place: &Place,
    role: Role,
    options: &pg::Options,
    jobs: u16,
    objects: Option<(Bucket, Mode)>,
) -> anyhow::Result<Manifest> {
    let started_at = Timestamp::now();
    let pg_dump_version = tools::dump_version().await?;
    let mut client = pg::connect(options).await?;
    let database = pg::whole::about(&client).await?;
    let stamp = started_at.strftime("%Y%m%dT%H%M%SZ");
    let id = format!("{}-{stamp}-{:04x}", role.as_str(), rand::random::<u16>());
    let partial = place.begin(&id)?;
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
        let ledger = role.ledger(&transaction).await?;
        let listed = match &objects {
            Some((bucket, _)) => objects::list(&transaction, bucket, &partial.path).await?,
            None => Objects { mode: "none".to_owned(), ..Objects::default() },
        };
        Ok((tables, ledger, listed))
    };
    let ((), (tables, ledger, mut listed)) = tokio::try_join!(watched, read)?;
    transaction.commit().await?;
    if let Some((bucket, Mode::Copy)) = &objects {
        let into = place.copies(&id, &partial.path);
        objects::copy(bucket, &partial.path, into, &mut listed).await?;
    }

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
        objects: listed,
        files,
    };
    place.finish(partial, &manifest).await?;
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
