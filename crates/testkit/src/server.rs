//! One Postgres for all test processes of a run.
//!
//! The processes share a run folder (see `HOLDFAST_TEST_RUN`; by default `testkit` under the build
//! profile's folder) with two lock files:
//!
//! - `lock`: held while somebody starts or stops the server.
//! - `users`: every test process that uses the server holds it shared until it ends. The kernel
//!   gives it back however the process ends, so a killed test leaves nothing behind.
//!
//! A keeper, a small shell script started along with the server, looks at `users`. When it has been
//! free for 20 seconds the keeper stops the server and deletes its data. It holds a lock on `keeper`
//! in the server's folder, so that the next user starts another one should it have been killed.
//!
//! A script that wants the server gone at once makes a file `end` in the run folder and waits until
//! the file `server`, which names the server's folder, is gone.
//!
//! The data is in a folder of its own under the system's temporary folder, because the user that
//! runs Postgres must be able to enter it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig::{Postgres, PostgresOptions};
use tokio::sync::OnceCell;

use crate::run;

const KEEPER: &str = include_str!("keeper.sh");
/// Longer than cargo takes from one test binary to the next.
const GRACE_SECONDS: u32 = 20;
const MAX_CONNECTIONS: u16 = 300;
const KEEPER_WITHIN: Duration = Duration::from_secs(10);
/// The database that always exists, from which others are made.
const MAINTENANCE: &str = "postgres";

/// The shared server, as one of its users sees it.
#[derive(Debug)]
pub struct Server {
    base: String,
    _user: File,
}

impl Server {
    /// The address of a database of the server.
    pub fn url(&self, database: &str) -> String {
        self.base.replacen("///postgres?", &format!("///{database}?"), 1)
    }

    /// The address of the database that always exists.
    pub fn maintenance_url(&self) -> String {
        self.base.clone()
    }
}

/// The shared server; the first caller of the run starts it.
pub async fn postgres() -> Result<&'static Server> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_try_init(join).await
}

async fn join() -> Result<Server> {
    let folder = run::folder()?;
    let lock = open(&folder.join("lock"))?;
    let user = open(&folder.join("users"))?;
    // Blocking locks, for seconds while another process starts the server.
    let (lock, user) = tokio::task::spawn_blocking(move || {
        lock.lock()?;
        user.lock_shared()?;
        std::io::Result::Ok((lock, user))
    })
    .await?
    .context("lock the run folder")?;
    let note = folder.join("server");
    let (server, base) = match running(&note).await {
        Some(found) => found,
        None => start(&note).await?,
    };
    ensure_keeper(&folder, &server).await?;
    drop(lock);
    Ok(Server { base, _user: user })
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// The server that the note speaks of, if it answers.
async fn running(note: &Path) -> Option<(PathBuf, String)> {
    let text = std::fs::read_to_string(note).ok()?;
    let (folder, base) = text.split_once('\n')?;
    pg::connect(&pg::Options::new(base)).await.ok()?;
    Some((PathBuf::from(folder), base.to_owned()))
}

async fn start(note: &Path) -> Result<(PathBuf, String)> {
    if let Ok(text) = std::fs::read_to_string(note)
        && let Some((old, _)) = text.split_once('\n')
    {
        // Its server does not answer: the machine was restarted, or its keeper was killed.
        let _ = std::fs::remove_dir_all(old);
    }
    let folder = tempfile::Builder::new().prefix("holdfast-test-").tempdir()?;
    open_to_others(folder.path())?;
    let options = PostgresOptions { durable: false, max_connections: MAX_CONNECTIONS };
    let server = Postgres::start(folder.path(), options).await?;
    let base = server.url(MAINTENANCE);
    std::fs::write(note, format!("{}\n{base}", folder.path().display()))?;
    server.detach();
    Ok((folder.keep(), base))
}

/// A temporary folder is closed to the user that runs Postgres; what matters inside it is closed by
/// itself.
fn open_to_others(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?)
}

/// Starts the keeper unless one lives. Called with `lock` held.
async fn ensure_keeper(folder: &Path, server: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let keeper = open(&server.join("keeper"))?;
    if keeper.try_lock().is_err() {
        return Ok(());
    }
    keeper.unlock()?;
    let mut child = Command::new("sh")
        .args(["-c", KEEPER, "keeper"])
        .args([folder, server])
        .arg(GRACE_SECONDS.to_string())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start the keeper")?;
    let deadline = Instant::now() + KEEPER_WITHIN;
    while keeper.try_lock().is_ok() {
        keeper.unlock()?;
        if let Some(status) = child.try_wait()? {
            bail!("the keeper ended: {status}");
        }
        if Instant::now() >= deadline {
            bail!("the keeper did not take its lock within {KEEPER_WITHIN:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
