//! One server of a kind for all test processes of a run.
//!
//! The processes share a folder for it, under the run's folder (see `HOLDFAST_TEST_RUN`; by default `testkit`
//! under the build profile's folder), with two lock files:
//!
//! - `lock`: held while somebody starts or stops the server.
//! - `users`: every test process that uses the server holds it shared until it ends. The kernel
//!   gives it back however the process ends, so a killed test leaves nothing behind.
//!
//! A keeper, a small shell script started along with the server, looks at `users`. When it has been
//! free for 20 seconds the keeper ends the server's processes, which are listed in the file `processes` of the server's
//! folder, and deletes that folder. It holds a lock on `keeper` there, so that the next user starts another one
//! should it have been killed.
//!
//! A script that wants the server gone at once makes a file `end` beside the locks and waits until
//! the file `server`, which names the server's folder, is gone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const KEEPER: &str = include_str!("keeper.sh");
/// Longer than cargo takes from one test binary to the next.
const GRACE_SECONDS: u32 = 20;
const KEEPER_WITHIN: Duration = Duration::from_secs(10);

/// A shared server, as one of its users sees it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The server's own folder.
    pub(crate) folder: PathBuf,
    /// Where it is reached.
    pub(crate) address: String,
    _user: File,
}

/// A process of a server, and how its keeper ends it.
pub(crate) struct Ending {
    /// `QUIT`, `KILL`.
    pub(crate) signal: &'static str,
    /// The file whose first line is its id.
    pub(crate) pid_file: PathBuf,
    /// A word of its command line, by which it is known.
    pub(crate) word: String,
}

/// A server that was started and left running.
pub(crate) struct Started {
    pub(crate) folder: PathBuf,
    pub(crate) address: String,
    pub(crate) processes: Vec<Ending>,
}

/// Joins the users of the server of the folder `run`. The first one starts it.
pub(crate) async fn join(
    run: PathBuf,
    answers: impl AsyncFn(&str) -> bool,
    start: impl AsyncFn() -> Result<Started>,
) -> Result<Shared> {
    std::fs::create_dir_all(&run)?;
    let lock = open(&run.join("lock"))?;
    let user = open(&run.join("users"))?;
    // Blocking locks, for seconds while another process starts the server.
    let (lock, user) = tokio::task::spawn_blocking(move || {
        lock.lock()?;
        user.lock_shared()?;
        std::io::Result::Ok((lock, user))
    })
    .await?
    .context("lock the run folder")?;
    let note = run.join("server");
    let noted = std::fs::read_to_string(&note).ok();
    let noted = noted.as_deref().and_then(|text| text.split_once('\n'));
    let (folder, address) = match noted {
        Some((folder, address)) if answers(address).await => {
            (PathBuf::from(folder), address.to_owned())
        }
        other => {
            if let Some((old, _)) = other {
                // Its server does not answer: the machine was restarted, or its keeper was killed.
                let _ = std::fs::remove_dir_all(old);
            }
            let Started { folder, address, processes } = start().await?;
            std::fs::write(&note, format!("{}\n{address}", folder.display()))?;
            let line =
                |one: &Ending| format!("{} {} {}\n", one.signal, one.pid_file.display(), one.word);
            let lines: String = processes.iter().map(line).collect();
            std::fs::write(folder.join("processes"), lines)?;
            (folder, address)
        }
    };
    ensure_keeper(&run, &folder).await?;
    drop(lock);
    Ok(Shared { folder, address, _user: user })
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// Starts the keeper unless one lives. Called with `lock` held.
async fn ensure_keeper(run: &Path, server: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let keeper = open(&server.join("keeper"))?;
    if keeper.try_lock().is_err() {
        return Ok(());
    }
    keeper.unlock()?;
    let mut child = Command::new("sh")
        .args(["-c", KEEPER, "keeper"])
        .args([run, server])
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
